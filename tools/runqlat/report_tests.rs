//! Reports, word for word.

use std::os::unix::process::parent_id;

use budget::{Estimate, Estimates};
use clap::Parser;
use hist::Histogram;
use hist::harvest::Group;

use session::quotas::UsedUp;

use crate::narrow::{COMMS, LONG_NS, MANY, PATHS, assert_narrow};
use crate::runqlat::args::Args;
use crate::runqlat::harvest::{Culprit, EXITED, Interval, OpenWait, Ready, WithoutQuota};
use crate::runqlat::report::write_human;

const MS: u64 = 1_000_000;

/// Ten waits of 80 ms, some of them for want of quota.
fn interval(without_ns: u64) -> Interval {
    let mut histogram = Histogram::default();
    (0..10).for_each(|_| histogram.record(80 * MS));
    let quota = UsedUp {
        path: "/cg/pod".into(),
        quota_ns: 20 * MS,
        period_ns: 100 * MS,
        periods: 24,
        used_up: 18,
        throttled_ns: 400 * MS,
        ..UsedUp::default()
    };
    let culprit = Culprit {
        victim: 0,
        tgid: parent_id(),
        tid: 1,
        comm: "neighbour".into(),
        caused_ns: 700 * MS,
        waits: 9,
    };
    Interval {
        end_ns: 1000 * MS,
        waits: vec![Group {
            id: bpf::runqlat::types::group_id::default(),
            comm: "".into(),
            histogram,
        }],
        culprits: vec![culprit],
        without_quota: WithoutQuota {
            waits: without_ns / (80 * MS),
            sum_ns: without_ns,
        },
        quotas: vec![quota],
        ..Interval::default()
    }
}

fn text(options: &str, interval: &Interval) -> String {
    let line = format!("runqlat {options}");
    let args = Args::parse_from(line.split_whitespace());
    let mut text = Vec::new();
    write_human(&args, interval, &mut text).expect("a vector takes everything");
    String::from_utf8(text).expect("text")
}

#[test]
fn a_quota_is_named_in_place_of_the_neighbour_where_it_was_the_cause() {
    let found = text("-p 7", &interval(400 * MS));
    let head = "threads waited for want of CPU quota of /cg/pod:
  20.0 ms per 100 ms, used up in 18 of 24 periods, 400 ms in all
10 waits for a CPU in 1.00 s, 800 ms of thread time; p50 80.0 ms p99 80.0 ms
     usecs ";
    assert!(found.starts_with(head), "{found}");
    let titles = "      TIME  SHARE     WAITS  RAN MEANWHILE\n";
    assert!(found.contains(titles), "{found}");
    let next = "profile -p 7 10   # what uses up the quota\n";
    assert!(found.contains(next), "{found}");
    let named = text("--comm web", &interval(400 * MS));
    let next = "profile --comm web 10   # what uses up the quota\n";
    assert!(named.contains(next), "{named}");
    let other = text("", &interval(320 * MS));
    assert!(other.contains("\nsome waits are for want of CPU quota of /cg/pod:\n"));
    let titles =
        "      TIME  SHARE     WAITS  WAITED BEHIND\n    700 ms    88%         9  neighbour ";
    assert!(other.contains(titles), "{other}");
    assert!(other.contains(";\n  88% behind neighbour "), "{other}");
    assert!(other.contains("# what neighbour runs\n"), "{other}");
    let none = text("-p 7", &interval(0));
    assert!(none.starts_with("10 waits for a CPU in"), "{none}");
}

#[test]
fn a_quota_whose_group_cannot_be_seen_is_said_to_be_one() {
    let mut interval = interval(400 * MS);
    interval.quotas.clear();
    let unseen = text("-p 7", &interval);
    let head = "threads waited for want of CPU quota:\n  5 waits, 400 ms of thread time\n";
    assert!(unseen.starts_with(head), "{unseen}");
    interval.has_nameless_quota = true;
    let found = text("-p 7", &interval);
    let head = "threads waited for want of CPU quota of a group whose name is not known:
  5 waits, 400 ms of thread time
10 waits for a CPU in 1.00 s, ";
    assert!(found.starts_with(head), "{found}");
    assert!(!found.contains("% behind"), "{found}");
    let next = "next: profile -p 7 10   # what uses up the quota\n";
    assert!(found.contains(next), "{found}");
}

#[test]
fn the_first_line_says_how_long_they_waited_and_behind_whom() {
    let mut interval = interval(0);
    interval.quotas.clear();
    let answer = |tgid| {
        format!(
            "10 waits for a CPU in 1.00 s, 800 ms of thread time; p50 80.0 ms p99 80.0 ms;\n  88% behind neighbour {tgid}\n     usecs "
        )
    };
    let found = text("", &interval);
    assert!(found.starts_with(&answer(parent_id())), "{found}");
    assert!(found.contains("# what neighbour runs\n"), "{found}");
    // Nobody can look at this program when it has ended.
    interval.culprits[0].tgid = std::process::id();
    let found = text("", &interval);
    assert!(found.starts_with(&answer(std::process::id())), "{found}");
    assert!(!found.contains("# what neighbour runs\n"), "{found}");
    interval.culprits[0].caused_ns = 40 * MS;
    let found = text("", &interval);
    assert!(!found.contains("% behind"), "{found}");
    // Whoever ran too long ago to be remembered has no name.
    interval.culprits[0].tid = 0;
    interval.culprits[0].caused_ns = 700 * MS;
    let found = text("", &interval);
    assert!(!found.contains("% behind"), "{found}");
    assert!(
        found.contains("pressure 5 1   # what is short\n"),
        "{found}"
    );
}

#[test]
fn where_nobody_waited_the_next_command_looks_at_other_waits() {
    let own = std::process::id();
    let interval = Interval {
        end_ns: 3000 * MS,
        ..Interval::default()
    };
    let found = text("", &interval);
    assert!(
        found.starts_with("no waits for a CPU in 3.00 s\n\nnext: "),
        "{found}"
    );
    assert!(
        found.contains("pressure 5 1   # what else is short\n"),
        "{found}"
    );
    let found = text(&format!("-p {own}"), &interval);
    let next = format!("why -p {own} 10   # what costs it its time instead\n");
    assert!(found.contains(&next), "{found}");
}

/// Threads that were ready and never ran have waited, though no wait ended.
#[test]
fn whoever_never_ran_is_told_from_who_did_not_wait() {
    let own = std::process::id();
    let ready = |tid, without_quota| Ready {
        tid,
        comm: "app".into(),
        without_quota,
    };
    let mut interval = Interval {
        end_ns: 300 * MS,
        ready: vec![ready(own, true)],
        ..Interval::default()
    };
    let found = text(&format!("-p {own}"), &interval);
    let head = format!(
        "no waits for a CPU ended in 300 ms;
  1 thread ready throughout never ran, for want of CPU quota
never ran: app {own}

next: "
    );
    assert!(found.starts_with(&head), "{found}");
    let next = format!("profile -p {own} 10   # what uses up the quota\n");
    assert!(found.contains(&next), "{found}");
    interval.ready.push(ready(8, false));
    let found = text("", &interval);
    let part = "2 threads ready throughout never ran, 1 for want of CPU quota\n";
    assert!(found.contains(part), "{found}");
    interval.ready.remove(0);
    let found = text(&format!("-p {own}"), &interval);
    let part = "1 thread ready throughout never ran\n";
    assert!(found.contains(part), "{found}");
    assert!(
        found.contains("pressure 5 1   # what is short\n"),
        "{found}"
    );
}

#[test]
fn estimates_are_said_to_be_some_and_nothing_is_claimed_unseen() {
    let mut interval = interval(0);
    interval.quotas.clear();
    interval.estimates = Some(Estimates {
        looked: 0.25,
        ..Estimates::default()
    });
    let found = text("", &interval);
    assert!(
        found.starts_with("about 10 waits for a CPU in 1.00 s, "),
        "{found}"
    );
    interval.waits.clear();
    interval.culprits.clear();
    let found = text("", &interval);
    assert!(
        found.starts_with("no waits seen for a CPU in 1.00 s\n"),
        "{found}"
    );
    interval.estimates = Some(Estimates::default());
    let found = text("", &interval);
    assert!(
        found.starts_with("not traced: waits are not known"),
        "{found}"
    );
    assert!(
        found.contains("pressure 5 1   # what is short\n"),
        "{found}"
    );
}

#[test]
fn a_process_is_waited_behind_by_all_its_threads_together() {
    let mut interval = interval(0);
    interval.quotas.clear();
    let server = parent_id();
    let task = |tgid, tid, caused_ns| Culprit {
        victim: 0,
        tgid,
        tid,
        comm: match (tgid, tid) {
            (1, _) => "ab",
            // A thread that has ended, and whose name nobody knows.
            (_, tid) if tid == server + 1 => EXITED,
            _ => "server",
        }
        .into(),
        caused_ns,
        waits: 1,
    };
    let threads = (1..6).map(|at| task(server, server + at, 100 * MS));
    let neighbour = task(1, 1, 160 * MS);
    interval.culprits = std::iter::once(neighbour).chain(threads).collect();
    let found = text("", &interval);
    let answer = format!(";\n  62% behind 5 threads of server {server}\n");
    assert!(found.contains(&answer), "{found}");
    let next = format!("profile -p {server} 10   # what server runs\n");
    assert!(found.contains(&next), "{found}");
    // The table tells the threads apart.
    let thread = server + 2;
    let row = format!("    100 ms    12%         1  server (pid {server}, tid {thread})\n");
    assert!(found.contains(&row), "{found}");
    // Tasks before the last eight slices may have been any of them.
    interval.culprits.insert(0, task(0, 0, 140 * MS));
    let found = text("", &interval);
    let answer = format!(";\n  at least 62% behind 5 threads of server {server}\n");
    assert!(found.contains(&answer), "{found}");
}

#[test]
fn no_line_is_too_long_whatever_the_names_are() {
    for (comm, path) in COMMS.iter().flat_map(|comm| PATHS.map(|path| (comm, path))) {
        let mut interval = interval(LONG_NS);
        let waits = &mut interval.waits[0];
        waits.comm = (*comm).into();
        waits.id.id = 4_194_304;
        waits.histogram.add_exact(MANY, LONG_NS, LONG_NS);
        waits.histogram.add(700, MANY);
        let culprits = (0..99).map(|_| Culprit {
            victim: 0,
            tgid: 4_194_304,
            tid: 4_194_303,
            comm: (*comm).into(),
            caused_ns: LONG_NS,
            waits: MANY,
        });
        interval.culprits = culprits.collect();
        let open = (0..99).map(|_| OpenWait {
            comm: (*comm).into(),
            tid: 4_194_304,
            wait_ns: LONG_NS,
        });
        interval.open = open.collect();
        interval.quotas[0].path = path.into();
        interval.quotas[0].quota_ns = LONG_NS;
        let estimate = Estimate {
            total: 0.0,
            margin: MANY as f64,
            ..Estimate::default()
        };
        interval.estimates = Some(Estimates {
            count: estimate,
            time: estimate,
            looked: 0.123,
        });
        for options in ["", "-P", "-L", "-m", "-n", "--by-cgroup", "-p 7"] {
            assert_narrow(&text(options, &interval));
        }
    }
}
