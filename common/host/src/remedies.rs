//! Errors as one line: what was being done, the kernel's reason, and what helps.

use std::io;

/// End of what the kernel says in the standard library's words, before a number and a parenthesis.
const NUMBER: &str = " (os error ";

/// Beginning of what a library says that knows neither the tool nor its user; the reason follows.
const LIBRARY: &str = "failed to ";

/// Acts on what a user has named.
const USERS: [&str; 3] = ["write ", "run ", "cgroup "];

/// `ACT: CAUSE; REMEDY`, without control characters. A part of the error may bring its own remedy, behind a semicolon.
/// `has_power`: the tool has all capabilities that tracing takes.
pub fn line(error: &anyhow::Error, has_power: bool) -> String {
    let (mut parts, mut remedies, mut number) = (Vec::new(), Vec::new(), None);
    for part in error.chain().map(ToString::to_string) {
        let (part, of_part) = split_number(&part);
        number = of_part.or(number);
        let (part, remedy) = split_remedy(part);
        parts.push(part.to_owned());
        remedies.extend((!remedy.is_empty()).then(|| remedy.to_owned()));
    }
    let cause = parts.pop().unwrap_or_default();
    parts.retain(|part| !part.starts_with(LIBRARY));
    let of_number = number.map(|number| remedy(&parts, number, has_power).to_owned());
    parts.push(cause);
    // The innermost knows best.
    let remedy = remedies.pop().or(of_number).unwrap_or_default();
    let semicolon = if remedy.is_empty() { "" } else { "; " };
    let line = format!("{}{semicolon}{remedy}", parts.join(": "));
    profile::escape::terminal(&line.replace('\n', " ")).into()
}

/// A part and the remedy that it brings. None is in what names a file or command of the user's, who may have written anything.
fn split_remedy(part: &str) -> (&str, &str) {
    if USERS.iter().any(|act| part.starts_with(act)) && !part.contains(": ") {
        return (part, "");
    }
    part.rsplit_once("; ").unwrap_or((part, ""))
}

/// The kernel's words without their number.
pub fn cause(error: &io::Error) -> String {
    split_number(&error.to_string()).0.to_owned()
}

/// The number of the kernel's error at the end of a text.
pub fn number(text: &str) -> Option<i32> {
    split_number(text).1
}

fn split_number(text: &str) -> (&str, Option<i32>) {
    let split = text.strip_suffix(')').and_then(|text| {
        let (words, number) = text.rsplit_once(NUMBER)?;
        Some((words, Some(number.parse().ok()?)))
    });
    split.unwrap_or((text, None))
}

/// The remedy for an error of the kernel's. `acts`: what was being done, the largest first.
fn remedy(acts: &[String], number: i32, has_power: bool) -> &'static str {
    let is = |beginning: &str| acts.iter().any(|act| act.starts_with(beginning));
    let (writes, starts) = (is("write "), is("run "));
    match number {
        libc::ENOENT if writes => "make its directory first",
        libc::ENOENT if starts => "check its name, and PATH",
        libc::EACCES | libc::ENOEXEC if starts => "it is to be an executable file",
        libc::E2BIG if starts => "give it fewer arguments",
        libc::EAGAIN if writes => "give it an output that waits for its reader",
        libc::ENOENT | libc::ENOTDIR if is("cgroup ") => {
            "findmnt -t cgroup2,cgroup shows where they are"
        }
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => "make room there",
        libc::EPERM | libc::EACCES if writes => "choose another place",
        libc::EPERM | libc::EACCES if has_power => {
            "a container's seccomp profile, a security module or kernel lockdown forbids it: run it outside"
        }
        libc::EPERM | libc::EACCES => "run it as root",
        libc::ENOMEM => "free some memory, or raise memory.max of its cgroup",
        // Tools have raised their own limit as far as they may: fewer would not help.
        libc::EMFILE => "allow more with ulimit -n 65536",
        libc::ENFILE => "raise the sysctl fs.file-max",
        libc::EAGAIN => "allow more processes: ulimit -u, and pids.max of its cgroup",
        libc::EBUSY | libc::E2BIG => "end the other tracers that are there",
        _ if writes => "choose another place",
        libc::ENOENT if is("read /proc/") => "mount -t proc none /proc",
        libc::ENOENT if is("read /sys/") => "mount -t sysfs none /sys",
        _ => "please report it with what --probe says",
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, Result, anyhow};

    use super::*;

    fn refused(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    fn said(error: impl Into<anyhow::Error>, acts: &[&'static str]) -> String {
        let failed: Result<()> = Err(error.into());
        let failed = acts.iter().fold(failed, |failed, act| failed.context(*act));
        line(&failed.unwrap_err(), true)
    }

    #[test]
    fn the_kernels_reason_comes_without_its_number_and_with_a_remedy() {
        assert_eq!(
            said(refused(libc::EMFILE), &["open event cycles"]),
            "open event cycles: Too many open files; allow more with ulimit -n 65536"
        );
        let said = said(refused(libc::EBADMSG), &["read map counts"]);
        assert!(
            said.ends_with("Bad message; please report it with what --probe says"),
            "{said}"
        );
    }

    #[test]
    fn a_library_between_act_and_reason_is_left_out() {
        let acts = ["failed to create new ring buffer", "map ring buffer"];
        assert_eq!(
            said(refused(libc::ENOMEM), &acts),
            "map ring buffer: Cannot allocate memory; free some memory, or raise memory.max of its cgroup"
        );
        let alone = said(anyhow!("failed to find it"), &["look"]);
        assert_eq!(alone, "look: failed to find it", "it is the reason");
    }

    #[test]
    fn a_remedy_that_somebody_knows_is_the_only_one_and_comes_last() {
        assert_eq!(
            said(
                refused(libc::EPERM),
                &["tracefs is not mounted; mount it", "tracepoint a:b"]
            ),
            "tracepoint a:b: tracefs is not mounted: Operation not permitted; mount it"
        );
        let known = "needs root; run it with sudo";
        assert_eq!(said(anyhow!(known), &[]), known);
    }

    #[test]
    fn files_and_commands_have_their_own_remedies() {
        let ends = |said: String, remedy: &str| assert!(said.ends_with(remedy), "{said}");
        ends(
            said(refused(libc::ENOENT), &["cgroup /a"]),
            "shows where they are",
        );
        ends(said(refused(libc::E2BIG), &["run a"]), "fewer arguments");
        ends(
            said(refused(libc::EACCES), &["write a"]),
            "choose another place",
        );
        ends(said(refused(libc::ENOENT), &["write a"]), "directory first");
        ends(said(refused(libc::ENOENT), &["run a"]), "PATH");
        ends(said(refused(libc::ENOSPC), &["write a"]), "make room there");
    }

    #[test]
    fn semicolons_in_users_names_are_no_remedies() {
        assert_eq!(
            said(refused(libc::EACCES), &["write a; b.svg"]),
            "write a; b.svg: Permission denied; choose another place"
        );
        let known = "cgroup /a; b: not a cgroup v2 directory; cgroup v2 is mounted at /c";
        assert_eq!(said(anyhow!(known), &[]), known);
    }

    #[test]
    fn names_of_others_are_escaped() {
        let said = said(refused(libc::ENOENT), &["run \u{1b}[2J\nx"]);
        assert!(!said.contains(['\u{1b}', '\n']), "{said}");
    }
}
