//! Our own JSON, see [`crate::json`]: stack by stack, so that memory follows what is different in it, not its length.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value as Json;

use super::limits::{Limited, Limits};
use super::{DEEPEST, MOST_REMARKS, ReadError};
use crate::frame::FrameKind;
use crate::json::{FrameObject, StackObject};
use crate::model::StackEnd;
use crate::recording::{FrameKey, Header, Recording, RowKey, StackId, Value, WakerKey};

/// Bytes of them that are kept.
const LONGEST_REMARKS: usize = 16 << 20;

/// Reads every object: a file may have one per interval. Their values must be the same.
pub(super) fn read(input: &mut impl BufRead) -> Result<Recording, ReadError> {
    let limits = Limits::default();
    let limited = Limited {
        input,
        limits: &limits,
    };
    let mut remarks = Remarks::default();
    let wrong = |err: serde_json::Error| {
        if err.is_io() {
            return ReadError::io(&err.into(), limits.offset.get());
        }
        ReadError::at(format!("not usekit's JSON: {err}"), limits.offset.get())
    };
    let mut recording: Option<Recording> = None;
    let mut deserializer = serde_json::Deserializer::from_reader(limited);
    loop {
        limits.begin_ignored();
        match deserializer.end() {
            Ok(()) => break,
            Err(err) if err.is_io() => return Err(wrong(err)),
            // Another object follows.
            Err(_) => {}
        }
        let object = Object(&mut recording, &mut remarks, &limits);
        object.deserialize(&mut deserializer).map_err(wrong)?;
    }
    recording.ok_or_else(|| ReadError::whole("holds no profile"))
}

/// One object, added to what those before it were.
struct Object<'a>(&'a mut Option<Recording>, &'a mut Remarks, &'a Limits);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut about = About::default();
        // Stacks come behind what their values are; elsewhere they have to wait.
        let mut early: Option<Vec<StackObject<'_>>> = None;
        let mut is_done = false;
        let limits = self.2;
        limits.begin_object();
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "stacks" if about.values.is_some() && !is_done => {
                    let recording = about.recording(self.0)?;
                    let left = limits.begin_stack();
                    map.next_value_seed(Stacks(recording, limits))?;
                    limits.resume(left);
                    is_done = true;
                }
                "stacks" => {
                    let left = limits.begin_early();
                    early = Some(map.next_value()?);
                    limits.resume(left);
                }
                "tool" => about.tool = map.next_value()?,
                "event" => about.event = map.next_value()?,
                "duration_ns" => about.duration_ns = map.next_value()?,
                "time_ns" => about.time_ns = map.next_value()?,
                "sample_period_ns" => about.period_ns = map.next_value()?,
                "values" => about.values = Some(map.next_value()?),
                "comments" => about.comments = map.next_value()?,
                "losses" | "cost" => {
                    let account: Json = map.next_value()?;
                    about.accounts.push(format!("{key}: {account}"));
                }
                "build_ids" => about.build_ids = map.next_value()?,
                _ => {
                    let left = limits.begin_ignored();
                    map.next_value::<IgnoredAny>()?;
                    limits.resume(left);
                }
            }
        }
        let recording = about.recording(self.0)?;
        for stack in early.iter().flatten() {
            add(stack, recording).map_err(A::Error::custom)?;
        }
        if !is_done && early.is_none() {
            return Err(A::Error::missing_field("stacks"));
        }
        about.finish(&mut recording.header, self.1);
        Ok(())
    }
}

/// What an object says besides its stacks.
#[derive(Default)]
struct About {
    values: Option<Vec<Value>>,
    tool: String,
    event: String,
    duration_ns: u64,
    time_ns: u64,
    period_ns: u64,
    comments: Vec<String>,
    /// Where there are no comments.
    accounts: Vec<String>,
    build_ids: BTreeMap<String, String>,
}

/// What was kept of all objects, bytes.
#[derive(Default)]
struct Remarks(usize);

impl Remarks {
    fn have_room(&mut self, bytes: usize) -> bool {
        self.0 = self.0.saturating_add(bytes);
        self.0 <= LONGEST_REMARKS
    }
}

impl About {
    /// The recording that stacks of such values go to.
    fn recording<'a, E: serde::de::Error>(
        &self,
        recording: &'a mut Option<Recording>,
    ) -> Result<&'a mut Recording, E> {
        let values = self
            .values
            .as_ref()
            .ok_or_else(|| E::missing_field("values"))?;
        let recording = recording.get_or_insert_with(|| {
            Recording::new(Header {
                values: values.clone(),
                has_counts: true,
                ..Header::default()
            })
        });
        if recording.header.values != *values {
            return Err(E::custom("its values differ from those before it"));
        }
        Ok(recording)
    }

    /// The first object says what it is, all say how long it took and what was lost.
    fn finish(self, header: &mut Header, remarks: &mut Remarks) {
        header.duration_ns = header.duration_ns.saturating_add(self.duration_ns);
        if header.tool.is_empty() {
            (header.tool, header.event) = (self.tool, self.event);
            (header.time_ns, header.period_ns) = (self.time_ns, self.period_ns);
        }
        let comments = if self.comments.is_empty() {
            self.accounts
        } else {
            self.comments
        };
        let room = MOST_REMARKS.saturating_sub(header.comments.len());
        let comments = comments.into_iter().take(room);
        let comments = comments.take_while(|comment| remarks.have_room(comment.len()));
        header.comments.extend(comments);
        for (file, id) in self.build_ids {
            if header.build_ids.len() >= MOST_REMARKS || !remarks.have_room(file.len() + id.len()) {
                break;
            }
            header.build_ids.insert(file, id);
        }
    }
}

/// The stacks, one after the other.
struct Stacks<'a>(&'a mut Recording, &'a Limits);

impl<'de> DeserializeSeed<'de> for Stacks<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Stacks<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of stacks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut stacks: A) -> Result<(), A::Error> {
        while let Some(stack) = stacks.next_element()? {
            add(&stack, self.0).map_err(A::Error::custom)?;
            self.1.begin_stack();
        }
        Ok(())
    }
}

fn add(stack: &StackObject<'_>, recording: &mut Recording) -> Result<(), &'static str> {
    let waker = stack.waker.as_ref();
    let frames = |user: &[FrameObject<'_>], kernel: &[FrameObject<'_>]| user.len() + kernel.len();
    if frames(&stack.user, &stack.kernel).max(waker.map_or(0, |w| frames(&w.user, &w.kernel)))
        > DEEPEST
    {
        return Err("more than 16,384 frames");
    }
    if stack.values.len() != recording.header.values.len() {
        return Err("a stack's values are not as many as their types");
    }
    let waker = waker.map_or(0, |waker| {
        let comm = waker.comm.as_ref();
        let waker = WakerKey {
            task: comm.map(|comm| {
                let [pid, tid] = [waker.pid, waker.tid].map(Option::unwrap_or_default);
                recording.task(comm, pid, tid)
            }),
            stack: push(&waker.user, &waker.kernel, recording),
            end: waker.user_end.as_deref().and_then(StackEnd::of_word),
        };
        recording.waker_id(&waker)
    });
    let key = RowKey {
        task: recording.task(&stack.comm, stack.pid, stack.tid),
        stack: push(&stack.user, &stack.kernel, recording),
        end: stack.user_end.as_deref().and_then(StackEnd::of_word),
        reason: recording
            .names
            .id(stack.reason.as_deref().unwrap_or_default()),
        idle: stack.idle,
        waker,
        labels: 0,
    };
    recording.add(&key, stack.count, &stack.values);
    Ok(())
}

fn push(
    user: &[FrameObject<'_>],
    kernel: &[FrameObject<'_>],
    recording: &mut Recording,
) -> StackId {
    user.iter().chain(kernel).fold(0, |stack, frame| {
        let names = &mut recording.names;
        let own = names.id(&frame.name);
        let [module, file] =
            [&frame.module, &frame.file].map(|text| names.id(text.as_deref().unwrap_or_default()));
        let address = frame.address.trim_start_matches("0x");
        let key = FrameKey {
            module,
            file,
            line: frame.line.unwrap_or(0),
            address: u64::from_str_radix(address, 16).unwrap_or(0),
            kind: FrameKind::of_word(frame.kind.as_deref().unwrap_or_default()),
            inlined: frame.inlined,
            ..FrameKey::named(own)
        };
        recording.push(stack, key)
    })
}
