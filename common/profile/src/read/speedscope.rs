//! speedscope's file format, sampled and evented.

use std::io::Read;

use serde::Deserialize;

use super::{DEEPEST, ReadError};
use crate::columns::TOTAL;
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

/// Reads all profiles of the first one's unit. In our own files the first frame is the thread, and each profile is another
/// value of the same stacks; in others each profile is a thread.
pub(super) fn read(input: &mut impl Read) -> Result<Recording, ReadError> {
    let document: Document = serde_json::from_reader(input).map_err(|err| {
        if err.is_io() {
            return ReadError::io(&err.into(), 0);
        }
        ReadError::whole(format!("not speedscope's JSON: {err}"))
    })?;
    let Some(first) = document.profiles.first() else {
        return Err(ReadError::whole("holds no profile"));
    };
    let is_ours = document.exporter.starts_with("usekit");
    let is_sum = |profile: &&Profile| document.profiles.len() > 1 && profile.name() == TOTAL;
    let profiles: Vec<&Profile> = if is_ours {
        let all = document.profiles.iter();
        all.filter(|profile| !is_sum(profile)).collect()
    } else {
        let all = document.profiles.iter();
        all.filter(|profile| profile.unit() == first.unit())
            .collect()
    };
    let mut recording = Recording::new(header(&document, &profiles, is_ours));
    let frames: Vec<FrameKey> = document
        .shared
        .frames
        .iter()
        .map(|frame| frame.key(&mut recording))
        .collect();
    let mut samples = Samples {
        recording: &mut recording,
        frames: &frames,
        thread: None,
    };
    if is_ours {
        samples.add_columns(&profiles)?;
    } else {
        for profile in profiles {
            samples.thread = Some(profile.name());
            samples.add_all(profile)?;
        }
    }
    Ok(recording)
}

fn header(document: &Document, profiles: &[&Profile], is_ours: bool) -> Header {
    let values = profiles.iter().map(|profile| {
        let unit = unit(profile.unit()).0;
        let name = if is_ours {
            profile.name()
        } else {
            value_name(unit)
        };
        Value {
            name: name.to_owned(),
            unit: unit.to_owned(),
        }
    });
    let values: Vec<Value> = values.take(if is_ours { usize::MAX } else { 1 }).collect();
    Header {
        tool: if is_ours {
            document.name.clone()
        } else {
            String::new()
        },
        has_counts: matches!(&*values, [value] if value.unit == "count"),
        values,
        ..Header::default()
    }
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
    /// `None`: the first frame is the thread.
    thread: Option<&'a str>,
}

impl Samples<'_> {
    fn add_all(&mut self, profile: &Profile) -> Result<(), ReadError> {
        let factor = unit(profile.unit()).1;
        match profile {
            Profile::Sampled {
                samples, weights, ..
            } => {
                if samples.len() != weights.len() {
                    return Err(ReadError::whole("as many weights as samples are needed"));
                }
                for (stack, weight) in samples.iter().zip(weights) {
                    self.add(stack, &[weight * factor])?;
                }
            }
            Profile::Evented { events, .. } => self.add_events(events, factor)?,
        }
        Ok(())
    }

    /// Each profile is a value of the first one's stacks.
    fn add_columns(&mut self, profiles: &[&Profile]) -> Result<(), ReadError> {
        let mut columns = Vec::new();
        let mut stacks: &[Vec<usize>] = &[];
        for profile in profiles {
            let Profile::Sampled {
                samples, weights, ..
            } = profile
            else {
                return Err(ReadError::whole("usekit writes no events"));
            };
            if stacks.is_empty() {
                stacks = samples;
            }
            if weights.len() != stacks.len() || samples.len() != stacks.len() {
                return Err(ReadError::whole("as many weights as samples are needed"));
            }
            columns.push((weights, unit(profile.unit()).1));
        }
        for (index, stack) in stacks.iter().enumerate() {
            let weights = columns
                .iter()
                .map(|(weights, factor)| weights[index] * factor);
            self.add(stack, &weights.collect::<Vec<f64>>())?;
        }
        Ok(())
    }

    /// Time between two events belongs to the stack that is open then.
    fn add_events(&mut self, events: &[Event], factor: f64) -> Result<(), ReadError> {
        let mut open: Vec<usize> = Vec::new();
        let mut last = events.first().map_or(0.0, |event| event.at);
        for event in events {
            if event.at < last {
                return Err(ReadError::whole("events run backwards"));
            }
            if event.at > last && !open.is_empty() {
                self.add(&open, &[(event.at - last) * factor])?;
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

    fn add(&mut self, stack: &[usize], weights: &[f64]) -> Result<(), ReadError> {
        let is_bounded = |weight: &f64| (0.0..1.8e19).contains(&weight.round());
        if !weights.iter().all(is_bounded) || stack.len() > DEEPEST {
            return Err(ReadError::whole("a weight or a stack is out of bounds"));
        }
        let values: Vec<u64> = weights.iter().map(|weight| weight.round() as u64).collect();
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
            values[0]
        } else {
            0
        };
        self.recording.add(&key, count, &values);
        Ok(())
    }
}
