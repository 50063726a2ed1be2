//! The report of an interval made by hand.

use super::*;
use crate::pressure::psi::{Lost, Share};
use crate::pressure::utilisation::{DiskUse, Use};

const SECOND_NS: u64 = 1_000_000_000;

fn lost(some_ns: u64, full_ns: u64) -> Option<Lost> {
    let share = |lost_ns| {
        Some(Share {
            lost_ns,
            elapsed_ns: 2 * SECOND_NS,
            avg10: 12.34,
        })
    };
    Some(Lost {
        some: share(some_ns),
        full: share(full_ns),
    })
}

fn example() -> Interval {
    let party = |comm: &str, tgid, lost_ns, caused_ns| Party {
        comm: comm.into(),
        tgid,
        processes: 3,
        threads: 4,
        lost_ns: [lost_ns, 0, 0],
        caused_ns,
        ..Party::default()
    };
    let parties = vec![
        party("db", Some(7), SECOND_NS, 500_000_000),
        party("evil\x1b[31m", None, 2 * SECOND_NS, 0),
    ];
    Interval {
        start_ns: SECOND_NS,
        end_ns: 3 * SECOND_NS,
        usage: Use {
            cpus: 2,
            busy_percent: 99.6,
            memory_total_bytes: 1 << 30,
            memory_used_percent: 50.0,
            oom_kills: Some(1),
            disks: vec![DiskUse {
                name: "sda".into(),
                busy_percent: 5.0,
                read_bytes: 0,
                written_bytes: 1,
                queue: 0.25,
            }],
            ..Use::default()
        },
        psi: [lost(SECOND_NS, 0), lost(10_000_000, 0), None, None],
        task_ns: [3 * SECOND_NS, 20_000_000, 0],
        throttled_ns: 750_000_000,
        victims: parties.clone(),
        culprits: parties,
        ..Interval::default()
    }
}

#[test]
fn an_interval_reads_like_this() {
    let mut text = Vec::new();
    let look = Look {
        legend: true,
        ..Look::default()
    };
    write(&example(), look, &mut text).expect("a vector takes everything");
    let text = String::from_utf8(text).expect("text");
    // The first line begins with the local time.
    let (first, rest) = text.split_once('\n').expect("lines");
    assert_eq!(&first[8..], "  2.00 s: short of CPU (50%)");
    let expected = "        UTILISATION                       SOME    FULL   AVG10   ERRORS
CPU     100% of 2 CPUs                   50.0%       -   12.3%   -
memory  50% of 1.00 GiB                   0.5%    0.0%   12.3%   1 OOM kill
disk    5% of sda, queue 0.2                 -       -       -   ?
SOME: part of the time a task waited; FULL: all did; AVG10: SOME over about 10 s

CPU: 3.00 s lost waiting for a CPU, 1.50 tasks at a time (3.0 x PSI 1.00 s)
    LOST  VICTIM                          CAUSED  CULPRIT (ran meanwhile)
  2.00 s  evil\\x1b[31m, 3 ended           750 ms  [CPU quota of a cgroup]
  1.00 s  db 7, 4 threads                 500 ms  db 7, 4 threads
    next: profile -p 7 10                      # where CPU time goes

";
    assert_eq!(rest, expected);
}

#[test]
fn nothing_short_is_said_in_as_many_words() {
    let calm = Interval {
        end_ns: SECOND_NS,
        ..Interval::default()
    };
    let mut text = Vec::new();
    write(&calm, Look::default(), &mut text).expect("a vector takes everything");
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.ends_with("1.00 s: nothing is short"))
    );
    assert_eq!(text.lines().count(), 6, "{text}");
}

#[test]
fn without_psi_waiting_tasks_rank() {
    let interval = Interval {
        psi: [None; 4],
        ..example()
    };
    let mut text = Vec::new();
    write(&interval, Look::default(), &mut text).expect("a vector takes everything");
    let text = String::from_utf8(text).expect("text");
    let line = |start: &str| {
        let mut lines = text.lines().filter(|line| line.contains(start));
        lines
            .next()
            .unwrap_or_else(|| panic!("no {start} in {text}"))
    };
    assert_eq!(
        &line("short of")[8..],
        "  2.00 s: short of CPU (1.50 tasks waiting), memory (0.01 tasks waiting)"
    );
    assert_eq!(
        line("100% of 2 CPUs"),
        "CPU     100% of 2 CPUs                       -       -       -   -"
    );
    assert_eq!(
        line("CPU: "),
        "CPU: 3.00 s lost waiting for a CPU, 1.50 tasks at a time"
    );
}
