//! The report of an interval made by hand.

use std::path::PathBuf;

use bpf::pressure::types::account;
use session::quotas::UsedUp;

use super::*;
use crate::narrow::{COMMS, LONG_NS, MANY, PATHS, assert_narrow};
use crate::pressure::cgroups::CgroupPressure;
use crate::pressure::interval::Quota;
use crate::pressure::parties::Party;
use crate::pressure::psi::{Lost, Share};
use host::utilisation::{DiskUse, Use};

#[path = "report_waits_tests.rs"]
mod of_waits;
use of_waits::with_waits;

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
        account: account {
            lost_ns: [lost_ns, 0, 0],
            caused_ns,
            ..account::default()
        },
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

fn text(interval: &Interval, look: Look) -> String {
    let mut text = Vec::new();
    write(interval, look, &mut text).expect("a vector takes everything");
    String::from_utf8(text).expect("text")
}

#[test]
fn an_interval_reads_like_this() {
    let look = Look {
        legend: true,
        ..Look::default()
    };
    let text = text(&example(), look);
    // The first line begins with the local time.
    let (first, rest) = text.split_once('\n').expect("lines");
    assert_eq!(&first[8..], "  2.00 s: short of CPU (50% of the time)");
    let expected = "        UTILISATION                       SOME    FULL   AVG10   ERRORS
CPU     100% of 2 CPUs                   50.0%       -   12.3%   -
memory  50% of 1.00 GiB                   0.5%    0.0%   12.3%   1 OOM kill
disk    sda 5% busy, 0.2 in flight           -       -       -   ?
SOME: share of the time that a task waited; FULL: all did; AVG10: SOME over 10 s

CPU: threads lost 3.00 s waiting for a CPU, 1.50 at a time (PSI 1.00 s)
      LOST  VICTIMS
    2.00 s  evil\\x1b[31m, 3 ended
    1.00 s  db 7, 4 threads
    CAUSED  CULPRITS (ran while others waited)
    750 ms  [CPU quota of a cgroup]
    500 ms  db 7, 4 threads
    next: profile -p 7 10                      # where CPU time goes

";
    assert_eq!(rest, expected);
}

#[test]
fn nothing_short_is_said_in_as_many_words_and_what_to_ask() {
    let calm = Interval {
        end_ns: SECOND_NS,
        ..Interval::default()
    };
    let text = text(&calm, Look::default());
    let first = text.lines().next().expect("a verdict");
    assert!(first.ends_with("1.00 s: nothing is short"), "{first}");
    assert!(text.contains("\n\n    next: offcputime 10 "), "{text}");
    let asked = Interval {
        asked: Some(7),
        ..calm
    };
    let text = self::text(&asked, Look::default());
    assert!(text.contains("    next: offcputime -p 7 10 "), "{text}");
}

fn quota(path: PathBuf) -> Quota {
    Quota {
        group: UsedUp {
            path,
            quota_ns: 20_000_000,
            period_ns: 100_000_000,
            periods: 24,
            used_up: 18,
            ..UsedUp::default()
        },
        victim: Some(7),
        most_ns: 0,
    }
}

#[test]
fn a_quota_is_named_in_place_of_neighbours() {
    let root = tempfile::tempdir().expect("a directory");
    let mut interval = Interval {
        quotas: vec![quota(root.path().join("pod"))],
        ..example()
    };
    let text = |interval: &Interval| self::text(interval, Look::default());
    // A quarter of what was lost is no reason for the rest.
    let other = text(&interval);
    assert!(
        other.contains(": short of CPU (50% of the time)"),
        "{other}"
    );
    interval.throttled_ns = interval.task_ns[0] / 2;
    let found = text(&interval);
    assert!(
        found.contains(": short of CPU quota of pod (50% of the time)"),
        "{found}"
    );
    let path = root.path().display();
    let whose = format!("\n  1.50 s of it for want of CPU quota of {path}/pod:\n");
    for part in [
        &whose,
        "\n  20.0 ms per 100 ms, used up in 18 of 24 periods\n",
        "\n    1.50 s  [CPU quota of pod]\n",
        "next: profile -p 7 10 ",
        "# what uses up the quota\n",
    ] {
        assert!(found.contains(part), "no {part}: {found}");
    }
    assert!(!found.contains("runqlat"), "{found}");
    interval.is_filtered = true;
    let filtered = text(&interval);
    assert!(
        filtered.contains("\n  for want of CPU quota of "),
        "{filtered}"
    );
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
        "  2.00 s: short of CPU (1.50 threads waiting),"
    );
    assert_eq!(line("memory ("), "  memory (0.01 threads waiting)");
    assert_eq!(
        line("100% of 2 CPUs"),
        "CPU     100% of 2 CPUs                       -       -       -   -"
    );
    assert_eq!(
        line("CPU: "),
        "CPU: threads lost 3.00 s waiting for a CPU, 1.50 at a time"
    );
}

#[test]
fn whoever_submits_others_data_is_told_why_there_are_no_bytes() {
    let mut interval = example();
    interval.psi[2] = lost(SECOND_NS, SECOND_NS);
    for party in &mut interval.culprits {
        party.comm = "kworker/u128:17".into();
        party.tgid = Some(4_194_304);
        party.account.ios = MANY;
    }
    let text = text(&interval, Look::default());
    let row = "0 B  kworker/u128:17 4194304, 12,345,678 I/Os (flush or others' data)";
    assert!(text.contains(row), "{text}");
}

#[test]
fn no_line_is_too_long_whatever_the_names_are() {
    let disks = ["nvme0n1", &"\u{1b}".repeat(31)];
    for (comm, (path, disk)) in COMMS.iter().flat_map(|comm| {
        let both = PATHS.iter().zip(disks);
        both.map(move |both| (comm, both))
    }) {
        let mut interval = with_waits(example());
        interval.psi = [lost(SECOND_NS, SECOND_NS); 4];
        interval.task_ns = [LONG_NS; 3];
        interval.throttled_ns = LONG_NS;
        interval.cgroup = Some(path.into());
        interval.quotas = [0; 9].map(|_| quota(path.into())).into();
        interval.usage.disks[0].name = disk.into();
        interval.usage.disks[0].busy_percent = 100.0;
        (interval.usage.steal_percent, interval.usage.cpus) = (99.0, 1_024);
        interval.usage.swapped_bytes = 1_000 << 20;
        interval.usage.oom_kills = Some(MANY);
        interval.block_errors = Some(1_234);
        for row in &mut interval.waits.rows {
            (row.comm, row.at_a_time) = ((*comm).into(), 1_234.5);
        }
        let party = |tgid| Party {
            comm: (*comm).into(),
            tgid,
            processes: MANY,
            threads: MANY,
            account: account {
                lost_ns: [LONG_NS; 3],
                caused_ns: LONG_NS,
                ios: MANY,
                read_bytes: 1 << 50,
                written_bytes: 1 << 50,
                faults: MANY,
            },
            open_ns: [LONG_NS; 3],
            ..Party::default()
        };
        interval.victims = (0..9)
            .map(|at| party((at % 2 == 0).then_some(4_194_304)))
            .collect();
        interval.culprits = interval.victims.clone();
        interval.cgroups = vec![CgroupPressure {
            path: path.into(),
            lost: interval.psi,
        }];
        let look = Look {
            legend: true,
            ..Look::default()
        };
        assert_narrow(&text(&interval, look));
    }
}
