use budget::cost::Cost;
use clap::Parser;
use profile::losses::Losses;
use serde_json::{Value, json};

use crate::narrow::{COMMS, assert_narrow};
use crate::syscount::answer;
use crate::syscount::args::Args;
use crate::syscount::harvest::Row;
use crate::syscount::interval::Interval;
use crate::syscount::report::write;

fn row(comm: &str, id: u32, call: libc::c_long, latencies: &[u64]) -> Row {
    let mut row = Row {
        id,
        comm: comm.into(),
        call: u32::try_from(call).unwrap(),
        ..Row::default()
    };
    for latency in latencies {
        row.returned.record(*latency);
    }
    row.time_ns = row.returned.sum();
    row
}

/// Stands for a machine on which process 66 has ended.
fn is_there(id: u32) -> bool {
    id != 0 && id != 66
}

fn written(flags: &[&str]) -> String {
    let mut opens = row("sh", 7, libc::SYS_openat, &[2_000; 3]);
    opens.errors = [(2, 1), (13, 2)].into();
    let mut sleeps = row("redis-server", 9, libc::SYS_futex, &[]);
    (sleeps.time_ns, sleeps.open) = (1_000_000_000, 1);
    let mut naps = row("sh", 7, libc::SYS_nanosleep, &[3_000_000]);
    naps.interrupted = 1;
    let mut interval = Interval {
        start_ns: 0,
        end_ns: 1_000_000_000,
        rows: vec![
            opens,
            naps,
            sleeps,
            row("a\nb", 123, libc::SYS_fsync, &[10_000_000; 4_000]),
        ],
        under_way_at_start: 0,
        losses: Losses::default(),
        cost: Cost::default(),
    };
    let args = Args::parse_from([&["syscount"], flags].concat());
    // The BPF side leaves the others out.
    let is_wanted = |row: &Row| !args.only_failures() || row.failed() > 0;
    interval.rows.retain(is_wanted);
    let mut out = Vec::new();
    write(&args, interval, is_there, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn work_comes_first_and_waits_stand_apart() {
    let expected = r"fsync of a\x0ab 123 took 40.0 thread-seconds in 1.00 s
  100.0% of 40.0 thread-seconds in calls that work;
    1.00 thread-seconds in calls that wait;
    4,004 calls returned, 1 open, 3 failed

   TIME   CALLS     P99 OPEN  CALL            BY                ERRORS
 40.0 s   4,000 10.0 ms       fsync           a\x0ab 123
6.00 us       3 2.00 us       openat          sh 7              EACCES 2 …

waits for events, timers, children, threads and peers
   TIME   CALLS     P99 OPEN  CALL            BY                ERRORS
 1.00 s       0       -    1  futex           redis-server 9
3.00 ms       1 2.95 ms       nanosleep       sh 7              interrupted 1

next: offcputime -p 123 10   # what fsync does

";
    assert_eq!(written(&[]), expected);
    assert_narrow(expected);
}

#[test]
fn who_fails_most_comes_first_where_failures_are_asked_for() {
    let text = written(&["-x"]);
    let answer = "openat of sh 7 failed 3 times in 1.00 s\n  100.0% of 3 calls that failed; 6.00 us of thread time in them, waits included\n";
    assert!(text.starts_with(answer), "{text}");
    assert!(
        text.ends_with("\nnext: syscount -e EACCES 10 1   # which calls fail so, and whose\n\n"),
        "{text}"
    );
    let text = written(&["-e", "ENOENT", "-p", "7"]);
    assert!(
        text.contains("\nnext: syscount -p 7 10 1   # all calls, "),
        "{text}"
    );
    let text = written(&["--by-call"]);
    let titles = "   TIME   CALLS     P99 OPEN  CALL            ERRORS\n";
    assert!(text.contains(titles), "{text}");
    let text = written(&["-T", "1"]);
    let rest = "6.00 us       3               1 more row\n";
    assert!(text.contains(rest), "{text}");
}

#[test]
fn errors_are_cut_between_them_with_one_mark() {
    let all = "EINVAL 549,842, EPERM 3";
    assert_eq!(super::report::fit(all, 23), all);
    assert_eq!(super::report::fit(all, 17), "EINVAL 549,842 …");
    assert_eq!(super::report::fit(all, 12), "EINVAL …");
    assert_eq!(super::report::fit("interrupted 12", 12), "interrupted");
}

#[test]
fn there_is_always_a_next_command() {
    let next = |flags: &str, id, call, latency| {
        let args = Args::parse_from(format!("syscount {flags}").split_whitespace());
        let row = row("sh", id, call, &[latency; 100]);
        let line = answer::next(&args, &[&row], 1_000_000_000, is_there);
        line.split("   #").next().unwrap().to_owned()
    };
    let short = (libc::SYS_getppid, 1_000_000);
    assert_eq!(
        next("", 7, libc::SYS_fsync, 1_000_000),
        "next: offcputime -p 7 10"
    );
    assert_eq!(
        next("-L", 7, libc::SYS_read, 1_000_000),
        "next: offcputime -t 7 10"
    );
    let by_name = next("--by-name", 0, libc::SYS_read, 1_000_000);
    assert_eq!(by_name, "next: offcputime --comm sh 10");
    assert_eq!(
        next("", 7, short.0, 100),
        "next: pressure 5 1",
        "too little"
    );
    assert_eq!(next("-p 7", 7, short.0, 100), "next: offcputime -p 7 10");
    let args = Args::parse_from(["syscount"]);
    let many = row("sh", 7, short.0, &[10_000; 2_000]);
    let line = answer::next(&args, &[&many], 1_000_000_000, is_there);
    assert!(line.starts_with("next: profile -p 7 10 "), "{line}");
    assert!(answer::next(&args, &[], 1, is_there).starts_with("next: pressure"));
    assert_eq!(
        next("--cgroup /a", 7, short.0, 100),
        "next: offcputime --cgroup /a 10"
    );
}

#[test]
fn no_next_command_names_what_has_ended() {
    let next = |flags: &str, rows: &[&Row]| {
        let args = Args::parse_from(format!("syscount {flags}").split_whitespace());
        let line = answer::next(&args, rows, 1_000_000_000, is_there);
        line.split("   #").next().unwrap().to_owned()
    };
    let ended = row("cc1", 66, libc::SYS_fsync, &[1_000_000; 100]);
    let large = row("ld", 7, libc::SYS_fsync, &[1_000_000; 10]);
    let small = row("ld", 7, libc::SYS_fsync, &[1_000_000; 9]);
    let hostile = row("a;b", 66, libc::SYS_fsync, &[1_000_000; 100]);
    assert_eq!(next("", &[&ended, &large]), "next: offcputime -p 7 10");
    assert_eq!(
        next("-L", &[&ended, &small]),
        "next: offcputime --comm cc1 10"
    );
    assert_eq!(next("", &[&hostile]), "next: offcputime 10");
    assert_eq!(next("-p 66,7", &[&hostile]), "next: offcputime -p 7 10");
    assert_eq!(next("-x -p 66", &[]), "next: pressure 5 1");
    assert_eq!(
        next("--comm ld*", &[&hostile, &large]),
        "next: offcputime -p 7 10",
        "a pattern is no word for a shell"
    );
    // Many small rows are as much as a large one.
    let tiny = row("sh", 7, libc::SYS_fsync, &[6_000_000]);
    assert_eq!(next("", &[&tiny]), "next: pressure 5 1");
    assert_eq!(next("", &[&tiny, &tiny]), "next: offcputime -p 7 10");
}

#[test]
fn processes_of_one_name_that_have_ended_are_one_row() {
    let rows = vec![
        row("make", 7, libc::SYS_clone3, &[50_000_000]),
        row("cc1", 66, libc::SYS_execve, &[40_000_000]),
        row("cc1", 67, libc::SYS_execve, &[30_000_000]),
        row("cc1", 8, libc::SYS_execve, &[1_000_000]),
        row("ld", 66, libc::SYS_execve, &[2_000_000]),
    ];
    let report = |flags: &str| {
        let args = Args::parse_from(format!("syscount {flags}").split_whitespace());
        let interval = Interval {
            start_ns: 0,
            end_ns: 1_000_000_000,
            rows: rows.clone(),
            under_way_at_start: 0,
            losses: Losses::default(),
            cost: Cost::default(),
        };
        let mut out = Vec::new();
        let is_there = |id: u32| id == 8;
        write(&args, interval, is_there, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let text = report("");
    let answer = "execve of cc1, 2 ended took 70.0 ms of thread time in 1.00 s\n  56.9% of 123 ms ";
    assert!(text.starts_with(answer), "{text}");
    let rows = "70.0 ms       2 40.0 ms       execve          cc1, 2 ended
50.0 ms       1 49.3 ms       clone3          make 7
2.00 ms       1 2.00 ms       execve          ld 66
1.00 ms       1  999 us       execve          cc1 8
";
    assert!(text.contains(rows), "{text}");
    let command = report("-- make");
    let next = "\nnext: offcputime -- make   # what execve does\n";
    assert!(command.contains(next), "{command}");
    let threads = report("-L");
    assert!(threads.starts_with("clone3 of make 7 took "), "{threads}");
    let all: Value = serde_json::from_str(&report("-j")).unwrap();
    assert_eq!(all["groups"].as_array().map(Vec::len), Some(5));
}

#[test]
fn no_line_is_too_long_whatever_the_names_are() {
    // The longest name in the tables: sched_rr_get_interval_time64.
    let long = 423 | 1 << 31;
    for (flags, by) in [("", 4_194_304), ("-x", 4_194_304), ("--by-call", 0)] {
        let args = Args::parse_from(format!("syscount {flags}").split_whitespace());
        let rows = COMMS.map(|name| {
            let mut row = row(name, by, 0, &[9_000_000; 9]);
            (row.call, row.time_ns) = (long, 123_456_700_000_000);
            row.open = 1_000;
            row.errors = [(2, 1_234_567), (13, 2)].into();
            row
        });
        let interval = Interval {
            start_ns: 0,
            end_ns: 999_000_000,
            rows: rows.to_vec(),
            under_way_at_start: 0,
            losses: Losses::default(),
            cost: Cost::default(),
        };
        let mut out = Vec::new();
        write(&args, interval, is_there, &mut out).unwrap();
        assert_narrow(&String::from_utf8(out).unwrap());
    }
}

#[test]
fn json_has_the_names_and_all_rows() {
    let text = written(&["-j", "-T", "1"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let groups = report["groups"].as_array().unwrap();
    let calls: Vec<&str> = groups
        .iter()
        .filter_map(|row| row["call"].as_str())
        .collect();
    assert_eq!(calls, ["fsync", "futex", "nanosleep", "openat"]);
    assert_eq!(groups[3]["errors"], json!({"ENOENT": 1, "EACCES": 2}));
    assert_eq!(groups[3]["failed"], 3);
    assert_eq!(groups[1]["is_wait"], true);
}
