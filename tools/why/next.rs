//! The command that looks further at the line that costs most.

use host::procs;
use profile::text::comm;
use session::chosen;
use session::next::{self, Step, is_plain};

use crate::offcputime::{DATABASE_LOCK, GIL, THROTTLED};
use crate::why::account::Account;
use crate::why::args::Args;
use crate::why::disk_users;
use crate::why::line::{Culprit, IDLE, Line, ON_CPU, Program, RUN_QUEUE};
use crate::why::lock::Lock;
use crate::why::sentences::{IS_CULPRIT, is_at_rest};

/// The kernel's function that waits for a child, and the call by which dash's `wait` sleeps until a signal says that one has ended.
const FOR_CHILD: &str = "do_wait";
const FOR_SIGNAL: &str = "sigsuspend";

/// A line for it; of threads at rest, for the whole machine.
pub(crate) fn next(args: &Args, account: &Account, is_there: fn(u32) -> bool) -> String {
    let first = account.first().filter(|_| !is_at_rest(account));
    let found = first.and_then(|line| {
        // A culprit may outlive those that were asked for.
        let culprit = || neighbour(args, line, is_there);
        let survivor = || Some(Step::Why.line(&format!("-p {}", culprit()?.1)));
        step(args, account, line, is_there).or_else(survivor)
    });
    let found = found.or_else(|| at_rest(args, account, is_there));
    found.unwrap_or_else(|| Step::Shortages.line(""))
}

/// Threads that were asked for may wait for what never comes; one that waits for its child may wait for what that waits for.
fn at_rest(args: &Args, account: &Account, is_there: fn(u32) -> bool) -> Option<String> {
    let is_choice = !args.targets.are_all() && !account.is_of_nobody() && is_at_rest(account);
    let target = is_choice.then(|| chosen::options(&args.targets, is_there))??;
    let idle = account.lines.iter().find(|line| line.kind == IDLE)?;
    let (kernel, _) = &idle.stack;
    let waits_for_child = kernel
        .iter()
        .any(|frame| &*frame.name == FOR_CHILD || frame.name.ends_with(FOR_SIGNAL));
    if let [parent] = args.targets.pids[..]
        && waits_for_child
        && let [child] = procs::children(parent)[..]
    {
        return Some(Step::Why.line_for(&format!("-p {child}"), "its child, which it waits for"));
    }
    Some(Step::Homes.line(&target))
}

fn step(args: &Args, account: &Account, line: &Line, is_there: fn(u32) -> bool) -> Option<String> {
    let target = match &account.chosen {
        Some(chosen) if chosen.tgids.len() > 1 => of_name(&chosen.program.0)?,
        _ => target(args, line, is_there)?,
    };
    if let Some(quota) = account.quotas.first().filter(|_| line.kind == THROTTLED) {
        let (program, _) = line.whose.first()?;
        let victim = Some(program.1).filter(|pid| is_there(*pid));
        return Some(quota.next(victim, &args.targets));
    }
    let step = match line.kind {
        ON_CPU => Step::CpuPicture,
        THROTTLED => return Some(Step::CpuTime.line_for(&target, "what uses up the quota")),
        GIL => {
            let answers = "which functions have the interpreter";
            return Some(Step::CpuTime.line_for(&target, answers));
        }
        RUN_QUEUE => match neighbour(args, line, is_there) {
            Some((name, pid)) => {
                let answers = format!("what {} runs", next::in_remark(&comm(&name), "it"));
                return Some(Step::CpuTime.line_for(&format!("-p {pid}"), &answers));
            }
            None => Step::RunQueue,
        },
        _ if is_held_back(line) => {
            return Some(Step::Groups.line_for("", "which group waits for I/O"));
        }
        "block-io" => match disk_users::next(line) {
            Some(command) => return Some(command),
            None => Step::Disks,
        },
        _ if is_database_lock(line) => {
            let ((name, _), _) = line.whose.first()?;
            let step = match nobody_ends(line) {
                true => Step::LocksNow,
                false => Step::Locks,
            };
            return Some(step.line(&of_name(name)?));
        }
        _ if may_never_end(line) && !target.contains("-- ") => Step::LocksNow,
        _ if line.lock.is_some() => {
            return line.lock.as_ref().map(|lock| lock.next(&target));
        }
        _ if line.is_retried => match line.locked.as_ref().map(|locked| locked.by.1) {
            Some(pid) if is_other(args, line, pid) && is_there(pid) => {
                return Some(Step::Why.line(&format!("-p {pid}")));
            }
            _ => Step::Waits,
        },
        "futex" | "lock" | "file-lock" | "semaphore" | "eventfd" => Step::Locks,
        "page-fault" => Step::MajorFaults,
        _ => match neighbour(args, line, is_there) {
            Some((_, pid)) => return Some(Step::Why.line(&format!("-p {pid}"))),
            None => Step::Waits,
        },
    };
    let target = match step {
        // Requests of a process that writes back are the kernel's.
        Step::Disks if args.targets.command.is_empty() => String::new(),
        _ => target,
    };
    Some(step.line(&target))
}

/// Another program that is to blame, and is there to be looked at.
fn neighbour(args: &Args, line: &Line, is_there: fn(u32) -> bool) -> Option<Program> {
    let (culprit, share) = line.first_blame()?;
    let Culprit::Program(program, _) = culprit else {
        return None;
    };
    let is_other = is_other(args, line, program.1);
    let is_wanted = is_other && share >= IS_CULPRIT && program.1 != std::process::id();
    (is_wanted && is_there(program.1)).then(|| program.clone())
}

/// Looks whether a process is none of those that are looked at, or that wait.
fn is_other(args: &Args, line: &Line, pid: u32) -> bool {
    let waits = line.whose.iter().any(|((_, waiter), _)| *waiter == pid);
    !waits && !args.targets.pids.contains(&pid)
}

/// Looks whether most of a line went by before there were requests to a disk.
fn is_held_back(line: &Line) -> bool {
    let first = line.first_blame();
    first.is_some_and(|(culprit, _)| *culprit == Culprit::HeldBack)
}

/// Looks whether threads wait for a database's own lock, which others of its processes hold.
fn is_database_lock(line: &Line) -> bool {
    let (_, user) = &line.stack;
    user.iter().any(|frame| &*frame.name == DATABASE_LOCK)
}

/// Looks whether these waits are for a lock, which a look at this instant knows, and nobody has ended them.
fn may_never_end(line: &Line) -> bool {
    let is_known = line.lock.as_ref().is_none_or(|lock| lock.is_known_now);
    is_known && ["futex", "lock", "file-lock"].contains(&line.kind) && nobody_ends(line)
}

/// Looks whether most of the waits go on, and nobody is known who holds what they are for.
fn nobody_ends(line: &Line) -> bool {
    let held = line.lock.as_ref().map(Lock::held).unwrap_or_default();
    let blame = line.first_blame().filter(|_| held.is_empty());
    blame.is_some_and(|(culprit, share)| *culprit == Culprit::Nobody && share >= IS_CULPRIT)
}

/// Options for all processes of a name.
fn of_name(name: &str) -> Option<String> {
    is_plain(name).then(|| format!("--comm {name}"))
}

/// Those that were asked for, or of the whole machine the process with most of the line.
fn target(args: &Args, line: &Line, is_there: fn(u32) -> bool) -> Option<String> {
    if !args.targets.are_all() {
        return chosen::options(&args.targets, is_there);
    }
    let ((name, pid), _) = line.whose.first()?;
    if is_there(*pid) {
        return Some(format!("-p {pid}"));
    }
    // Others of its name may come where a process has ended.
    of_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::biolatency::Phase;
    use crate::why::line::Locked;
    use crate::why::tests::{account, args, command, line, program};

    #[test]
    fn a_databases_lock_that_nobody_gives_back_is_looked_at_now() {
        let next = |culprit: Culprit| {
            let mut line = line("epoll", 900, &[(culprit, 9)]);
            line.stack.1 = [crate::made_up::frame(DATABASE_LOCK)].into();
            line.whose = vec![(("postgres".into(), 8), 9)];
            command(&account(vec![line]))
        };
        let asks = |next: &str, what: &str| assert!(next.starts_with(what), "{next}");
        asks(&next(Culprit::Nobody), "lockstat --now --comm postgres");
        asks(&next(program("postgres", 8)), "lockstat --comm postgres 10");
    }

    #[test]
    fn a_lock_that_is_tried_again_is_waited_for_in_sleep() {
        let next = |by: Option<u32>| {
            let mut tried = line("file-lock", 900, &[]);
            tried.is_retried = true;
            tried.locked = by.map(|pid| Locked {
                by: ("app".into(), pid),
                path: "/shop.db".into(),
                is_own: pid == 7,
            });
            command(&account(vec![tried]))
        };
        assert_eq!(next(None), "offcputime -p 7 10");
        assert_eq!(next(Some(7)), "offcputime -p 7 10");
        assert_eq!(next(Some(9)), "why -p 9 10");
    }

    #[test]
    fn a_culprit_that_outlives_those_that_were_asked_for_is_looked_at() {
        let account = account(vec![line("socket", 900, &[(program("server", 9), 60)])]);
        let after = |is_there| next(&args("why -p 7"), &account, is_there);
        let survived = after(|pid| pid == 9);
        assert!(survived.contains("why -p 9 10 "), "{survived}");
        let gone = after(|_| false);
        assert!(gone.contains("pressure 5 1 "), "{gone}");
    }

    #[test]
    fn the_next_command_looks_at_the_line_or_at_its_culprit() {
        let other = [(program("cc1", 9), 60)];
        let own = [(program("app", 7), 60)];
        let nobody = [(Culprit::Nobody, 60)];
        let held_back = [(Culprit::HeldBack, 60)];
        let [device, queue] =
            [Phase::Device, Phase::Queued].map(|phase| [(Culprit::Disk("vda".into(), phase), 60)]);
        for (kind, blames, expected) in [
            (ON_CPU, &other[..], "profile -p 7 30 -o cpu.html"),
            (RUN_QUEUE, &other, "profile -p 9 10"),
            (RUN_QUEUE, &own, "runqlat -p 7 5 1"),
            ("futex", &other, "lockstat -p 7 10"),
            ("futex", &nobody, "lockstat --now -p 7"),
            ("semaphore", &nobody, "lockstat -p 7 10"),
            ("gil", &other, "profile -p 7 10"),
            ("block-io", &other, "biolatency -P 5 1"),
            ("block-io", &device, "biolatency -d vda -P 5 1"),
            ("block-io", &queue, "biolatency -d vda --phases 5 1"),
            ("block-io", &held_back, "pressure --cgroups 5 1"),
            ("page-fault", &other, "profile -e major-faults -p 7 10"),
            ("pipe", &other, "why -p 9 10"),
            ("pipe", &own, "offcputime -p 7 10"),
        ] {
            assert_eq!(
                command(&account(vec![line(kind, 500, blames)])),
                expected,
                "{kind}"
            );
        }
        assert_eq!(
            command(&account(vec![line("pipe", 1, &other)])),
            "offcputime --idle show -p 7 10"
        );
    }
}
