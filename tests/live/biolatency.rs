//! biolatency against the log of the kernel's events, the kernel's own accounts of disks, and on disks that misbehave.

use std::process::Command;

use oracle::requests::{self, Class};

use crate::biolatency_logged::{Logged, assert_few_losses, assert_inside, logged, window};
use crate::disk::{LoopDisk, Stat, disk_number, fio, run};
use crate::kernel::skip;
use crate::prelude::*;

/// Runs `work` under `biolatency -j -d DISK OPTIONS`; the lines of its output.
pub(crate) fn traced(disk: &str, options: &str, work: impl FnOnce()) -> Vec<Value> {
    let (output, ()) = during("biolatency", format!("-j -d {disk} {options}"), work);
    output.reports()
}

/// The same where the report is the only line. Nothing may be lost but what the machine's sandbox hides, and what comes while one of
/// our programs is at work on that CPU: both are counted, and tests add them.
pub(crate) fn trace(disk: &str, options: &str, work: impl FnOnce()) -> Value {
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
    assert_all("requests", found, unseen(report), expected, report);
}

pub(crate) fn disk<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = list(report, "disks")
        .iter()
        .find(|disk| disk["disk"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report}"))
}

pub(crate) fn groups(report: &Value) -> &[Value] {
    list(report, "groups")
}

/// Requests, and their time, ns.
pub(crate) fn requests_of(ops: &Value, class: &str) -> (u64, u64) {
    (
        number(&ops[class], "requests"),
        number(&ops[class], "total_ns"),
    )
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
        let ours = requests_of(ops, name);
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
    let most = (moved / 100).max(16 << 10);
    assert_within("bytes not seen", unseen_bytes, ..=most, moved);
}

/// Latencies of reads, writes and discards are those of the disk's requests, and with the rest all that is in the histogram.
pub(crate) fn assert_apart(report: &Value, name: &str) {
    let by_op = list(report, "by_op");
    let ops = &disk(report, name)["ops"];
    for op in ["read", "write", "discard"] {
        let own = by_op.iter().filter(|found| found["op"] == op);
        let found = (sum(own.clone(), "count"), sum(own, "sum_ns"));
        assert_eq!(found, requests_of(ops, op), "{op}");
    }
    assert_eq!(sum(by_op, "sum_ns"), sum(groups(report), "sum_ns"));
}

/// With and without a scheduler: where there is none, requests are never inserted.
#[test]
fn counts_bytes_and_times_are_those_of_the_kernels_account() {
    let _machine = Machine::alone();
    for scheduler in ["none", "mq-deadline"] {
        let disk = LoopDisk::new(128);
        disk.set("scheduler", scheduler);
        let before = disk.stat();
        let found = logged(&disk.name, "-Q", || {
            let options = "--rw=randrw --bs=4k --iodepth=8 --ioengine=libaio --number_ios=20011";
            fio(&disk.path, options);
            run("blkdiscard", &["-o", "0", "-l", "1048576", &disk.path]);
        });
        assert_accounted(&found, &disk, &before, &disk.stat());
        let report = found.report();
        let all = sum(groups(report), "count");
        assert!(all + unseen(report) >= 20011, "{all}");
        assert_apart(report, &disk.name);
        assert_eq!(number(report, "begun_before"), 0);
    }
}

/// Flush sequences: the write, its data part and the flushes around it.
#[test]
fn small_synchronous_writes_are_counted_once_and_their_flushes_apart() {
    let _machine = Machine::alone();
    let disk = LoopDisk::new(64);
    let work = || {
        let options = "--rw=randwrite --bs=4k --ioengine=psync --number_ios=1009";
        fio(&disk.path, &format!("{options} --fsync=1"));
    };
    let before = disk.stat();
    let found = logged(&disk.name, "-Q", work);
    assert_accounted(&found, &disk, &before, &disk.stat());

    let before = disk.stat();
    let report = trace(&disk.name, "-F", work);
    let [_, (_, writes), _, (_, flushes)] = disk.stat().since(&before);
    let ops = &self::disk(&report, &disk.name)["ops"];
    is_all(&report, number(ops, "write.requests"), writes.requests);
    assert!(flushes.requests >= 1008, "{flushes:?}");
    let count = |op: &str| {
        sum(
            groups(&report).iter().filter(|group| group["op"] == op),
            "count",
        )
    };
    // A write of nothing, which only asks for a flush, is never in the device itself.
    is_all(&report, count("write"), 1009);
    is_all(&report, count("flush"), flushes.requests);
    assert_eq!(writes.requests, 1009 + flushes.requests);
}

/// One request at a time, and eight.
#[test]
fn a_disk_is_busy_while_requests_are_under_way() {
    let _machine = Machine::alone();
    let disk = LoopDisk::new(64);
    for depth in ["1", "8"] {
        let found = logged(&disk.name, "-Q", || {
            let options = "--rw=randread --bs=64k --ioengine=libaio --number_ios=997";
            fio(&disk.path, &format!("{options} --iodepth={depth}"));
        });
        let report = found.report();
        let ours = self::disk(report, &disk.name);
        let reads = requests_of(&ours["ops"], "read");
        let (number_of_disk, window) = (disk.number(), window(report));
        let truth = requests::ended(&found.logs, number_of_disk, Class::Read, &window);
        assert_inside(report, "read", reads, &truth.expect("logs that agree"));
        let busy = requests::busy_ns(&found.logs, number_of_disk, Class::Read, &window);
        let (least, most) = busy.expect("logs that agree");
        // What an interrupt upon our own program hid is in neither.
        let least = match number(report, "losses.nested") {
            0 => least,
            _ => 0,
        };
        let what = format!("depth {depth}: busy ns");
        assert_within(what, number(ours, "busy_ns"), least..=most, ours);
        let length = ours["queue_length"].as_f64().expect("a number");
        let expected = reads.1 as f64 / (window.end - window.start) as f64;
        let off = (length - expected).abs();
        assert!(off < 1e-6 * expected, "{length}, not {expected}");
    }
}

/// The disk has no FUA, so that the kernel sends a flush after each of these writes, whose data complete before it does.
#[test]
fn a_write_with_a_flush_after_it_is_one() {
    let _machine = Machine::alone();
    let disk = LoopDisk::new(64);
    let options = "--rw=randwrite --bs=4k --ioengine=psync --number_ios=1009";
    let work = || drop(fio(&disk.path, &format!("{options} --sync=dsync")));
    let before = disk.stat();
    let found = logged(&disk.name, "-Q", work);
    let after = disk.stat();
    assert_accounted(&found, &disk, &before, &after);
    assert!(after.flush.requests - before.flush.requests >= 1009);
    let report = trace(&disk.name, "-F", work);
    let writes = groups(&report)
        .iter()
        .filter(|group| group["op"] == "write");
    let count = sum(writes.clone(), "count");
    let has_fua = |group: &&Value| list(group, "flags").contains(&"fua".into());
    let with_fua = sum(writes.filter(has_fua), "count");
    // As submitted: the kernel has taken the flag away by the time it issues them.
    is_all(&report, with_fua, 1009);
    is_all(&report, count, 1009);
}

/// Others use the machine's disk, too, and it completes requests by interrupts.
#[test]
fn the_machines_disk_is_counted_whole() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let Some(name) = crate::cgroup::disk_name(dir.path()) else {
        return skip("/var/tmp is on no disk");
    };
    let file = dir.path().join("file");
    let before = Stat::of(&name);
    let mut after = before;
    let found = logged(&name, "-Q", || {
        after = Stat::of(&name);
        let options = "--rw=randwrite --bs=4k --ioengine=psync --size=4m --fsync=1";
        fio(file.to_str().expect("UTF-8"), options);
    });
    let report = found.report();
    let ops = &disk(report, &name)["ops"];
    for ((name_of, class), (_, earlier)) in CLASSES.into_iter().zip(after.since(&before)) {
        let truth = requests::ended(&found.logs, disk_number(&name), class, &window(report));
        let truth = truth.expect("logs that agree");
        let ours = requests_of(ops, name_of);
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
    let _machine = Machine::alone();
    let disk = LoopDisk::new(1);
    let file = std::fs::OpenOptions::new().write(true).open(&disk.file);
    file.expect("the file")
        .set_len((512 << 10) + (32 << 10))
        .expect("a size");
    let before = disk.stat();
    let of = format!("if={}", disk.path);
    let found = logged(&disk.name, "-Q --slower 0.001us", || {
        let args = "of=/dev/null bs=64k skip=8 count=1 iflag=direct status=none";
        let dd = Command::new("dd").arg(&of).args(args.split(' ')).output();
        let dd = dd.expect("dd runs");
        let said = String::from_utf8_lossy(&dd.stderr);
        assert!(said.contains("Input/output error") || dd.status.success());
    });
    assert_accounted(&found, &disk, &before, &disk.stat());
    let (report, slow) = found.lines.split_last().expect("a report");
    let found = self::disk(report, &disk.name);
    assert_eq!(number(found, "partial"), 1, "{found}");
    assert_eq!(number(found, "requeued"), 1, "{found}");
    let error = only(found, "errors");
    assert_eq!((text(error, "status"), number(error, "count")), ("I/O", 1));
    assert_eq!(error["op"], "read");
    assert_eq!(number(found, "ops.read.requests"), slow.len() as u64);
    let slow = slow.iter().map(|line| &line["slow_io"]);
    let failed: Vec<&Value> = slow.filter(|one| !one["error"].is_null()).collect();
    let [failed] = failed[..] else {
        panic!("one failed: {failed:?}");
    };
    assert_eq!(failed["bytes"], 64 << 10);
    assert_eq!(failed["comm"], "dd");
}

#[test]
fn a_report_for_people_fits_and_begins_with_reads_and_writes() {
    let _machine = Machine::alone();
    let disk = LoopDisk::new(64);
    let tool = Tool::attached("biolatency", format!("-d {}", disk.name));
    fio(
        &disk.path,
        "--rw=randrw --bs=4k --ioengine=psync --number_ios=1009",
    );
    let text = tool.end().stdout;
    // A command is whole, however long its path is.
    let is_whole = |line: &&str| line.starts_with("next: ");
    for line in text.lines().filter(|line| !is_whole(line)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let first = text.lines().next().expect("an answer");
    assert!(first.starts_with("reads p50 "), "{text}");
    for part in [" p99 ", ", writes p50 ", &format!("; {} ", disk.name)] {
        assert!(first.contains(part), "no {part}: {text}");
    }
    assert!(first.ends_with("% busy"), "{text}");
    let next = format!(
        "next: {} -d {} ",
        crate::built("biolatency").display(),
        disk.name
    );
    assert!(text.contains(&next), "no {next}: {text}");
}
