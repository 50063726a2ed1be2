//! The next question about what threads waited for.

use profile::model::Profile;
use session::chosen;
use session::next::{Step, is_plain};

use crate::offcputime::answer::Waits;
use crate::offcputime::args::Args;

/// A line for the command that looks at the reason with most of the time of threads that were not idle; `oncpu_ns` of all of them is
/// looked at if it is more.
pub(crate) fn next(
    args: &Args,
    profile: &Profile,
    oncpu_ns: u64,
    is_there: fn(u32) -> bool,
) -> Option<String> {
    let waits = Waits::of(profile);
    let (reason, ns) = waits.reason().unwrap_or_default();
    if oncpu_ns > ns && args.sees_all_waits() {
        let target = chosen::options(&args.targets, is_there)?;
        return Some(Step::CpuTime.line(&target));
    }
    let step = match reason {
        "" => return None,
        "block-io" if args.targets.command.is_empty() => return Some(Step::Disks.line("")),
        "block-io" => Step::Disks,
        "throttled" => return Some(Step::Groups.line("")),
        "futex" | "lock" => Step::Locks,
        "page-fault" => Step::MajorFaults,
        "preempted" => Step::RunQueue,
        _ if args.waker => return None,
        _ => Step::Wakers,
    };
    let pid = waits.process(reason)?;
    if is_there(pid) {
        return Some(step.line(&format!("-p {pid}")));
    }
    if !args.targets.command.is_empty() {
        return Some(step.line(&chosen::options(&args.targets, is_there)?));
    }
    // Others of its name may come where a process has ended.
    let comm = waits.name(reason, pid)?;
    is_plain(comm).then(|| step.line(&format!("--comm {comm}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use profile::model::{Sample, Task};

    use super::*;

    fn sample(tgid: u32, reason: &'static str, ns: u64, idle: bool) -> Sample {
        Sample {
            task: Task {
                comm: "a".into(),
                tgid,
                tid: tgid,
            },
            reason: Some(reason),
            user: [].into(),
            user_end: None,
            kernel: [].into(),
            waker: None,
            idle,
            count: 1,
            values: vec![ns],
        }
    }

    fn command(samples: &[Sample], oncpu_ns: u64) -> Option<String> {
        line(&Args::parse_from(["offcputime"]), samples, oncpu_ns)
    }

    fn line(args: &Args, samples: &[Sample], oncpu_ns: u64) -> Option<String> {
        let profile = Profile {
            tool: "offcputime",
            values: Vec::new(),
            samples: samples.to_vec(),
            duration_ns: 1,
        };
        let line = next(args, &profile, oncpu_ns, |pid| pid != 0)?;
        let command = line.strip_prefix("next: ").expect("a command");
        Some(command.split("   #").next().expect("its end").to_owned())
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
        assert_eq!(command(&samples, 10).as_deref(), Some("lockstat -p 4 10"));
        assert_eq!(command(&samples, 101).as_deref(), Some("profile 10"));
        assert_eq!(
            command(&samples[4..], 10).as_deref(),
            Some("biolatency -P 5 1")
        );
        let socket = [sample(6, "socket", 5, false)];
        assert_eq!(
            command(&socket, 0).as_deref(),
            Some("offcputime --waker -p 6 10")
        );
        let ended = [sample(0, "socket", 5, false)];
        assert_eq!(
            command(&ended, 0).as_deref(),
            Some("offcputime --waker --comm a 10")
        );
        let args = Args::parse_from(["offcputime", "--", "make", "-j4"]);
        for (reason, command) in [
            ("futex", "lockstat -- make -j4"),
            ("block-io", "biolatency -P -- make -j4"),
        ] {
            let line = line(&args, &[sample(0, reason, 5, false)], 0);
            assert_eq!(line.as_deref(), Some(command));
        }
        // One that has ended has its own name, whatever others' most is.
        let mut others = vec![sample(0, "socket", 50, false)];
        for tgid in [3, 4] {
            let mut other = sample(tgid, "socket", 40, false);
            other.task.comm = "b".into();
            others.push(other);
        }
        let wakers = "offcputime --waker --comm a 10";
        assert_eq!(command(&others, 0).as_deref(), Some(wakers));
        // Waits that were left out may be longer than the time on CPUs.
        let args = Args::parse_from(["offcputime", "--state", "2"]);
        let one = [sample(5, "block-io", 70, false)];
        assert_eq!(line(&args, &one, 101).as_deref(), Some("biolatency -P 5 1"));
        // All threads of a process, whatever their names.
        let mut threads = vec![sample(8, "futex", 40, false)];
        for name in ["one", "two"] {
            let mut thread = sample(7, "futex", 30, false);
            thread.task.comm = name.into();
            threads.push(thread);
        }
        assert_eq!(command(&threads, 0).as_deref(), Some("lockstat -p 7 10"));
        // Nobody waits for another.
        assert_eq!(command(&samples[..2], 1000).as_deref(), Some("profile 10"));
        assert_eq!(command(&samples[..2], 0), None);
    }
}
