//! Our own JSON, see [`crate::json`].

use std::io::BufRead;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::ReadError;
use crate::frame::FrameKind;
use crate::model::StackEnd;
use crate::recording::{
    FrameKey, Header, NameId, Recording, RowKey, StackId, TaskKey, Value, WakerKey,
};

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    tool: String,
    #[serde(default)]
    duration_ns: u64,
    values: Vec<ValueObject>,
    stacks: Vec<StackObject>,
    #[serde(flatten)]
    extra: Map<String, Json>,
}

#[derive(Deserialize)]
struct ValueObject {
    name: String,
    unit: String,
}

#[derive(Deserialize)]
struct StackObject {
    #[serde(flatten)]
    task: TaskObject,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    idle: bool,
    count: u64,
    values: Vec<u64>,
    #[serde(default)]
    user: Vec<FrameObject>,
    user_end: Option<String>,
    #[serde(default)]
    kernel: Vec<FrameObject>,
    waker: Option<WakerObject>,
}

#[derive(Default, Deserialize)]
struct TaskObject {
    #[serde(default)]
    comm: Option<String>,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    tid: u32,
}

#[derive(Deserialize)]
struct WakerObject {
    #[serde(flatten)]
    task: TaskObject,
    #[serde(default)]
    user: Vec<FrameObject>,
    user_end: Option<String>,
    #[serde(default)]
    kernel: Vec<FrameObject>,
}

#[derive(Deserialize)]
struct FrameObject {
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    module: String,
    #[serde(default)]
    inlined: bool,
    #[serde(default)]
    file: String,
    #[serde(default)]
    line: u32,
}

/// Reads every object: a file may have one per interval. Their values must be the same.
pub(super) fn read(input: &mut impl BufRead) -> Result<Recording, ReadError> {
    let mut recording: Option<Recording> = None;
    let mut documents = serde_json::Deserializer::from_reader(input).into_iter::<Document>();
    while let Some(document) = documents.next() {
        let at = documents.byte_offset() as u64;
        let document = document.map_err(|err| wrong(&err, at))?;
        let header = header(&document);
        let recording = recording.get_or_insert_with(|| Recording::new(header.clone()));
        if recording.header.values != header.values {
            return Err(ReadError::at("its values differ from those before it", at));
        }
        if recording.rows().len() > 0 {
            let sum = recording
                .header
                .duration_ns
                .saturating_add(header.duration_ns);
            recording.header.duration_ns = sum;
        }
        for stack in &document.stacks {
            let key = key(stack, recording);
            recording.add(&key, stack.count, &stack.values);
        }
    }
    recording.ok_or_else(|| ReadError::whole("holds no profile"))
}

fn wrong(err: &serde_json::Error, at: u64) -> ReadError {
    ReadError::at(format!("not usekit's JSON: {err}"), at)
}

fn header(document: &Document) -> Header {
    let values = document.values.iter().map(|value| Value {
        name: value.name.clone(),
        unit: value.unit.clone(),
    });
    let comments = ["losses", "cost"].into_iter().filter_map(|key| {
        let value = document.extra.get(key)?;
        Some(format!("{key}: {value}"))
    });
    let frequency = document.extra.get("frequency_hz").and_then(Json::as_u64);
    Header {
        tool: document.tool.clone(),
        values: values.collect(),
        duration_ns: document.duration_ns,
        period_ns: frequency.map_or(0, |hertz| 1_000_000_000 / hertz.max(1)),
        comments: comments.collect(),
        has_counts: true,
        ..Header::default()
    }
}

fn key(stack: &StackObject, recording: &mut Recording) -> RowKey {
    let waker = stack.waker.as_ref().map(|waker| WakerKey {
        task: (waker.task.comm.is_some()).then(|| task(&waker.task, recording)),
        stack: push(&waker.user, &waker.kernel, recording),
        end: end(waker.user_end.as_deref()),
    });
    RowKey {
        task: task(&stack.task, recording),
        stack: push(&stack.user, &stack.kernel, recording),
        end: end(stack.user_end.as_deref()),
        reason: recording.names.id(&stack.reason),
        idle: stack.idle,
        waker,
        labels: 0,
    }
}

fn task(task: &TaskObject, recording: &mut Recording) -> TaskKey {
    TaskKey {
        comm: recording.names.id(task.comm.as_deref().unwrap_or_default()),
        pid: task.pid,
        tid: task.tid,
    }
}

fn end(word: Option<&str>) -> Option<StackEnd> {
    StackEnd::ALL
        .into_iter()
        .find(|end| Some(end.word()) == word)
}

fn push(user: &[FrameObject], kernel: &[FrameObject], recording: &mut Recording) -> StackId {
    user.iter().chain(kernel).fold(0, |stack, frame| {
        let address = frame.address.trim_start_matches("0x");
        let key = FrameKey {
            name: recording.names.id(&frame.name),
            module: recording.names.id(&frame.module),
            file: if frame.file.is_empty() {
                NameId::NONE
            } else {
                recording.names.id(&frame.file)
            },
            line: frame.line,
            address: u64::from_str_radix(address, 16).unwrap_or(0),
            kind: FrameKind::of_word(&frame.kind),
            inlined: frame.inlined,
        };
        recording.push(stack, key)
    })
}
