//! biolatency on a disk that is fully used, beside fio's own account, and on one with bad sectors.

use crate::biolatency::{disk, groups, trace, traced};
use crate::disk::{LoopDisk, fio, run};
use crate::prelude::*;

/// A bin of fio's histogram: its value is the bin's largest.
fn fio_percentile(bins: &serde_json::Map<String, Value>, percent: f64) -> (f64, f64) {
    let bin = |(ns, count): (&String, &Value)| Some((ns.parse().ok()?, count.as_u64()?));
    let bins = bins
        .iter()
        .map(|entry| bin(entry).expect("a time and a count"));
    let mut bins: Vec<(u64, u64)> = bins.collect();
    bins.sort_unstable();
    let total: u64 = bins.iter().map(|(_, count)| count).sum();
    let rank = (percent / 100.0 * total as f64).ceil() as u64;
    let mut seen = 0;
    for (ns, count) in bins {
        seen += count;
        if seen >= rank {
            // fio has 64 bins in every power of two; its value is a bin's middle.
            return (ns as f64, ns as f64 / 64.0);
        }
    }
    panic!("an empty histogram")
}

/// fio's completion latency is that of the request and what the system call does around it: the latter is little where
/// requests wait for a real disk, and threads for one each.
#[test]
#[ignore = "statistical: make truth"]
fn percentiles_are_fios() {
    let _machine = Machine::alone();
    let disk = LoopDisk::on_disk(256);
    // One request for each of fio's.
    disk.set("nomerges", "2");
    let mut bins = Value::Null;
    let lines = traced(&disk.name, "-Q --comm fio", || {
        let options = "--rw=randread --bs=512k --ioengine=psync --io_size=16m";
        let jobs = "--numjobs=64 --thread --group_reporting";
        let job = fio(&disk.path, &format!("{options} {jobs}"));
        bins = job["read"]["clat_ns"]["bins"].clone();
    });
    let report = &lines[0];
    let ours = &groups(report)[0];
    for (percent, field) in [(50.0, "p50_ns"), (90.0, "p90_ns"), (99.0, "p99_ns")] {
        let (theirs, width) = fio_percentile(bins.as_object().expect("bins"), percent);
        let off = (number(ours, field) as f64 - theirs).abs();
        assert_within(
            format!("p{percent} off"),
            off,
            ..=0.05 * theirs + width,
            ours,
        );
    }
}

/// scsi_debug fails reads of ten sectors from 0x1234 on, if told so.
#[test]
fn a_disk_with_bad_sectors_has_medium_errors() {
    let _machine = Machine::alone();
    let options = ["scsi_debug", "dev_size_mb=16", "opts=2"];
    let loaded = std::process::Command::new("modprobe")
        .args(options)
        .status();
    if !loaded.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this kernel has no scsi_debug");
        return;
    }
    run("udevadm", &["settle"]);
    let model = |name: &str| std::fs::read_to_string(format!("/sys/block/{name}/device/model"));
    let disks = std::fs::read_dir("/sys/block").expect("sysfs").flatten();
    let mut names = disks.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let name = names.find(|name| model(name).is_ok_and(|model| model.starts_with("scsi_debug")));
    let name = name.expect("the disk is there");
    let from = format!("if=/dev/{name}");
    let report = trace(&name, "", || {
        let args = "of=/dev/null bs=512 skip=4660 count=1 iflag=direct";
        let mut dd = std::process::Command::new("dd");
        let dd = dd.arg(&from).args(args.split(' ')).output();
        assert!(!dd.expect("dd runs").status.success());
    });
    let error = only(disk(&report, &name), "errors");
    assert_eq!(error["op"], "read");
    // Before 5.16 a status is an errno.
    let status = text(error, "status");
    assert!(
        ["medium", "No data available"].contains(&status),
        "{status}"
    );
    run("modprobe", &["-r", "scsi_debug"]);
}
