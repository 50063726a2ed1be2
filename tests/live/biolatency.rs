//! biolatency against the log of the kernel's events, the kernel's own accounts of disks, and on disks that misbehave.

use std::process::Command;

use oracle::requests::{self, Class};
use serde_json::Value;

use crate::biolatency_logged::{Logged, assert_few_losses, assert_inside, logged, window};
use crate::disk::{LoopDisk, Stat, disk_number, fio, run};
use crate::kernel::{alone, skip};
use crate::tool::Tool;
use crate::workload::number;

/// Runs `work` under `biolatency -j -d DISK OPTIONS`; the lines of its output.
pub(crate) fn traced(disk: &str, options: &[&str], work: impl FnOnce()) -> Vec<Value> {
    let mut args = vec!["-j", "-d", disk];
    args.extend(options);
    let tool = Tool::start("biolatency", &args);
    tool.wait_attached();
    work();
    tool.interrupt();
    let output = tool.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    output.reports()
}

/// The same where the report is the only line. Nothing may be lost but what the machine's sandbox hides, and what comes while one of
/// our programs is at work on that CPU: both are counted, and tests add them.
pub(crate) fn trace(disk: &str, options: &[&str], work: impl FnOnce()) -> Value {
    let mut lines = traced(disk, options, work);
    assert_eq!(lines.len(), 1);
    assert_few_losses(&lines[0]);
    lines.remove(0)
}

/// Completions that were not seen, and may not be missing anywhere else.
pub(crate) fn unseen(report: &Value) -> u64 {
    let losses = &report["losses"];
    let under_way = report["under_way"].as_u64().unwrap_or(0);
    number(losses, "unseen") + number(losses, "unattributed") + number(losses, "nested") + under_way
}

/// `found`, and what was not seen, are `expected`.
pub(crate) fn is_all(report: &Value, found: u64, expected: u64) {
    let unseen = unseen(report);
    assert!(
        found <= expected && found + unseen >= expected,
        "{found} of {expected}, {unseen} unseen: {report}"
    );
}

pub(crate) fn disk<'a>(report: &'a Value, name: &str) -> &'a Value {
    let disks = report["disks"].as_array().expect("disks");
    let found = disks.iter().find(|disk| disk["disk"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report}"))
}

pub(crate) fn groups(report: &Value) -> &Vec<Value> {
    report["groups"].as_array().expect("groups")
}

/// By the words that the tool has for them.
const CLASSES: [(&str, Class); 4] = [
    ("read", Class::Read),
    ("write", Class::Write),
    ("discard", Class::Discard),
    ("flush", Class::Flush),
];

/// Requests, bytes and times are the log's, and, but for those that no program was shown, the kernel's own account has no more.
fn assert_accounted(found: &Logged, disk: &LoopDisk, before: &Stat, after: &Stat) {
    let (report, logs) = (found.report(), &found.logs);
    let ops = &self::disk(report, &disk.name)["ops"];
    let unseen = unseen(report);
    let unseen_bytes = number(&report["losses"], "unseen_bytes");
    let (mut bytes, mut moved) = (0, 0);
    for ((name, class), (_, counted)) in CLASSES.into_iter().zip(after.since(before)) {
        let truth = requests::ended(logs, disk.number(), class, &window(report));
        let truth = truth.expect("logs that agree");
        let ours = (
            number(&ops[name], "requests"),
            number(&ops[name], "total_ns"),
        );
        assert_inside(report, name, ours, &truth);
        let completed = requests::bytes(logs, disk.number(), class, &window(report));
        let own_bytes = number(&ops[name], "bytes");
        if number(&report["losses"], "nested") == 0 {
            assert_eq!(own_bytes, completed.expect("logs that agree"), "{name}");
        }
        if name != "flush" || unseen == 0 {
            is_all(report, ours.0, counted.requests);
        }
        bytes += own_bytes;
        moved += counted.sectors * 512;
    }
    assert_eq!(bytes + unseen_bytes, moved, "{unseen_bytes} not seen");
    assert!(
        unseen_bytes <= (moved / 100).max(16 << 10),
        "{unseen_bytes} of {moved}"
    );
}

/// With and without a scheduler: where there is none, requests are never inserted.
#[test]
fn counts_bytes_and_times_are_those_of_the_kernels_account() {
    let Some(_machine) = alone() else {
        return;
    };
    for scheduler in ["none", "mq-deadline"] {
        let disk = LoopDisk::new(128);
        disk.set("scheduler", scheduler);
        let before = disk.stat();
        let found = logged(&disk.name, &["-Q"], || {
            let options = [
                "--rw=randrw",
                "--bs=4k",
                "--iodepth=8",
                "--ioengine=libaio",
                "--number_ios=20011",
            ];
            fio(&disk.path, &options);
            run("blkdiscard", &["-o", "0", "-l", "1048576", &disk.path]);
        });
        assert_accounted(&found, &disk, &before, &disk.stat());
        let report = found.report();
        let all: u64 = groups(report)
            .iter()
            .map(|group| number(group, "count"))
            .sum();
        assert!(all + unseen(report) >= 20011, "{all}");
        assert_eq!(number(report, "begun_before"), 0);
    }
}

/// Flush sequences: the write, its data part and the flushes around it.
#[test]
fn small_synchronous_writes_are_counted_once_and_their_flushes_apart() {
    let Some(_machine) = alone() else {
        return;
    };
    let disk = LoopDisk::new(64);
    let work = || {
        let options = [
            "--rw=randwrite",
            "--bs=4k",
            "--ioengine=psync",
            "--number_ios=1009",
        ];
        fio(&disk.path, &[&options[..], &["--fsync=1"]].concat());
    };
    let before = disk.stat();
    let found = logged(&disk.name, &["-Q"], work);
    assert_accounted(&found, &disk, &before, &disk.stat());

    let before = disk.stat();
    let report = trace(&disk.name, &["-F"], work);
    let [_, (_, writes), _, (_, flushes)] = disk.stat().since(&before);
    let ops = &self::disk(&report, &disk.name)["ops"];
    is_all(&report, number(ops, "write.requests"), writes.requests);
    assert!(flushes.requests >= 1008, "{flushes:?}");
    let count = |op: &str| {
        let groups = groups(&report).iter().filter(|group| group["op"] == op);
        groups.map(|group| number(group, "count")).sum::<u64>()
    };
    // A write of nothing, which only asks for a flush, is never in the device itself.
    is_all(&report, count("write"), 1009);
    is_all(&report, count("flush"), flushes.requests);
    assert_eq!(writes.requests, 1009 + flushes.requests);
}

/// One request at a time, and eight.
#[test]
fn a_disk_is_busy_while_requests_are_under_way() {
    let Some(_machine) = alone() else {
        return;
    };
    let disk = LoopDisk::new(64);
    for depth in ["1", "8"] {
        let found = logged(&disk.name, &["-Q"], || {
            let options = [
                "--rw=randread",
                "--bs=64k",
                "--ioengine=libaio",
                "--number_ios=997",
            ];
            fio(&disk.path, &[&options[..], &["--iodepth", depth]].concat());
        });
        let report = found.report();
        let ours = self::disk(report, &disk.name);
        let (busy_ns, total_ns) = (number(ours, "busy_ns"), number(ours, "ops.read.total_ns"));
        let reads = (number(ours, "ops.read.requests"), total_ns);
        let (number_of_disk, window) = (disk.number(), window(report));
        let truth = requests::ended(&found.logs, number_of_disk, Class::Read, &window);
        assert_inside(report, "read", reads, &truth.expect("logs that agree"));
        let busy = requests::busy_ns(&found.logs, number_of_disk, Class::Read, &window);
        let (least, most) = busy.expect("logs that agree");
        eprintln!("depth {depth}: busy {busy_ns} ns; {least} to {most} ns");
        // What an interrupt upon our own program hid is in neither.
        let least = if number(&report["losses"], "nested") > 0 {
            0
        } else {
            least
        };
        assert!(
            (least..=most).contains(&busy_ns),
            "depth {depth}: busy {busy_ns} ns; {least} to {most} ns"
        );
        let length = ours["queue_length"].as_f64().expect("a number");
        let expected = total_ns as f64 / (window.end - window.start) as f64;
        assert!(
            (length - expected).abs() < 1e-6 * expected,
            "{length}, not {expected}"
        );
    }
}

/// The disk has no FUA, so that the kernel sends a flush after each of these writes, whose data complete before it does.
#[test]
fn a_write_with_a_flush_after_it_is_one() {
    let Some(_machine) = alone() else {
        return;
    };
    let disk = LoopDisk::new(64);
    let options = [
        "--rw=randwrite",
        "--bs=4k",
        "--ioengine=psync",
        "--number_ios=1009",
    ];
    let work = || drop(fio(&disk.path, &[&options[..], &["--sync=dsync"]].concat()));
    let before = disk.stat();
    let found = logged(&disk.name, &["-Q"], work);
    let after = disk.stat();
    assert_accounted(&found, &disk, &before, &after);
    assert!(after.flush.requests - before.flush.requests >= 1009);
    let report = trace(&disk.name, &["-F"], work);
    let writes = groups(&report)
        .iter()
        .filter(|group| group["op"] == "write");
    let (mut count, mut with_fua) = (0, 0);
    for group in writes {
        count += number(group, "count");
        let flags = group["flags"].as_array().expect("flags");
        with_fua += if flags.contains(&"fua".into()) {
            number(group, "count")
        } else {
            0
        };
    }
    // As submitted: the kernel has taken the flag away by the time it issues them.
    is_all(&report, with_fua, 1009);
    is_all(&report, count, 1009);
}

/// Others use the machine's disk, too, and it completes requests by interrupts.
#[test]
fn the_machines_disk_is_counted_whole() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let Some(name) = crate::slow_disk::disk_name(dir.path()) else {
        return skip("/var/tmp is on no disk");
    };
    let file = dir.path().join("file");
    let before = Stat::of(&name);
    let mut after = before;
    let found = logged(&name, &["-Q"], || {
        after = Stat::of(&name);
        let options = [
            "--rw=randwrite",
            "--bs=4k",
            "--ioengine=psync",
            "--size=4m",
            "--fsync=1",
        ];
        fio(file.to_str().expect("UTF-8"), &options);
    });
    let report = found.report();
    let ops = &disk(report, &name)["ops"];
    for ((name_of, class), (_, earlier)) in CLASSES.into_iter().zip(after.since(&before)) {
        let truth = requests::ended(&found.logs, disk_number(&name), class, &window(report));
        let truth = truth.expect("logs that agree");
        let ours = (
            number(&ops[name_of], "requests"),
            number(&ops[name_of], "total_ns"),
        );
        if earlier.requests == 0 {
            assert_inside(report, name_of, ours, &truth);
            continue;
        }
        // Of somebody else, while the tool had begun and the second log had not.
        let least = truth.count - number(&report["losses"], "nested").min(truth.count);
        assert!(
            (least..=truth.count + earlier.requests).contains(&ours.0)
                && (least < truth.count || ours.1 >= truth.least_ns),
            "{name_of}: {ours:?}; {truth:?}, and {earlier:?}: {report}"
        );
    }
    assert!(number(&ops["write"], "requests") + unseen(report) >= 1024);
}

/// A read that ends beyond the backing file: half of it completes, the rest is requeued and fails.
#[test]
fn partial_completions_requeues_and_errors_are_seen() {
    let Some(_machine) = alone() else {
        return;
    };
    let disk = LoopDisk::new(1);
    let file = std::fs::OpenOptions::new().write(true).open(&disk.file);
    file.expect("the file")
        .set_len((512 << 10) + (32 << 10))
        .expect("a size");
    let before = disk.stat();
    let of = format!("if={}", disk.path);
    let found = logged(&disk.name, &["-Q", "--slower", "0.001us"], || {
        let args = [
            "of=/dev/null",
            "bs=64k",
            "skip=8",
            "count=1",
            "iflag=direct",
            "status=none",
        ];
        let dd = Command::new("dd").arg(&of).args(args).output();
        let dd = dd.expect("dd runs");
        assert!(
            String::from_utf8_lossy(&dd.stderr).contains("Input/output error")
                || dd.status.success()
        );
    });
    assert_accounted(&found, &disk, &before, &disk.stat());
    let (report, slow) = found.lines.split_last().expect("a report");
    let found = self::disk(report, &disk.name);
    assert_eq!(number(found, "partial"), 1, "{found}");
    assert_eq!(number(found, "requeued"), 1, "{found}");
    let errors = found["errors"].as_array().expect("errors");
    assert_eq!(errors.len(), 1, "{found}");
    assert_eq!(
        (&errors[0]["status"], &errors[0]["count"]),
        (&"I/O".into(), &1.into())
    );
    assert_eq!(errors[0]["op"], "read");
    assert_eq!(number(found, "ops.read.requests"), slow.len() as u64);
    let failed: Vec<&Value> = slow
        .iter()
        .filter(|line| !line["slow_io"]["error"].is_null())
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["slow_io"]["bytes"], 64 << 10);
    assert_eq!(failed[0]["slow_io"]["comm"], "dd");
}
