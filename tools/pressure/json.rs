//! An interval as one JSON object; times in ns, shares in percent.

use budget::cost::Cost;
use serde_json::{Map, Value, json};

use crate::pressure::hints::{self, Hint};
use crate::pressure::interval::{Interval, index_of};
use crate::pressure::parties::Party;
use crate::pressure::psi::{Lost, Resource, Share};
use crate::pressure::ranking;
use crate::pressure::stacks;
use crate::pressure::waits::{Waiting, Waits};

/// Everything that people are shown, all parties, and what the run has cost so far.
pub(crate) fn interval(interval: &Interval, cost: &Cost) -> Value {
    let mut resources = Map::new();
    for resource in Resource::ALL {
        resources.insert(resource.word().into(), of_resource(interval, resource));
    }
    let cgroups: Vec<Value> = interval
        .cgroups
        .iter()
        .map(|cgroup| {
            let mut object = Map::new();
            object.insert("path".into(), json!(cgroup.path.display().to_string()));
            for resource in Resource::ALL {
                let lost = cgroup.lost[resource as usize];
                object.insert(resource.word().into(), lost.map_or(Value::Null, psi));
            }
            Value::Object(object)
        })
        .collect();
    let usage = &interval.usage;
    let disks: Vec<Value> = usage
        .disks
        .iter()
        .map(|disk| {
            json!({"disk": disk.name, "busy_percent": disk.busy_percent, "queue": disk.queue,
                   "read_bytes": disk.read_bytes, "written_bytes": disk.written_bytes})
        })
        .collect();
    let mut object = json!({
        "tool": "pressure",
        "version": env!("CARGO_PKG_VERSION"),
        "start_ns": interval.start_ns,
        "end_ns": interval.end_ns,
        "ended_unix_s": interval.ended_unix_s,
        "cgroup": interval.cgroup.as_ref().map(|path| path.display().to_string()),
        "utilisation": {
            "cpus": usage.cpus,
            "busy_percent": usage.busy_percent,
            "irq_percent": usage.irq_percent,
            "steal_percent": usage.steal_percent,
            "memory_total_bytes": usage.memory_total_bytes,
            "memory_used_percent": usage.memory_used_percent,
            "swapped_bytes": usage.swapped_bytes,
            "disks": disks,
        },
        "errors": {"oom_kills": usage.oom_kills, "block_errors": interval.block_errors},
        "resources": resources,
        "waits": waits(&interval.waits),
        "cgroups": cgroups,
        "losses": interval.losses.to_json(),
        "cost": cost.to_json(),
    });
    if !interval.stacks.is_empty() {
        object["user_ends"] = stacks::ends_to_json(&interval.stacks);
    }
    object
}

fn of_resource(interval: &Interval, resource: Resource) -> Value {
    let lost = interval.psi[resource as usize];
    let mut object = json!({"psi": lost.map_or(Value::Null, psi)});
    let Some(index) = index_of(resource) else {
        return object;
    };
    object["task_ns"] = interval.task_ns[index].into();
    let some_ns = lost
        .and_then(|lost| lost.some)
        .map_or(0, |some| some.lost_ns);
    object["ratio"] = if some_ns > 0 {
        json!(interval.task_ns[index] as f64 / some_ns as f64)
    } else {
        Value::Null
    };
    let victims = ranking::victims(interval, index);
    let culprits = ranking::culprits(interval, index);
    let hints = hints::of_resource(interval, resource).into_iter();
    object["next"] = hints
        .map(|hint| json!({"command": hint.command, "answers": hint.answers}))
        .collect();
    let victims = victims.iter().filter_map(|ranked| ranked.party);
    object["victims"] = victims.map(|party| victim_json(party, index)).collect();
    let culprits = culprits.iter().filter_map(|ranked| ranked.party);
    object["culprits"] = culprits.map(culprit_json).collect();
    if !interval.stacks.is_empty() {
        object["stacks"] = stacks::to_json(&interval.stacks, index);
    }
    if resource == Resource::Cpu {
        object["throttled_ns"] = interval.throttled_ns.into();
        let quotas = interval.quotas.iter().map(|quota| quota.group.to_json());
        object["quotas"] = quotas.collect();
    }
    object
}

/// Estimates: from looks at threads.
fn waits(waits: &Waits) -> Value {
    let of_rows = |rows: &[Waiting], hint: fn(&Waiting) -> Hint| {
        let rows = rows.iter().map(|row| {
            let hint = hint(row);
            json!({"comm": *row.comm, "pid": row.tgid, "reason": row.reason.name(), "lock": row.is_lock,
                   "threads": row.threads, "at_a_time": row.at_a_time,
                   "next": {"command": hint.command, "answers": hint.answers}})
        });
        Value::from_iter(rows)
    };
    json!({"looks": waits.looks, "not_looked_at": waits.not_looked_at,
           "not_idle": of_rows(&waits.rows, hints::of_waits),
           "undecided": of_rows(&waits.undecided, hints::of_undecided)})
}

fn party(party: &Party) -> Value {
    json!({"comm": *party.comm, "pid": party.tgid, "processes": party.processes, "threads": party.threads,
           "kernel_thread": party.is_kernel_thread, "cgroup": party.cgroup_id})
}

fn victim_json(victim: &Party, index: usize) -> Value {
    let mut object = party(victim);
    object["lost_ns"] = victim.account.lost_ns[index].into();
    object["open_ns"] = victim.open_ns[index].into();
    object
}

fn culprit_json(culprit: &Party) -> Value {
    let mut object = party(culprit);
    object["caused_ns"] = culprit.account.caused_ns.into();
    object["ios"] = culprit.account.ios.into();
    object["read_bytes"] = culprit.account.read_bytes.into();
    object["written_bytes"] = culprit.account.written_bytes.into();
    object["faults"] = culprit.account.faults.into();
    object
}

fn psi(lost: Lost) -> Value {
    let share = |share: Option<Share>| {
        share.map_or(Value::Null, |share| {
            json!({"lost_ns": share.lost_ns, "percent": share.percent(), "avg10": share.avg10})
        })
    };
    json!({"some": share(lost.some), "full": share(lost.full)})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pressure::stacks::Stack;

    #[test]
    fn a_resource_has_the_fields_that_are_its_own() {
        let stack = Stack {
            resource: 0,
            is_culprit: false,
            comm: "db".into(),
            tgid: 7,
            threads: 1,
            weight: 5,
            kernel: Arc::default(),
            user: Arc::default(),
            user_end: None,
        };
        let mut found = Interval::default();
        let cpu = of_resource(&found, Resource::Cpu);
        assert_eq!(cpu["throttled_ns"], 0);
        assert!(cpu.get("stacks").is_none(), "{cpu}");
        found.stacks = vec![stack];
        let io = of_resource(&found, Resource::Io);
        assert!(io.get("throttled_ns").is_none(), "{io}");
        assert_eq!(io["stacks"], json!([]));
        assert_eq!(of_resource(&found, Resource::Cpu)["stacks"][0]["ns"], 5);
    }
}
