//! A snapshot as one JSON object; the manual documents it.

use budget::cost::Cost;
use profile::frame::Frame;
use profile::model::{StackEnd, Task};
use serde_json::{Map, Value, json};

use super::lock::{Holder, Identity, Wait, Waited};
use super::report::{activity, wanted_waiters};
use super::snapshot::Snapshot;
use super::thread::Stack;
use super::thread::Thread;
use super::verdict::{Deadlock, Kind, Verdict};

pub(crate) fn object(snapshot: &Snapshot, verdict: &Verdict, cost: &Cost) -> Value {
    let threads = &snapshot.threads.all;
    let shown = snapshot.waits.iter().filter(|wait| {
        !wait.kind.is_event() && (threads[wait.waiter].wanted || is_behind(verdict, wait))
    });
    let waits: Vec<Value> = shown.map(|wait| wait_json(snapshot, wait)).collect();
    let deadlocks: Vec<Value> = verdict
        .deadlocks
        .iter()
        .map(|deadlock| deadlock_json(threads, deadlock))
        .collect();
    let events = wanted_waiters(snapshot, Waited::is_event);
    json!({
        "tool": "lockstat",
        "version": env!("CARGO_PKG_VERSION"),
        "mode": "now",
        "apart_ns": u64::try_from(snapshot.apart.as_nanos()).unwrap_or(u64::MAX),
        "threads": threads.iter().filter(|thread| thread.wanted).count(),
        "waiting": wanted_waiters(snapshot, Waited::is_lock),
        "events": events,
        "passing": snapshot.passing,
        "deadlocks": deadlocks,
        "waits": waits,
        "losses": snapshot.losses.to_json(),
        "cost": cost.to_json(),
    })
}

/// Waits of others that a wanted thread's wait leads to.
fn is_behind(verdict: &Verdict, wait: &Wait) -> bool {
    let mut lists = verdict.trees.iter().map(|tree| &tree.behind);
    let mut deadlocks = verdict.deadlocks.iter();
    lists.any(|list| list.contains(&wait.waiter))
        || deadlocks.any(|deadlock| deadlock.members.contains(&wait.waiter))
}

fn deadlock_json(threads: &[Thread], deadlock: &Deadlock) -> Value {
    let tids = |list: &[usize]| -> Vec<u32> {
        list.iter()
            .map(|thread| threads[*thread].task.tid)
            .collect()
    };
    json!({
        "kind": match deadlock.kind {
            Kind::Circle => "circle",
            Kind::Process => "process",
            Kind::Abandoned => "abandoned",
        },
        "threads": tids(&deadlock.members),
        "behind": tids(&deadlock.behind),
        "timed": deadlock.timed,
        "certain": deadlock.certain,
    })
}

fn wait_json(snapshot: &Snapshot, wait: &Wait) -> Value {
    let thread = &snapshot.threads.all[wait.waiter];
    let mut object = task_json(&thread.task);
    object.insert("class".into(), wait.kind.name().into());
    object.insert("lock".into(), wait.name.clone().into());
    if let Identity::Private { address, .. } = wait.lock {
        object.insert("address".into(), format!("{address:#x}").into());
    }
    object.insert("timed".into(), wait.timed.into());
    object.insert("waited_ns".into(), wait.told.since_ns.into());
    let statement = snapshot.statements.get(&wait.waiter).cloned();
    object.insert("statement".into(), statement.into());
    object.insert("holder".into(), holder_json(snapshot, wait.holder));
    let also = wait.told.also.iter();
    let also = also.map(|thread| task_json(&snapshot.threads.all[*thread].task).into());
    object.insert("also".into(), also.collect::<Vec<Value>>().into());
    if let Some(stack) = snapshot.stacks.get(&wait.waiter) {
        add_stack(&mut object, stack);
    }
    Value::Object(object)
}

fn holder_json(snapshot: &Snapshot, holder: Holder) -> Value {
    let mut object = Map::new();
    let kind = match holder {
        Holder::Thread(_) => "thread",
        Holder::Perhaps(_) => "perhaps",
        Holder::Ahead(_) => "ahead",
        Holder::Gone(tid) => {
            object.insert("tid".into(), tid.into());
            "gone"
        }
        Holder::Readers(readers) => {
            object.insert("readers".into(), readers.into());
            "readers"
        }
        Holder::Process(leader) => {
            object = task_json(&snapshot.threads.all[leader].task);
            object.remove("tid");
            "process"
        }
        Holder::Unrecorded => "unrecorded",
    };
    if let Some(index) = holder.thread() {
        let thread = &snapshot.threads.all[index];
        let stack = snapshot.stacks.get(&index);
        object = task_json(&thread.task);
        let said = snapshot.said.get(&index).map(String::as_str);
        object.insert("state".into(), activity(thread, stack, said).into());
        let statement = snapshot.statements.get(&index).cloned();
        object.insert("statement".into(), statement.into());
        if let Some(stack) = stack {
            add_stack(&mut object, stack);
        }
    }
    object.insert("kind".into(), kind.into());
    Value::Object(object)
}

fn task_json(task: &Task) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("comm".into(), task.comm.to_string().into());
    object.insert("pid".into(), task.tgid.into());
    object.insert("tid".into(), task.tid.into());
    object
}

fn add_stack(object: &mut Map<String, Value>, stack: &Stack) {
    let names = |frames: &[Frame]| -> Vec<String> {
        frames.iter().map(|frame| frame.name.to_string()).collect()
    };
    object.insert("user".into(), names(&stack.user).into());
    if let Some(end) = stack.user_end {
        object.insert("user_complete".into(), (end == StackEnd::Root).into());
    }
    object.insert("kernel".into(), names(&stack.kernel).into());
}
