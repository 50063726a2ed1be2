//! The command that looks further, as whoever reads of it can run it.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::symptoms;

/// Commands that reports name; each is in [`symptoms`], too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Functions on CPUs.
    CpuTime,
    /// The same as a picture.
    CpuPicture,
    /// The kernel's functions on CPUs.
    KernelTime,
    /// Functions that touch memory for the first time.
    PageFaults,
    /// Functions that touch memory which is on disk.
    MajorFaults,
    /// Functions that do block I/O.
    BlockIo,
    /// Places where threads wait.
    Waits,
    /// Places where threads wait, those with nothing to do too.
    Homes,
    /// Threads that end others' waits.
    Wakers,
    /// Places where threads wait in state D.
    WaitsInStateD,
    /// Waits for CPUs.
    RunQueue,
    /// Locks, and their holders.
    Locks,
    /// Locks with stacks.
    LockStacks,
    /// Holders at this instant.
    LocksNow,
    /// Requests to disks, by process.
    Disks,
    /// Their time on the way to the device and in it.
    Phases,
    /// Pressure, by cgroup.
    Groups,
    /// Pressure of all resources.
    Shortages,
    /// System calls, by process.
    Calls,
    /// System calls that fail, by error.
    Failures,
    /// All of a program's time.
    Why,
}

impl Step {
    /// Every one.
    pub const ALL: [Self; 21] = [
        Self::CpuTime,
        Self::CpuPicture,
        Self::KernelTime,
        Self::PageFaults,
        Self::MajorFaults,
        Self::BlockIo,
        Self::Waits,
        Self::Homes,
        Self::Wakers,
        Self::WaitsInStateD,
        Self::RunQueue,
        Self::Locks,
        Self::LockStacks,
        Self::LocksNow,
        Self::Disks,
        Self::Phases,
        Self::Groups,
        Self::Shortages,
        Self::Calls,
        Self::Failures,
        Self::Why,
    ];

    /// Command with TARGET where a target stands, and what it answers.
    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::CpuTime => ("profile TARGET 10", "where CPU time goes"),
            Self::CpuPicture => (
                "profile TARGET 30 -o cpu.html",
                "all its stacks as a picture",
            ),
            Self::KernelTime => ("profile -K TARGET 10", "what the kernel does"),
            Self::PageFaults => ("profile -e page-faults TARGET 10", "what touches memory"),
            Self::MajorFaults => (
                "profile -e major-faults TARGET 10",
                "what touches memory that is on disk",
            ),
            Self::BlockIo => (
                "profile -e tracepoint:block:block_bio_queue TARGET 10",
                "what does I/O",
            ),
            Self::Waits => ("offcputime TARGET 10", "where it waits"),
            Self::Homes => (
                "offcputime --idle show TARGET 10",
                "where it waits with nothing to do",
            ),
            Self::Wakers => ("offcputime --waker TARGET 10", "who ends these waits"),
            Self::WaitsInStateD => ("offcputime --state 2 TARGET 10", "where it waits"),
            Self::RunQueue => ("runqlat TARGET 5 1", "how long, and behind whom"),
            Self::Locks => ("lockstat TARGET 10", "which locks, and who holds them"),
            Self::LockStacks => (
                "lockstat -s 3 TARGET 10",
                "stacks of who waits and who releases",
            ),
            Self::LocksNow => ("lockstat --now TARGET", "who holds it now"),
            Self::Disks => ("biolatency TARGET -P 5 1", "how long I/O takes, and whose"),
            Self::Phases => (
                "biolatency TARGET --phases 5 1",
                "where requests wait before the device",
            ),
            Self::Groups => (
                "pressure --cgroups TARGET 5 1",
                "which group has too little CPU",
            ),
            Self::Shortages => ("pressure 5 1", "what is short"),
            Self::Calls => ("syscount TARGET 10 1", "whose calls these are"),
            Self::Failures => ("syscount -e TARGET 10 1", "which calls fail so, and whose"),
            Self::Why => ("why TARGET 10", "what costs it its time"),
        }
    }

    /// Its question.
    pub fn answers(self) -> &'static str {
        self.parts().1
    }

    /// The command for a target such as `-p 7`, `-d vda` or `-- make`; for an empty one, the whole machine. A program that is
    /// started sets the time itself.
    pub fn command(self, target: &str) -> String {
        let (options, program) = match target.strip_prefix("-- ") {
            Some(program) => ("", Some(program)),
            None => match target.split_once(" -- ") {
                Some((options, program)) => (options, Some(program)),
                None => (target, None),
            },
        };
        let whole = self.parts().0;
        let Some((before, after)) = whole.split_once("TARGET") else {
            return whole.to_owned();
        };
        let is_time = |word: &&str| program.is_some() && word.parse::<u32>().is_ok();
        let after = after.split(' ').filter(|word| !is_time(word));
        let words = before.split(' ').chain([options]).chain(after);
        let mut words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.extend(program.map(|_| "--"));
        words.extend(program);
        words.join(" ")
    }

    /// The same as a line of a report.
    pub fn line(self, target: &str) -> String {
        self.line_for(target, self.answers())
    }

    /// The same with a question of its own.
    pub fn line_for(self, target: &str, answers: &str) -> String {
        line(&self.command(target), answers)
    }
}

/// A line of a report for a command of this project, such as `lockstat -p 7 10`, and what it answers.
pub fn line(command: &str, answers: &str) -> String {
    format!("next: {}   # {answers}", runnable(command))
}

/// Looks whether a shell takes a name as it is, and a tool for no option.
pub fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+:@".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

/// The same of an absolute path.
pub(crate) fn is_plain_path(path: &str) -> bool {
    path.strip_prefix('/')
        .is_some_and(|path| path.split('/').all(is_plain))
}

/// A foreign name for what a command answers, or `other`: some shells take a remark for words of the command, and obey what is in it.
pub fn in_remark<'a>(name: &'a str, other: &'a str) -> &'a str {
    let is_inert = |c: char| c.is_ascii_alphanumeric() || " ._-+:@/#%".contains(c);
    if !name.trim().is_empty() && name.chars().all(is_inert) {
        name
    } else {
        other
    }
}

/// Looks whether a process can still be looked at.
pub fn is_there(pid: u32) -> bool {
    pid != 0 && Path::new(&format!("/proc/{pid}")).exists()
}

/// A command that begins with a tool's name, with `sudo` where that was needed to come here, and with the tool's path where a
/// shell does not find it.
pub fn runnable(command: &str) -> String {
    debug_assert!(symptoms::has(command), "no symptom has {command}");
    let (tool, rest) = command.split_once(' ').unwrap_or((command, ""));
    let directories = env::var_os("PATH").unwrap_or_default();
    let started_as = env::args_os().next().unwrap_or_default();
    let beside = [Some(PathBuf::from(started_as)), env::current_exe().ok()];
    let found = place(tool, &directories, &beside.map(Option::unwrap_or_default));
    let sudo = env::var_os("SUDO_UID").map_or("", |_| "sudo ");
    format!("{sudo}{found} {rest}").trim_end().to_owned()
}

/// The tool's name where a shell finds it; its path beside one of these programs where a shell finds none, or another one of
/// that name: bcc's tools have the same names.
fn place(tool: &str, directories: &OsStr, beside: &[PathBuf]) -> String {
    let mut ours = beside.iter().filter_map(|program| {
        let directory = program.parent()?;
        let is_there = !directory.as_os_str().is_empty();
        is_there
            .then(|| directory.join(tool))
            .filter(|path| is_program(path))
    });
    let mut found = env::split_paths(directories).map(|directory| directory.join(tool));
    let found = found.find(|path| is_program(path));
    let is_found = |ours: &PathBuf| {
        let found = found.as_ref().and_then(|path| path.canonicalize().ok());
        found.is_some() && found == ours.canonicalize().ok()
    };
    // Names that a shell would take apart are left to the reader.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    let ours = ours.next().filter(|ours| !is_found(ours));
    ours.and_then(|path| path.into_os_string().into_string().ok())
        .filter(|path| path.bytes().all(is_plain))
        .unwrap_or_else(|| tool.to_owned())
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_its_target_in_its_place() {
        assert_eq!(Step::Disks.command("-d vda"), "biolatency -d vda -P 5 1");
        assert_eq!(Step::CpuTime.command(""), "profile 10");
        assert_eq!(
            Step::Failures.command("EAGAIN -p 7"),
            "syscount -e EAGAIN -p 7 10 1"
        );
        let line = Step::LocksNow.line("-p 7");
        assert!(
            line.ends_with("lockstat --now -p 7   # who holds it now"),
            "{line}"
        );
    }

    #[test]
    fn a_program_that_is_started_sets_the_time() {
        for (step, target, command) in [
            (Step::Shortages, "", "pressure 5 1"),
            (Step::CpuPicture, "-- a b", "profile -o cpu.html -- a b"),
            (Step::LockStacks, "-d vda -- a", "lockstat -s 3 -d vda -- a"),
        ] {
            assert_eq!(step.command(target), command);
        }
    }

    #[test]
    fn a_tool_that_no_shell_finds_has_its_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = |directories: &Path| {
            let beside = [PathBuf::from("runqlat"), dir.path().join("runqlat")];
            super::place("lockstat", directories.as_os_str(), &beside)
        };
        assert_eq!(place(Path::new("/none")), "lockstat", "it is nowhere");
        let path = dir.path().join("lockstat");
        std::fs::copy("/proc/self/exe", &path).expect("a program");
        assert_eq!(place(Path::new("/none")), path.to_str().expect("UTF-8"));
        assert_eq!(place(dir.path()), "lockstat");
        let theirs = tempfile::tempdir().expect("a directory");
        std::fs::copy("/proc/self/exe", theirs.path().join("lockstat")).expect("a program");
        assert_eq!(place(theirs.path()), path.to_str().expect("UTF-8"));
    }
}
