//! An interval as JSON.

use budget::cost::Cost;
use serde_json::{Map, Value, json};

use crate::biolatency::args::Args;
use crate::biolatency::disk_use::{CLASSES, DiskUse};
use crate::biolatency::disks::dev_text;
use crate::biolatency::harvest::Interval;
use crate::biolatency::labels;
use crate::biolatency::latencies::{OfClass, OfGroup};
use crate::biolatency::names::Names;

/// `{"tool", "version", "start_ns", "end_ns", "groups": […], "by_op": […], "disks": […], "under_way", "begun_before", "losses": {…},
/// "cost": {…}}`, the last three since the start of the run.
pub(crate) fn interval(args: &Args, names: &Names, interval: &Interval, cost: &Cost) -> Value {
    let groups: Vec<Value> = interval
        .groups
        .iter()
        .map(|group| group_json(args, names, interval, group))
        .collect();
    let by_op: Vec<Value> = interval.by_class.iter().map(class_json).collect();
    let wall_ns = interval.wall_ns();
    let disks: Vec<Value> = interval
        .disks
        .iter()
        .map(|disk| disk_json(names, disk, wall_ns))
        .collect();
    json!({
        "tool": "biolatency",
        "version": env!("CARGO_PKG_VERSION"),
        "start_ns": interval.start_ns,
        "end_ns": interval.end_ns,
        "groups": groups,
        "by_op": by_op,
        "disks": disks,
        "under_way": interval.under_way.map(|(count, _)| count),
        "begun_before": interval.begun_before,
        "losses": interval.losses.to_json(),
        "cost": cost.to_json(),
    })
}

/// Its latencies, what it is of, and where that was asked for `by_op`.
fn group_json(args: &Args, names: &Names, interval: &Interval, group: &OfGroup) -> Value {
    let mut object = labels::group_json(args, names, interval, &group.whole);
    if args.splits_groups() {
        object["by_op"] = group.by_class.iter().map(class_json).collect();
    }
    object
}

fn class_json(of: &OfClass) -> Value {
    let mut object = of.histogram.to_json();
    object["op"] = CLASSES[of.class].into();
    object["phase"] = of.phase.key().into();
    object
}

fn disk_json(names: &Names, disk: &DiskUse, wall_ns: u64) -> Value {
    let mut classes = Map::new();
    for (name, class) in CLASSES.iter().zip(&disk.classes) {
        let counts = json!({
            "requests": class.requests,
            "bytes": class.bytes,
            "total_ns": class.total_ns,
        });
        classes.insert((*name).into(), counts);
    }
    let errors: Vec<Value> = disk
        .failures
        .iter()
        .map(|failures| {
            json!({"op": CLASSES[failures.class.min(4)], "status": names.status(failures.status),
                   "code": failures.status, "count": failures.count})
        })
        .collect();
    json!({
        "disk": disk.name,
        "dev": dev_text(disk.dev),
        "ops": classes,
        "queue_length": disk.queue_length(wall_ns),
        "busy_ns": disk.busy_ns(wall_ns),
        "merged": disk.whole.map(|whole| whole.merged),
        "in_flight": disk.whole.map(|whole| whole.in_flight),
        "partial": disk.partial,
        "requeued": disk.requeued,
        "errors": errors,
    })
}
