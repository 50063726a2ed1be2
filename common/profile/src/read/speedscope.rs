//! speedscope's file format, sampled and evented.

use std::io::BufRead;

use serde::Deserialize;

use super::{DEEPEST, ReadError};
use crate::frame::FrameKind;
use crate::recording::{FrameKey, Header, NameId, Recording, RowKey, TaskKey, Value};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    shared: Shared,
    profiles: Vec<Profile>,
    #[serde(default)]
    exporter: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    name: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<u32>,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    module: String,
    #[serde(default)]
    inlined: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Profile {
    Sampled {
        name: String,
        unit: String,
        samples: Vec<Vec<usize>>,
        weights: Vec<f64>,
    },
    Evented {
        name: String,
        unit: String,
        events: Vec<Event>,
    },
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: char,
    at: f64,
    frame: usize,
}

/// Reads all profiles of the first one's unit. In our own files the first frame is the thread; in others each profile is one.
pub(super) fn read(input: &mut impl BufRead) -> Result<Recording, ReadError> {
    let document: Document = serde_json::from_reader(input)
        .map_err(|err| ReadError::whole(format!("not speedscope's JSON: {err}")))?;
    let is_ours = document.exporter.starts_with("usekit");
    let Some(first) = document.profiles.first() else {
        return Err(ReadError::whole("holds no profile"));
    };
    let (unit, factor) = unit(first.unit());
    let name = if is_ours {
        first.name().to_owned()
    } else {
        value_name(unit).into()
    };
    let mut recording = Recording::new(Header {
        tool: if is_ours {
            document.name.clone()
        } else {
            String::new()
        },
        values: vec![Value {
            name,
            unit: unit.into(),
        }],
        has_counts: unit == "count",
        ..Header::default()
    });
    let frames: Vec<FrameKey> = document
        .shared
        .frames
        .iter()
        .map(|frame| frame.key(&mut recording))
        .collect();
    for profile in document
        .profiles
        .iter()
        .filter(|profile| profile.unit() == first.unit())
    {
        if is_ours && profile.name() != first.name() {
            continue;
        }
        let mut samples = Samples {
            recording: &mut recording,
            frames: &frames,
            factor,
            thread: (!is_ours).then_some(profile.name()),
        };
        samples.add_all(profile)?;
    }
    Ok(recording)
}

impl Profile {
    fn unit(&self) -> &str {
        match self {
            Self::Sampled { unit, .. } | Self::Evented { unit, .. } => unit,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Sampled { name, .. } | Self::Evented { name, .. } => name,
        }
    }
}

fn unit(name: &str) -> (&'static str, f64) {
    match name {
        "nanoseconds" => ("ns", 1.0),
        "microseconds" => ("ns", 1e3),
        "milliseconds" => ("ns", 1e6),
        "seconds" => ("ns", 1e9),
        "bytes" => ("bytes", 1.0),
        _ => ("count", 1.0),
    }
}

fn value_name(unit: &str) -> &'static str {
    match unit {
        "ns" => "time",
        "bytes" => "bytes",
        _ => "samples",
    }
}

impl Frame {
    fn key(&self, recording: &mut Recording) -> FrameKey {
        let names = &mut recording.names;
        FrameKey {
            module: names.id(&self.module),
            file: names.id(self.file.as_deref().unwrap_or_default()),
            line: self.line.unwrap_or(0),
            kind: FrameKind::of_word(&self.kind),
            inlined: self.inlined,
            ..FrameKey::named(names.id(&self.name))
        }
    }
}

struct Samples<'a> {
    recording: &'a mut Recording,
    frames: &'a [FrameKey],
    factor: f64,
    /// `None`: the first frame is the thread.
    thread: Option<&'a str>,
}

impl Samples<'_> {
    fn add_all(&mut self, profile: &Profile) -> Result<(), ReadError> {
        match profile {
            Profile::Sampled {
                samples, weights, ..
            } => {
                if samples.len() != weights.len() {
                    return Err(ReadError::whole("as many weights as samples are needed"));
                }
                for (stack, weight) in samples.iter().zip(weights) {
                    self.add(stack, *weight)?;
                }
            }
            Profile::Evented { events, .. } => self.add_events(events)?,
        }
        Ok(())
    }

    /// Time between two events belongs to the stack that is open then.
    fn add_events(&mut self, events: &[Event]) -> Result<(), ReadError> {
        let mut open: Vec<usize> = Vec::new();
        let mut last = events.first().map_or(0.0, |event| event.at);
        for event in events {
            if event.at < last {
                return Err(ReadError::whole("events run backwards"));
            }
            if event.at > last && !open.is_empty() {
                self.add(&open, event.at - last)?;
            }
            last = event.at;
            match event.kind {
                'O' => open.push(event.frame),
                _ if open.pop() == Some(event.frame) => {}
                _ => return Err(ReadError::whole("an event closes a frame that is not open")),
            }
        }
        Ok(())
    }

    fn add(&mut self, stack: &[usize], weight: f64) -> Result<(), ReadError> {
        let value = (weight * self.factor).round();
        if !(0.0..1.8e19).contains(&value) || stack.len() > DEEPEST {
            return Err(ReadError::whole("a weight or a stack is out of bounds"));
        }
        let value = value as u64;
        let frames: Option<Vec<FrameKey>> = stack
            .iter()
            .map(|at| self.frames.get(*at).copied())
            .collect();
        let mut frames =
            frames.ok_or_else(|| ReadError::whole("a sample names a frame that is not there"))?;
        let comm = match self.thread {
            Some(thread) => self.recording.names.id(thread),
            None if frames.is_empty() => NameId::NONE,
            None => frames.remove(0).name,
        };
        let found = self.recording.unchain(&frames);
        let key = RowKey {
            task: TaskKey {
                comm,
                pid: 0,
                tid: 0,
            },
            stack: found.stack,
            end: None,
            reason: found.reason,
            idle: found.idle,
            waker: found.waker,
            labels: 0,
        };
        let count = if self.recording.header.has_counts {
            value
        } else {
            0
        };
        self.recording.add(&key, count, &[value]);
        Ok(())
    }
}
