//! The next question about what threads waited for.

use std::collections::HashMap;

use profile::model::Profile;

use crate::offcputime::args::Args;

/// A command that looks at the reason with most of the time of threads that were not idle, and what it answers; `oncpu_ns` of
/// all of them is looked at if it is more.
pub(crate) fn next(
    args: &Args,
    profile: &Profile,
    oncpu_ns: u64,
    is_there: fn(u32) -> bool,
) -> Option<(String, &'static str)> {
    let mut by_reason: HashMap<&str, u64> = HashMap::new();
    let mut by_process: HashMap<(&str, u32), u64> = HashMap::new();
    for sample in profile.samples.iter().filter(|sample| !sample.idle) {
        let reason = sample.reason.unwrap_or("other");
        *by_reason.entry(reason).or_default() += sample.total();
        *by_process.entry((reason, sample.task.tgid)).or_default() += sample.total();
    }
    // A thread that sleeps for a time of its own choice waits for nobody.
    by_reason.remove("sleep");
    let (reason, ns) = by_reason
        .into_iter()
        .max_by_key(|(reason, ns)| (*ns, *reason))?;
    if oncpu_ns > ns {
        let command = match args.targets.pids[..] {
            [pid] if is_there(pid) => format!("profile -p {pid} 10"),
            [] if args.targets.are_all() => "profile 10".into(),
            _ => return None,
        };
        return Some((command, "where CPU time goes"));
    }
    match reason {
        "block-io" => return Some(("biolatency -P 5 1".into(), "how long I/O takes, and whose")),
        "throttled" => {
            return Some((
                "pressure --cgroups 5 1".into(),
                "which group has too little CPU",
            ));
        }
        _ => {}
    }
    let of_reason = by_process
        .into_iter()
        .filter(|((of, pid), _)| *of == reason && is_there(*pid));
    let ((_, pid), _) = of_reason.max_by_key(|((_, pid), ns)| (*ns, *pid))?;
    let of_process = |tool: &str, rest: &str| format!("{tool} -p {pid} {rest}");
    Some(match reason {
        "futex" | "lock" => (
            of_process("lockstat", "10"),
            "which locks, and who holds them",
        ),
        "page-fault" => (
            of_process("profile -e major-faults", "10"),
            "what touches memory that is on disk",
        ),
        "preempted" => (of_process("runqlat", "5 1"), "how long, and behind whom"),
        _ if args.waker => return None,
        _ => (
            of_process("offcputime --waker", "10"),
            "who ends these waits",
        ),
    })
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
        let profile = Profile {
            tool: "offcputime",
            values: Vec::new(),
            samples: samples.to_vec(),
            duration_ns: 1,
        };
        let args = Args::parse_from(["offcputime"]);
        next(&args, &profile, oncpu_ns, |pid| pid != 0).map(|(command, _)| command)
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
        assert_eq!(command(&samples[..2], 1000), None);
    }
}
