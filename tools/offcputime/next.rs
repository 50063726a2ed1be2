//! The next question about what threads waited for.

use profile::frame::Frame;
use profile::model::{Profile, Sample};
use profile::reasons::CPU;
use profile::sums::sums;
use session::chosen;
use session::next::{Step, is_plain};
use session::quotas::UsedUp;

use crate::offcputime::answer::{THROTTLED, Waits};
use crate::offcputime::args::Args;
use crate::offcputime::gil::GIL;
use crate::offcputime::harvest::Accounting;
use crate::offcputime::sqlite;

/// Function in which PostgreSQL's backends wait for a lock of a row or a table, by a latch.
pub(crate) const DATABASE_LOCK: &str = "ProcSleep";

/// A line for the command that looks at the reason with most of the time of threads that were not idle, or at their time on CPUs if it
/// is more; where nobody waits for anybody, or whoever does cannot be named, at the machine.
pub(crate) fn next(
    args: &Args,
    profile: &Profile,
    (accounting, quotas): (&Accounting, &[UsedUp]),
    is_there: fn(u32) -> bool,
) -> String {
    let found = step(args, profile, (accounting, quotas), is_there);
    found.unwrap_or_else(|| Step::Shortages.line(""))
}

fn step(
    args: &Args,
    profile: &Profile,
    (accounting, quotas): (&Accounting, &[UsedUp]),
    is_there: fn(u32) -> bool,
) -> Option<String> {
    let waits = Waits::of(profile);
    if waits.are_few(args, accounting) {
        return None;
    }
    let (reason, ns) = waits.reason().unwrap_or_default();
    if accounting.oncpu_ns > ns && args.sees_all_waits() {
        let target = chosen::options(&args.targets, is_there)?;
        return Some(Step::CpuTime.line(&target));
    }
    let pid = waits.process(reason)?;
    if let Some(quota) = quotas.first().filter(|_| reason == THROTTLED) {
        return Some(quota.next(Some(pid).filter(|pid| is_there(*pid)), &args.targets));
    }
    let comm = waits.name(reason, pid)?;
    // Others of its name may come where a process has ended, and those of a database have the lock.
    let of_name = |step: Step| is_plain(comm).then(|| step.line(&format!("--comm {comm}")));
    let step = match reason {
        "block-io" if args.targets.command.is_empty() => return Some(Step::Disks.line("")),
        "block-io" => Step::Disks,
        // SQLite only tries for a lock, and waits for none.
        "file-lock" if is_mostly(profile, reason, pid, |one| sqlite::is_busy(&one.user)) => {
            Step::Why
        }
        "futex" | GIL | "lock" | "file-lock" | "semaphore" | "eventfd" => Step::Locks,
        "page-fault" => Step::MajorFaults,
        CPU | THROTTLED => Step::RunQueue,
        _ if is_database_lock(profile, reason, pid) => return of_name(Step::Locks),
        _ if args.waker => {
            let waker = waker(profile, reason, |waker| waker != pid && is_there(waker))?;
            return Some(Step::Waits.line(&format!("-p {waker}")));
        }
        _ => Step::Wakers,
    };
    if is_there(pid) {
        return Some(step.line(&format!("-p {pid}")));
    }
    if !args.targets.command.is_empty() {
        return Some(step.line(&chosen::options(&args.targets, is_there)?));
    }
    of_name(step)
}

/// Looks whether most of a process's time for that reason is in a database's own lock.
fn is_database_lock(profile: &Profile, reason: &str, pid: u32) -> bool {
    let is_lock = |frame: &Frame| &*frame.name == DATABASE_LOCK;
    is_mostly(profile, reason, pid, |one| one.user.iter().any(is_lock))
}

/// Looks whether most of a process's time for that reason is in samples of a kind.
fn is_mostly(
    profile: &Profile,
    reason: &str,
    pid: u32,
    is_of_kind: impl Fn(&Sample) -> bool,
) -> bool {
    let is_its =
        |sample: &&Sample| !sample.idle && sample.task.tgid == pid && sample.reason == Some(reason);
    let (mut all_ns, mut part_ns) = (0_u64, 0_u64);
    for sample in profile.samples.iter().filter(is_its) {
        let ns = sample.total();
        all_ns = all_ns.saturating_add(ns);
        part_ns = part_ns.saturating_add(if is_of_kind(sample) { ns } else { 0 });
    }
    part_ns > all_ns / 2
}

/// The process that ended most of the time of waits for that reason, of those that are looked for.
fn waker(profile: &Profile, reason: &str, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
    let waits = profile.samples.iter().filter(|sample| !sample.idle);
    let waits = waits.filter(|sample| sample.reason == Some(reason));
    let times = sums(waits.filter_map(|sample| {
        let waker = sample.waker.as_ref()?.task.as_ref()?;
        Some((waker.tgid, sample.total()))
    }));
    let wanted = times.into_iter().filter(|(pid, _)| is_wanted(*pid));
    let most = wanted.max_by_key(|(pid, ns)| (*ns, *pid));
    most.map(|(pid, _)| pid)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use profile::model::Waker;

    use super::*;
    use crate::made_up::{frame, off_cpu, task, wait};

    fn sample(tgid: u32, reason: &'static str, ns: u64, idle: bool) -> Sample {
        Sample {
            idle,
            ..wait(task("a", tgid, tgid), reason, &[ns])
        }
    }

    fn command(samples: &[Sample], oncpu_ns: u64) -> String {
        line(&Args::parse_from(["offcputime"]), samples, oncpu_ns)
    }

    fn line(args: &Args, samples: &[Sample], oncpu_ns: u64) -> String {
        line_with(args, samples, oncpu_ns, &[])
    }

    fn line_with(args: &Args, samples: &[Sample], oncpu_ns: u64, quotas: &[UsedUp]) -> String {
        let profile = off_cpu(samples.to_vec(), 1);
        let accounting = Accounting {
            oncpu_ns,
            ..Accounting::default()
        };
        let line = next(args, &profile, (&accounting, quotas), |pid| pid != 0);
        let command = line.strip_prefix("next: ").expect("a command");
        command.split("   #").next().expect("its end").to_owned()
    }

    #[test]
    fn the_largest_wait_that_is_neither_idle_nor_chosen_is_looked_at() {
        let samples = [
            sample(1, "sleep", 900, false),
            sample(2, "epoll", 800, true),
            sample(3, "futex", 40, false),
            sample(4, "futex", 60, false),
            sample(5, "block-io", 70, false),
        ];
        assert_eq!(command(&samples, 10), "lockstat -p 4 10");
        assert_eq!(command(&samples, 101), "profile 10");
        assert_eq!(command(&samples[4..], 10), "biolatency -P 5 1");
        let socket = [sample(6, "socket", 5, false)];
        assert_eq!(command(&socket, 0), "offcputime --waker -p 6 10");
        let ended = [sample(0, "socket", 5, false)];
        assert_eq!(command(&ended, 0), "offcputime --waker --comm a 10");
        let args = Args::parse_from(["offcputime", "--", "make", "-j4"]);
        for (reason, command) in [
            ("futex", "lockstat -- make -j4"),
            ("block-io", "biolatency -P -- make -j4"),
        ] {
            let line = line(&args, &[sample(0, reason, 5, false)], 0);
            assert_eq!(line, command);
        }
        // One that has ended has its own name, whatever others' most is.
        let mut others = vec![sample(0, "socket", 50, false)];
        for tgid in [3, 4] {
            let mut other = sample(tgid, "socket", 40, false);
            other.task.comm = "b".into();
            others.push(other);
        }
        let wakers = "offcputime --waker --comm a 10";
        assert_eq!(command(&others, 0), wakers);
        // Waits that were left out may be longer than the time on CPUs.
        let args = Args::parse_from(["offcputime", "--state", "2"]);
        let one = [sample(5, "block-io", 70, false)];
        assert_eq!(line(&args, &one, 101), "biolatency -P 5 1");
        // All threads of a process, whatever their names.
        let mut threads = vec![sample(8, "futex", 40, false)];
        for name in ["one", "two"] {
            let mut thread = sample(7, "futex", 30, false);
            thread.task.comm = name.into();
            threads.push(thread);
        }
        assert_eq!(command(&threads, 0), "lockstat -p 7 10");
        // Nobody waits for another.
        assert_eq!(command(&samples[..2], 1000), "profile 10");
        assert_eq!(command(&samples[..2], 0), "pressure 5 1");
    }

    #[test]
    fn whoever_wakes_is_looked_at_after_its_sleepers() {
        let mut waits = [sample(1, "pipe", 9, false), sample(2, "pipe", 8, false)];
        let args = Args::parse_from(["offcputime", "--waker"]);
        assert_eq!(line(&args, &waits, 0), "pressure 5 1", "interrupts alone");
        waits[1].waker = Some(Arc::new(Waker {
            task: Some(task("b", 77, 78)),
            user: [].into(),
            user_end: None,
            kernel: [].into(),
        }));
        assert_eq!(line(&args, &waits, 0), "offcputime -p 77 10");
    }

    #[test]
    fn locks_of_all_kinds_lead_to_their_holders() {
        for reason in ["futex", "lock", "file-lock", "semaphore", "eventfd"] {
            let waits = [sample(4, reason, 9, false)];
            assert_eq!(command(&waits, 0), "lockstat -p 4 10");
        }
        let mut wait = sample(4, "epoll", 9, false);
        wait.user = [frame("main"), frame(DATABASE_LOCK)].into();
        assert_eq!(command(&[wait], 0), "lockstat --comm a 10");
        for reason in ["throttled", "preempted"] {
            let ready = [sample(4, reason, 9, false), sample(5, "socket", 8, false)];
            assert_eq!(command(&ready, 0), "runqlat -p 4 5 1");
        }
        let quotas = [UsedUp::default()];
        let args = Args::parse_from(["offcputime"]);
        let throttled = [sample(4, "throttled", 9, false)];
        let line = line_with(&args, &throttled, 0, &quotas);
        assert_eq!(line, "profile -p 4 10", "of a group that is no target");
    }
}
