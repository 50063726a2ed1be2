//! What JSON has for each part of a profile, borrowed from it. Field order is the order in the file.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::frame::Frame;
use crate::model::{Profile, Sample, StackEnd, Task, Waker};

/// The whole object.
pub(super) fn document<'a>(profile: &'a Profile, extra: &'a Map<String, Value>) -> Document<'a> {
    let values = profile.values.iter();
    Document {
        tool: profile.tool,
        version: env!("CARGO_PKG_VERSION"),
        duration_ns: profile.duration_ns,
        values: values
            .map(|value| ValueObject {
                name: value.name,
                unit: value.unit,
            })
            .collect(),
        stacks: Stacks(&profile.samples),
        extra,
    }
}

#[derive(Serialize)]
pub(super) struct Document<'a> {
    tool: &'static str,
    version: &'static str,
    duration_ns: u64,
    values: Vec<ValueObject>,
    stacks: Stacks<'a>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct ValueObject {
    name: &'static str,
    unit: &'static str,
}

/// Written one by one: a profile's frames are shared, its JSON is many times as large.
struct Stacks<'a>(&'a [Sample]);

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(StackObject::new))
    }
}

#[derive(Serialize)]
struct StackObject<'a> {
    #[serde(flatten)]
    task: TaskObject<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "is_false")]
    idle: bool,
    count: u64,
    values: &'a [u64],
    user: Frames<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_end: Option<&'static str>,
    kernel: Frames<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waker: Option<WakerObject<'a>>,
}

impl<'a> StackObject<'a> {
    fn new(sample: &'a Sample) -> Self {
        Self {
            task: TaskObject::new(&sample.task),
            reason: sample.reason,
            idle: sample.idle,
            count: sample.count,
            values: &sample.values,
            user: Frames(&sample.user),
            user_end: sample.user_end.map(StackEnd::word),
            kernel: Frames(&sample.kernel),
            waker: sample.waker.as_deref().map(WakerObject::new),
        }
    }
}

#[derive(Serialize)]
struct TaskObject<'a> {
    comm: &'a str,
    pid: u32,
    tid: u32,
}

impl<'a> TaskObject<'a> {
    fn new(task: &'a Task) -> Self {
        Self {
            comm: &task.comm,
            pid: task.tgid,
            tid: task.tid,
        }
    }
}

#[derive(Serialize)]
struct WakerObject<'a> {
    #[serde(flatten)]
    task: Option<TaskObject<'a>>,
    user: Frames<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_end: Option<&'static str>,
    kernel: Frames<'a>,
}

impl<'a> WakerObject<'a> {
    fn new(waker: &'a Waker) -> Self {
        Self {
            task: waker.task.as_ref().map(TaskObject::new),
            user: Frames(&waker.user),
            user_end: waker.user_end.map(StackEnd::word),
            kernel: Frames(&waker.kernel),
        }
    }
}

struct Frames<'a>(&'a [Frame]);

impl Serialize for Frames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(FrameObject::new))
    }
}

#[derive(Serialize)]
struct FrameObject<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    inlined: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> FrameObject<'a> {
    fn new(frame: &'a Frame) -> Self {
        Self {
            name: &frame.name,
            kind: frame.kind.word(),
            address: format!("{:#x}", frame.address),
            module: frame.module.as_deref(),
            inlined: frame.inlined,
            file: frame.line.as_ref().map(|(file, _)| &**file),
            line: frame.line.as_ref().map(|(_, line)| *line),
        }
    }
}

// serde hands over a reference.
fn is_false(value: &bool) -> bool {
    !value
}
