//! biolatency against the kernel's own accounts of disks, against fio's, and on disks that misbehave.

use serde_json::Value;

use crate::disk::{LoopDisk, Stat, fio, run};
use crate::kernel::{alone, skip};
use crate::tool::Tool;
use crate::workload::number;

/// Error allowed in times, against `/sys/block/DEV/stat`.
const TOLERANCE: f64 = 0.02;

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
    let report = lines.remove(0);
    for (loss, count) in report["losses"].as_object().expect("losses") {
        let most = match loss.as_str() {
            "unseen" | "unseen_bytes" | "unattributed" => u64::MAX,
            "nested" => 10,
            _ => 0,
        };
        assert!(count.as_u64() <= Some(most), "{loss}: {count}");
    }
    report
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

/// Requests and bytes are the kernel's exactly; times within the tolerance and its rounding down to a ms.
fn agrees_with_stat(report: &Value, name: &str, before: &Stat, after: &Stat) {
    let disk = disk(report, name);
    let unseen = unseen(report);
    let unseen_bytes = number(&report["losses"], "unseen_bytes");
    let (mut bytes, mut moved) = (0, 0);
    for (class, truth) in after.since(before) {
        let ours = &disk["ops"][class];
        let ns = number(ours, "total_ns");
        eprintln!("{class}: {ours} {truth:?}, {unseen} unseen");
        if class != "flush" || unseen == 0 {
            is_all(report, number(ours, "requests"), truth.requests);
        }
        assert!(number(ours, "bytes") <= truth.sectors * 512, "{class}");
        bytes += number(ours, "bytes");
        moved += truth.sectors * 512;
        let truth_ns = (truth.ms * 1_000_000) as f64;
        let hidden = unseen as f64 / truth.requests.max(1) as f64;
        // The kernel's account of a flush ends a function call after its completion, where no tracepoint is.
        let calls_ns = if class == "flush" { 1_000.0 } else { 0.0 } * truth.requests as f64;
        let allowed = (TOLERANCE + hidden) * truth_ns + calls_ns + 1e6;
        // To look at a request, up to 1 us, is a part of its time in the kernel's account.
        let looked_ns = 1_000.0 * truth.requests as f64;
        let missing_ns = truth_ns - ns as f64;
        assert!(
            (-allowed..=allowed + looked_ns).contains(&missing_ns),
            "{class}: {ns} ns, /sys says {} ms",
            truth.ms
        );
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
        let report = trace(&disk.name, &["-Q"], || {
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
        let after = disk.stat();
        agrees_with_stat(&report, &disk.name, &before, &after);
        let all: u64 = groups(&report)
            .iter()
            .map(|group| number(group, "count"))
            .sum();
        assert!(all + unseen(&report) >= 20011, "{all}");
        assert_eq!(number(&report, "begun_before"), 0);
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
    let report = trace(&disk.name, &["-Q"], work);
    agrees_with_stat(&report, &disk.name, &before, &disk.stat());

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

/// One request at a time keeps a disk busy for the sum of their times; eight at a time, for an eighth or more.
#[test]
fn a_disk_is_busy_while_requests_are_under_way() {
    let Some(_machine) = alone() else {
        return;
    };
    let disk = LoopDisk::new(64);
    for (depth, least, most) in [("1", 0.98, 1.02), ("8", 0.125, 1.02)] {
        let report = trace(&disk.name, &["-Q"], || {
            let options = [
                "--rw=randread",
                "--bs=64k",
                "--ioengine=libaio",
                "--number_ios=997",
            ];
            fio(&disk.path, &[&options[..], &["--iodepth", depth]].concat());
        });
        let found = self::disk(&report, &disk.name);
        let (busy_ns, total_ns) = (number(found, "busy_ns"), number(found, "ops.read.total_ns"));
        let wall_ns = number(&report, "end_ns") - number(&report, "start_ns");
        eprintln!("depth {depth}: busy {busy_ns} ns, requests {total_ns} ns, {wall_ns} ns in all");
        let share = busy_ns as f64 / total_ns as f64;
        assert!(
            (least..=most).contains(&share),
            "depth {depth}: {busy_ns} of {total_ns} ns"
        );
        let length = found["queue_length"].as_f64().expect("a number");
        let expected = total_ns as f64 / wall_ns as f64;
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
    let report = trace(&disk.name, &["-Q"], work);
    let after = disk.stat();
    agrees_with_stat(&report, &disk.name, &before, &after);
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

/// Others use the machine's disk, too: what the kernel counted inside and around the run are the bounds.
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
    let around = Stat::of(&name);
    let mut inside = None;
    let lines = traced(&name, &["-Q"], || {
        let before = Stat::of(&name);
        let options = [
            "--rw=randwrite",
            "--bs=4k",
            "--ioengine=psync",
            "--size=4m",
            "--fsync=1",
        ];
        fio(file.to_str().expect("UTF-8"), &options);
        inside = Some((before, Stat::of(&name)));
    });
    let after = Stat::of(&name);
    let (before, inner) = inside.expect("the work was done");
    let report = &lines[0];
    let unseen = number(&report["losses"], "unseen");
    let ops = &disk(report, &name)["ops"];
    let bounds = inner.since(&before).into_iter().zip(after.since(&around));
    for ((class, least), (_, most)) in bounds {
        let ours = number(&ops[class], "requests");
        // Interrupts that hit a task which the machine's sandbox shields run no BPF program; those are counted.
        let least = least.requests.saturating_sub(unseen);
        let is_flush = class == "flush" && unseen > 0;
        assert!(ours <= most.requests, "{class}: {ours}, at most {most:?}");
        assert!(
            ours >= least || is_flush,
            "{class}: {ours}, at least {least}"
        );
        eprintln!(
            "{class}: {least} <= {ours} <= {}, {unseen} unseen",
            most.requests
        );
    }
    let ours = number(&ops["write"], "total_ns") as f64;
    let [_, (_, least), ..] = inner.since(&before);
    let share_seen = 1.0 - unseen as f64 / least.requests.max(1) as f64;
    let least_ns = least.ms as f64 * 1e6;
    assert!(
        ours >= (share_seen - TOLERANCE) * least_ns - 1e6,
        "{ours} ns, at least {least_ns}"
    );
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
    let lines = traced(&disk.name, &["-Q", "--slower", "0.001us"], || {
        let args = [
            "of=/dev/null",
            "bs=64k",
            "skip=8",
            "count=1",
            "iflag=direct",
            "status=none",
        ];
        let dd = std::process::Command::new("dd")
            .arg(&of)
            .args(args)
            .output();
        let dd = dd.expect("dd runs");
        assert!(
            String::from_utf8_lossy(&dd.stderr).contains("Input/output error")
                || dd.status.success()
        );
    });
    let after = disk.stat();
    let (report, slow) = lines.split_last().expect("a report");
    agrees_with_stat(report, &disk.name, &before, &after);
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
