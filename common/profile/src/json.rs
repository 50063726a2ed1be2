//! A profile as one JSON object.
//!
//! ```text
//! {"tool": "offcputime", "version": "0.1.0", "duration_ns": 30000000000,
//!  "values": [{"name": "blocked", "unit": "ns"}, …],
//!  "stacks": [{"comm": "redis-server", "pid": 123, "tid": 124, "reason": "futex", "idle": true, "count": 7,
//!              "values": [1234567, 89], "user": [FRAME, …], "kernel": [FRAME, …],
//!              "waker": {"comm": …, "pid": …, "tid": …, "user": […], "kernel": […]} }, …],
//!  …whatever the tool adds: "losses", "cost"… }
//! ```
//!
//! Frames are root → leaf: `{"name", "module", "address": "0x1a2b", "kind": "user" | "kernel" | "jit", "inlined": true,
//! "file", "line"}`. Absent means unknown or false. Addresses are text because JavaScript's numbers end at 2^53. A waker
//! without `comm` is an interrupt.

use serde_json::{Map, Value, json};

use crate::frame::{Frame, FrameKind};
use crate::model::{Profile, Sample, Waker};

/// Builds the object; `extra` fields are the tool's own.
pub fn to_json(profile: &Profile, extra: Map<String, Value>) -> Value {
    let values: Vec<Value> = profile
        .values
        .iter()
        .map(|value| json!({"name": value.name, "unit": value.unit}))
        .collect();
    let mut object = Map::new();
    object.insert("tool".into(), profile.tool.into());
    object.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    object.insert("duration_ns".into(), profile.duration_ns.into());
    object.insert("values".into(), values.into());
    object.insert("stacks".into(), profile.samples.iter().map(stack).collect());
    object.extend(extra);
    Value::Object(object)
}

fn stack(sample: &Sample) -> Value {
    let mut object = json!({
        "comm": &*sample.task.comm,
        "pid": sample.task.tgid,
        "tid": sample.task.tid,
        "count": sample.count,
        "values": sample.values,
        "user": frames(&sample.user),
        "kernel": frames(&sample.kernel),
    });
    if let Some(reason) = sample.reason {
        object["reason"] = reason.into();
    }
    if sample.idle {
        object["idle"] = true.into();
    }
    if let Some(made_runnable_by) = &sample.waker {
        object["waker"] = waker(made_runnable_by);
    }
    object
}

fn waker(waker: &Waker) -> Value {
    let mut object = json!({"user": frames(&waker.user), "kernel": frames(&waker.kernel)});
    if let Some(task) = &waker.task {
        object["comm"] = (*task.comm).into();
        object["pid"] = task.tgid.into();
        object["tid"] = task.tid.into();
    }
    object
}

fn frames(stack: &[Frame]) -> Value {
    stack.iter().map(frame).collect()
}

fn frame(frame: &Frame) -> Value {
    let kind = match frame.kind {
        FrameKind::User => "user",
        FrameKind::Kernel => "kernel",
        FrameKind::Jit => "jit",
    };
    let address = format!("{:#x}", frame.address);
    let mut object = json!({"name": &*frame.name, "kind": kind, "address": address});
    if let Some(module) = &frame.module {
        object["module"] = (**module).into();
    }
    if frame.inlined {
        object["inlined"] = true.into();
    }
    if let Some((file, line)) = &frame.line {
        object["file"] = (**file).into();
        object["line"] = (*line).into();
    }
    object
}
