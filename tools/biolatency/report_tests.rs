//! The report of an interval made by hand.

use clap::Parser;
use hist::Histogram;

use super::*;
use crate::biolatency::args::Phase;
use crate::biolatency::disk_use::{Failures, Whole};
use crate::biolatency::latencies::OfClass;
use crate::biolatency::latencies::tests::of_group;
use crate::narrow::{COMMS, LONG_NS, MANY, PATHS, assert_narrow};

const SECOND_NS: u64 = 1_000_000_000;

fn histogram(ns: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    ns.iter().for_each(|ns| histogram.record(*ns));
    histogram
}

fn disk() -> DiskUse {
    let mut disk = DiskUse {
        name: "sda".into(),
        busy_ns: SECOND_NS,
        partial: 1,
        requeued: 28,
        failures: vec![Failures {
            class: READ,
            status: 10,
            count: 3,
        }],
        whole: Some(Whole {
            busy_ns: 0,
            merged: 43,
            in_flight: 2,
        }),
        ..DiskUse::default()
    };
    for (class, requests, bytes) in [
        (READ, 200, 4 << 20),
        (WRITE, 3, 50 << 20),
        (FLUSH, 4, 0),
        (DISCARD, 1, 0),
        (PASSTHROUGH, 2, 0),
    ] {
        disk.classes[class] = Class {
            requests,
            bytes,
            total_ns: SECOND_NS / 4,
        };
    }
    disk
}

fn example() -> Interval {
    let (reads, writes) = (
        histogram(&[3_000, 3_000, 9_500]),
        histogram(&[7_000_000, 2_500_000]),
    );
    let mut all = reads.clone();
    all.merge(&writes);
    let of = |class, histogram| OfClass {
        class,
        phase: Phase::Device,
        histogram,
    };
    Interval {
        end_ns: 2 * SECOND_NS,
        groups: vec![of_group(Phase::Device, all)],
        by_class: vec![of(READ, reads), of(WRITE, writes)],
        disks: vec![disk()],
        ..Interval::default()
    }
}

fn text(options: &[&str], interval: &Interval) -> String {
    let line = ["biolatency"].iter().chain(options);
    let report = Report {
        args: &Args::parse_from(line),
        names: &Names::none(),
        interval,
        cost: Cost::default(),
    };
    let mut text = Vec::new();
    report
        .write_human(&mut text)
        .expect("a vector takes everything");
    String::from_utf8(text).expect("text")
}

#[test]
fn an_interval_reads_like_this() {
    let expected = "\
3 requests failed on sda;
  reads p50 3.01 us p99 9.47 us, writes p50 2.56 ms p99 6.95 ms; sda 50% busy

                                 REQUESTS      AVG      P50      P99      MAX
reads    in the device                  3  5.17 us  3.01 us  9.47 us  9.50 us
writes   in the device                  2  4.75 ms  2.56 ms  6.95 ms  7.00 ms

DISK           READ/s  rMiB/s  WRITE/s  wMiB/s  FLUSH/s  BUSY INFLIGHT ERRORS
sda               100    2.00     1.50    25.0     2.00   50%     0.38      3
  failed: 3 read: I/O error
  1 discard, 2 driver commands, 43 merged, 1 partial completion,
    28 requeued (driver queue full), 2 in flight now

     msecs               : count     distribution
         0 -> 1          : 3        |****************************************|
         2 -> 3          : 1        |*************                           |
         4 -> 7          : 1        |*************                           |
     count 5  ms: avg 1.90  p50 0.01  p90 6.95  p99 6.95  p99.9 6.95  max 7.00

next: biolatency -d sda --phases 5 1   # where requests wait before the device

";
    let text = text(&["-m"], &example());
    assert_eq!(text, expected);
    assert_narrow(&text);
}

#[test]
fn groups_have_headings_below_the_answer() {
    let mut interval = example();
    interval.by_class.clear();
    let text = text(&["-m", "-F"], &interval);
    assert!(text.contains("\n\nop = operation 0\n     msecs "), "{text}");
    interval.groups.clear();
    let nothing = "\n\n     nothing recorded\n\nnext: ";
    assert!(self::text(&["-F"], &interval).contains(nothing));
}

#[test]
fn a_group_has_its_reads_and_its_writes_above_its_histogram() {
    let mut interval = example();
    interval.groups[0].whole.id.tgid = 7;
    interval.groups[0].whole.comm = "db".into();
    interval.groups[0].by_class = example().by_class;
    let text = text(&["-m", "-P"], &interval);
    let expected = "

pid = 7 db
  3 reads p50 3.01 us p99 9.47 us, 2 writes p50 2.56 ms p99 6.95 ms
     msecs ";
    assert!(text.contains(expected), "{text}");
    let answer = "writes p50 2.56 ms p99 6.95 ms;\n  100% of their time for db 7; sda";
    assert!(text.contains(answer), "{text}");
}

#[test]
fn no_line_is_too_long_whatever_the_names_are() {
    let disks = [
        "nvme0n1",
        "a-name-of-thirty-one-bytes-as-is",
        &"\u{1b}".repeat(31),
    ];
    for (comm, (path, disk_name)) in COMMS.iter().flat_map(|comm| {
        let both = PATHS.iter().zip(disks);
        both.map(move |both| (comm, both))
    }) {
        let mut interval = example();
        interval.under_way = Some((MANY, LONG_NS));
        let mut sum = Histogram::default();
        sum.add_exact(MANY, LONG_NS, LONG_NS);
        sum.add(700, MANY);
        interval.by_class = (0..CLASSES.len())
            .map(|class| OfClass {
                class,
                phase: Phase::Total,
                histogram: sum.clone(),
            })
            .collect();
        let group = &mut interval.groups[0];
        group.by_class = (0..CLASSES.len())
            .map(|class| OfClass {
                class,
                phase: Phase::Total,
                histogram: sum.clone(),
            })
            .collect();
        let whole = &mut group.whole;
        (whole.id.tgid, whole.id.cgroup, whole.id.opf) = (4_194_304, 9, u32::MAX);
        whole.id.phase = Phase::Total as u32;
        whole.comm = (*comm).into();
        whole.histogram = sum;
        let disk = &mut interval.disks[0];
        disk.name = disk_name.into();
        disk.classes[READ].requests = MANY;
        disk.classes[WRITE].bytes = 1 << 45;
        (disk.partial, disk.requeued, disk.failures[0].count) = (MANY, MANY, 1_234);
        for options in [
            &["-Q"][..],
            &["-Q", "-D", "-P", "--by-cgroup"],
            &["-F", "-P"],
        ] {
            assert_narrow(&text(options, &interval));
        }
        let paths = HashMap::from([(9, PathBuf::from(path))]);
        let line = ["biolatency", "-Q", "-P", "--by-cgroup"];
        let report = Report {
            args: &Args::parse_from(line),
            names: &Names::none(),
            interval: &interval,
            cost: Cost::default(),
        };
        let mut out = Vec::new();
        report.write_groups(&paths, &mut out).expect("a vector");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("\n  cgroup = …"), "{text}");
        assert_narrow(&text);
    }
}

#[test]
fn json_has_reads_and_writes_beside_all_of_them() {
    let args = Args::parse_from(["biolatency"]);
    let object = json::interval(&args, &Names::none(), &example(), &Cost::default());
    assert_eq!(object["groups"][0]["count"], 5);
    let by_op = object["by_op"].as_array().expect("an array");
    let found: Vec<_> = by_op
        .iter()
        .map(|of| (&of["op"], &of["phase"], &of["count"], &of["max_ns"]))
        .map(|(op, phase, count, max)| format!("{op} {phase} {count} {max}"))
        .collect();
    assert_eq!(
        found,
        [r#""read" "device" 3 9500"#, r#""write" "device" 2 7000000"#]
    );
    assert_eq!(object["groups"][0]["by_op"], serde_json::Value::Null);
    let args = Args::parse_from(["biolatency", "-P"]);
    let mut interval = example();
    interval.groups[0].by_class = example().by_class;
    let object = json::interval(&args, &Names::none(), &interval, &Cost::default());
    assert_eq!(object["groups"][0]["by_op"], object["by_op"]);
}
