//! Reasons of the waits of programs that none of us wrote: stress-ng's.

use crate::prelude::*;

/// Those that mostly wait, each for something else.
const STRESSORS: [&str; 28] = [
    "affinity",
    "aio",
    "epoll",
    "eventfd",
    "fifo",
    "flock",
    "futex",
    "hdd",
    "inotify",
    "lockf",
    "loop",
    "mq",
    "msg",
    "mutex",
    "pipe",
    "poll",
    "ptrace",
    "pty",
    "sem",
    "sem-sysv",
    "sigsuspend",
    "sock",
    "switch",
    "timerfd",
    "udp",
    "userfaultfd",
    "vfork",
    "wait",
];

/// "other" is less than a twentieth of what is not idle.
#[test]
#[ignore = "statistical: make truth"]
fn hardly_a_wait_of_stress_ngs_has_no_reason() {
    let _machine = Machine::alone();
    for stressor in STRESSORS {
        let command = format!("-j -- stress-ng --{stressor} 1 -t 1");
        let report = Tool::run("offcputime", command).last_report();
        let (mut all_ns, mut other_ns, mut idle_ns) = (0, 0, 0);
        for stack in list(&report, "stacks") {
            let ns: u64 = list(stack, "values").iter().filter_map(Value::as_u64).sum();
            match (&stack["idle"], &stack["reason"]) {
                (idle, _) if *idle == true => idle_ns += ns,
                (_, reason) => {
                    all_ns += ns;
                    other_ns += if reason == "other" { ns } else { 0 };
                }
            }
        }
        assert!(all_ns + idle_ns > 50_000_000, "{stressor} did not wait");
        let what = format!("{stressor}: ns without a reason");
        crate::bound::assert_within(what, other_ns, ..=all_ns / 20, all_ns);
    }
}
