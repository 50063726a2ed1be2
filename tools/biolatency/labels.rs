//! What histograms and lines are called.

use std::collections::HashMap;
use std::path::PathBuf;

use bpf::biolatency::types::group_id;
use hist::harvest::Group;
use serde_json::{Value, json};
use session::cgroups;

use crate::biolatency::args::{Args, Phase};
use crate::biolatency::harvest::Interval;
use crate::biolatency::names::Names;

/// `TGID_FLUSH` of the BPF side: flushes serve several submitters at once.
pub(crate) const TGID_FLUSH: u32 = u32::MAX;

/// `write (sync, fua)`.
pub(crate) fn operation(names: &Names, opf: u32) -> String {
    let (op, flags) = (names.op(opf), names.flags(opf));
    if flags.is_empty() {
        op
    } else {
        format!("{op} ({})", flags.join(", "))
    }
}

/// A group's identity in parts, without its phase: groups that differ in phase only share a heading. A path takes what `width`
/// columns leave for it.
pub(crate) fn group(
    args: &Args,
    names: &Names,
    interval: &Interval,
    group: &Group<group_id>,
    (paths, width): (&HashMap<u64, PathBuf>, usize),
) -> Vec<String> {
    let id = &group.id;
    let mut parts = Vec::new();
    if args.by_disk {
        parts.push(format!("disk = {}", disk_name(interval, id)));
    }
    if args.by_flags {
        // A line may end behind each of its flags.
        let operation = format!("op = {}", operation(names, id.opf));
        parts.extend(operation.split(", ").map(str::to_owned));
    }
    if args.by_process {
        parts.push(match (id.tgid, group.comm.is_empty()) {
            (TGID_FLUSH, _) => "flushes, on behalf of several processes".into(),
            (0, true) => "submitter not seen".into(),
            (tgid, _) => format!("pid = {tgid} {}", group.comm),
        });
    }
    if args.by_cgroup {
        parts.push(match id.cgroup {
            0 => "cgroup = none".into(),
            id => cgroups::heading(id, paths, width),
        });
    }
    parts
}

/// The same as fields of a JSON object.
pub(crate) fn group_json(
    args: &Args,
    names: &Names,
    interval: &Interval,
    group: &Group<group_id>,
) -> Value {
    let id = &group.id;
    let mut object = group.histogram.to_json();
    object["phase"] = Phase::of(id.phase).key().into();
    if args.by_disk {
        object["disk"] = disk_name(interval, id).into();
    }
    if args.by_flags {
        object["op"] = names.op(id.opf).into();
        object["flags"] = json!(names.flags(id.opf));
    }
    if args.by_process {
        object["pid"] = match id.tgid {
            TGID_FLUSH => Value::Null,
            tgid => tgid.into(),
        };
        object["comm"] = (*group.comm).into();
    }
    if args.by_cgroup {
        object["cgroup"] = id.cgroup.into();
    }
    object
}

/// Name of the disk, or partition, that a group is of.
pub(crate) fn disk_name(interval: &Interval, id: &group_id) -> String {
    let found = interval
        .disks
        .iter()
        .find(|disk| disk.dev == id.dev && disk.address == id.disk);
    found.map_or_else(
        || crate::biolatency::disks::dev_text(id.dev),
        |disk| disk.name.clone(),
    )
}
