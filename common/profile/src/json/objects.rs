//! JSON of each part of a profile: borrowed from it to be written, owned when read. Field order is the order in the
//! file.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::frame::Frame;
use crate::model::{Profile, Sample, StackEnd, ValueType, Waker};
use crate::recording::DEEPEST;

/// The whole object.
pub(super) fn document<'a>(profile: &'a Profile, extra: &'a Map<String, Value>) -> Document<'a> {
    Document {
        tool: profile.tool,
        version: env!("CARGO_PKG_VERSION"),
        duration_ns: profile.duration_ns,
        values: &profile.values,
        stacks: Stacks(&profile.samples),
        extra,
    }
}

#[derive(Serialize)]
pub(super) struct Document<'a> {
    tool: &'static str,
    version: &'static str,
    duration_ns: u64,
    values: &'a [ValueType],
    stacks: Stacks<'a>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

/// Written one by one: a profile's frames are shared, its JSON is many times as large.
struct Stacks<'a>(&'a [Sample]);

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(StackObject::new))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StackObject<'a> {
    #[serde(default)]
    pub(crate) comm: Cow<'a, str>,
    #[serde(default)]
    pub(crate) pid: u32,
    #[serde(default)]
    pub(crate) tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) idle: bool,
    pub(crate) count: u64,
    #[serde(deserialize_with = "few")]
    pub(crate) values: Vec<u64>,
    #[serde(default, deserialize_with = "few")]
    pub(crate) user: Vec<FrameObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_end: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "few")]
    pub(crate) kernel: Vec<FrameObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waker: Option<WakerObject<'a>>,
}

impl<'a> StackObject<'a> {
    fn new(sample: &'a Sample) -> Self {
        Self {
            comm: (&*sample.task.comm).into(),
            pid: sample.task.tgid,
            tid: sample.task.tid,
            reason: sample.reason.map(Cow::from),
            idle: sample.idle,
            count: sample.count,
            values: sample.values.clone(),
            user: frames(&sample.user),
            user_end: end(sample.user_end),
            kernel: frames(&sample.kernel),
            waker: sample.waker.as_deref().map(WakerObject::new),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct WakerObject<'a> {
    /// An interrupt has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comm: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tid: Option<u32>,
    #[serde(default, deserialize_with = "few")]
    pub(crate) user: Vec<FrameObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_end: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "few")]
    pub(crate) kernel: Vec<FrameObject<'a>>,
}

impl<'a> WakerObject<'a> {
    fn new(waker: &'a Waker) -> Self {
        let task = waker.task.as_ref();
        Self {
            comm: task.map(|task| (&*task.comm).into()),
            pid: task.map(|task| task.tgid),
            tid: task.map(|task| task.tid),
            user: frames(&waker.user),
            user_end: end(waker.user_end),
            kernel: frames(&waker.kernel),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct FrameObject<'a> {
    pub(crate) name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(crate) address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) module: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) inlined: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
}

impl<'a> FrameObject<'a> {
    fn new(frame: &'a Frame) -> Self {
        Self {
            name: (&*frame.name).into(),
            kind: frame.kind.word().map(Cow::from),
            address: format!("{:#x}", frame.address),
            module: frame.module.as_deref().map(Cow::from),
            inlined: frame.inlined,
            file: frame.line.as_ref().map(|(file, _)| (&**file).into()),
            line: frame.line.as_ref().map(|(_, line)| *line),
        }
    }
}

fn frames(frames: &[Frame]) -> Vec<FrameObject<'_>> {
    frames.iter().map(FrameObject::new).collect()
}

fn end(end: Option<StackEnd>) -> Option<Cow<'static, str>> {
    end.map(|end| end.word().into())
}

// serde hands over a reference.
fn is_false(value: &bool) -> bool {
    !value
}

/// For serde: a list of as many entries as a stack may have frames.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Few(PhantomData))
}

struct Few<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(entry) = list.next_element()? {
            if found.len() == DEEPEST {
                return Err(A::Error::custom("more than 16,384 frames"));
            }
            found.push(entry);
        }
        Ok(found)
    }
}
