//! pprof's `profile.proto`, of ours and of others.

use prost::Message;

use super::fields::{Field, LARGEST_MESSAGE, damaged, fields};
use super::{DEEPEST, MOST_REMARKS, ReadError};
use crate::columns::{CLOCK, TOTAL};
use crate::frame::FrameKind;
use crate::model::StackEnd;
use crate::pprof::{Function, Location, Mapping, Profile, Sample, ValueType, place};
use crate::recording::{FrameKey, Header, Labels, Map, NameId, Recording, RowKey, TaskKey, Value};

/// The document's parts before they are put together: tables may come behind what refers to them.
#[derive(Default)]
struct Parts<'a> {
    /// All that is neither a sample nor in one of the tables below.
    header: Profile,
    mappings: Map<u64, Mapping>,
    locations: Map<u64, Location>,
    functions: Map<u64, Function>,
    strings: Vec<&'a [u8]>,
    /// Of all tables together.
    entries: usize,
}

/// Entries of tables that are believed; the largest profiles have some hundred thousand.
const MOST_ENTRIES: usize = 16 << 20;
fn too_deep(at: u64) -> ReadError {
    ReadError::at("more than 16,384 frames", at)
}

/// Reads a whole, uncompressed document.
pub(super) fn read(document: &[u8]) -> Result<Recording, ReadError> {
    let mut parts = Parts::default();
    for field in fields(document) {
        parts.take(&field?)?;
        if parts.entries > MOST_ENTRIES {
            return Err(ReadError::whole("more than 16,777,216 names and addresses"));
        }
    }
    if parts.strings.first().is_some_and(|first| !first.is_empty()) {
        return Err(ReadError::whole(
            "not a pprof profile: its first string is not empty",
        ));
    }
    let mut recording = Recording::new(parts.header()?);
    let count = recording
        .header
        .values
        .iter()
        .position(|value| value.unit == "count");
    let kept = parts.drawn_first(parts.kept(&recording.header));
    recording.header.values = kept
        .iter()
        .map(|at| recording.header.values[*at].clone())
        .collect();
    recording.header.has_counts = count.is_some();
    let mut frames: Map<u64, Vec<FrameKey>> = Map::default();
    // Again, now that everything that samples refer to is known.
    for field in fields(document) {
        let field = field?;
        if field.number != 2 {
            continue;
        }
        let base = field.at as u64;
        let sample = parts.sample(&field)?;
        let mut chain = Vec::new();
        for id in sample.location_id.iter().rev() {
            if !frames.contains_key(id) {
                let found = parts.frames_of(*id, &mut recording);
                let found =
                    found.ok_or_else(|| ReadError::at(format!("no location {id}"), base))?;
                frames.insert(*id, found);
            }
            chain.extend_from_slice(&frames[id]);
            if chain.len() > DEEPEST {
                return Err(too_deep(base));
            }
        }
        let key = parts.key(&sample, &chain, &mut recording)?;
        let values: Vec<u64> = kept.iter().map(|at| sample.value[*at]).collect();
        recording.add(&key, count.map_or(0, |at| sample.value[at]), &values);
    }
    Ok(recording)
}

/// Beginning of the comment that our own have.
const OURS: &str = "made by usekit ";

impl<'a> Parts<'a> {
    fn take(&mut self, field: &Field<'a>) -> Result<(), ReadError> {
        self.entries += usize::from(matches!(field.number, 1 | 3..=6 | 13));
        match field.number {
            // Later.
            2 => {}
            3 => {
                let mapping: Mapping = field.message()?;
                self.mappings.insert(mapping.id, mapping);
            }
            4 => {
                let location: Location = field.message()?;
                if location.line.len() > DEEPEST {
                    return Err(too_deep(field.at as u64));
                }
                self.entries += location.line.len();
                self.locations.insert(location.id, location);
            }
            5 => {
                let function: Function = field.message()?;
                self.functions.insert(function.id, function);
            }
            6 => self.strings.push(field.content),
            // Comments without end: numbers take eight times the memory that they take in the document.
            13 if field.content.len() > LARGEST_MESSAGE
                || self.header.comment.len() >= MOST_REMARKS => {}
            _ => {
                let merged = self.header.merge(field.whole);
                merged.map_err(|_| damaged(field.at))?;
            }
        }
        Ok(())
    }

    fn sample(&self, field: &Field<'a>) -> Result<Sample, ReadError> {
        let sample: Sample = field.message()?;
        let at = field.at as u64;
        if sample.location_id.len().max(sample.label.len()) > DEEPEST {
            return Err(too_deep(at));
        }
        if sample.value.iter().any(|value| *value >> 63 == 1) {
            let what = "a negative value: a difference of profiles is no profile";
            return Err(ReadError::at(what, at));
        }
        if sample.value.len() != self.header.sample_type.len() {
            // Tables of strings begin with an empty one.
            let what = match self.strings.iter().skip(1).any(|text| text.is_empty()) {
                true => "several profiles in one file: give each one by itself",
                false => "a sample's values are not as many as their types",
            };
            return Err(ReadError::at(what, at));
        }
        Ok(sample)
    }

    fn text(&self, index: u64) -> Result<std::borrow::Cow<'a, str>, ReadError> {
        let text = usize::try_from(index)
            .ok()
            .and_then(|index| self.strings.get(index));
        match text {
            Some(text) => Ok(String::from_utf8_lossy(text)),
            None if index == 0 => Ok("".into()),
            None => Err(ReadError::whole(format!("damaged: no string {index}"))),
        }
    }

    /// Which values are kept: the samples beside other values are what [`crate::recording::Row::count`] says already.
    /// What we add to our own for pprof's sake follows from the others.
    fn kept(&self, header: &Header) -> Vec<usize> {
        let is = |at: usize, name: &str| {
            self.text(self.header.sample_type[at].name)
                .is_ok_and(|text| text == name)
        };
        let unit = |at: usize| {
            self.text(self.header.sample_type[at].unit)
                .unwrap_or_default()
        };
        let is_derived = |at: &usize| {
            let is_clock = is(*at, CLOCK.0) && header.period_ns > 0;
            !header.tool.is_empty() && (is(*at, TOTAL) || is_clock)
        };
        let all = (0..self.header.sample_type.len()).filter(|at| !is_derived(at));
        let is_count =
            |at: &usize| (is(*at, "samples") || is(*at, "events")) && unit(*at) == "count";
        let others: Vec<usize> = all.clone().filter(|at| !is_count(at)).collect();
        if others.is_empty() {
            all.collect()
        } else {
            others
        }
    }

    /// Puts that value first which the profile is looked at by; of others' profiles that do not say which, pprof shows the last.
    fn drawn_first(&self, mut kept: Vec<usize>) -> Vec<usize> {
        let default = self.header.default_sample_type;
        let drawn = kept
            .iter()
            .position(|at| default != 0 && self.is_named(*at, default));
        let last = kept.len().checked_sub(1).filter(|_| !self.is_ours());
        if let Some(drawn) = drawn.or(last) {
            kept[..=drawn].rotate_right(1);
        }
        kept
    }

    fn is_named(&self, at: usize, name: u64) -> bool {
        let [own, other] = [self.header.sample_type[at].name, name].map(|name| self.text(name));
        own.is_ok_and(|own| other.is_ok_and(|other| own == other))
    }

    fn is_ours(&self) -> bool {
        let mut comments = self.header.comment.iter();
        comments.any(|comment| self.text(*comment).is_ok_and(|text| text.starts_with(OURS)))
    }

    fn header(&self) -> Result<Header, ReadError> {
        let mut values = Vec::new();
        for ValueType { name, unit } in &self.header.sample_type {
            let unit = self.text(*unit)?;
            values.push(Value {
                name: self.text(*name)?.into_owned(),
                unit: if unit == "nanoseconds" {
                    "ns".into()
                } else {
                    unit.into_owned()
                },
            });
        }
        let mut comments = Vec::new();
        let mut tool = String::new();
        for comment in self.header.comment.iter().take(MOST_REMARKS) {
            let comment = self.text(*comment)?.into_owned();
            match comment.strip_prefix(OURS) {
                Some(name) => name.clone_into(&mut tool),
                None => comments.push(comment),
            }
        }
        let mut build_ids = std::collections::BTreeMap::new();
        for mapping in self.mappings.values() {
            if mapping.build_id != 0 {
                let file = self.text(mapping.filename)?.into_owned();
                build_ids.insert(file, self.text(mapping.build_id)?.into_owned());
            }
        }
        let period_type = self.header.period_type.unwrap_or_default();
        let is_time = self.text(period_type.unit)? == "nanoseconds";
        let event = if is_time || tool.is_empty() {
            String::new()
        } else {
            self.text(period_type.name)?.into_owned()
        };
        Ok(Header {
            tool,
            event,
            values,
            are_apart: !self.is_ours(),
            duration_ns: self.header.duration_nanos,
            time_ns: self.header.time_nanos,
            period_ns: if is_time { self.header.period } else { 0 },
            comments,
            build_ids,
            ..Header::default()
        })
    }

    /// The frames of a location, root → leaf.
    fn frames_of(&self, id: u64, recording: &mut Recording) -> Option<Vec<FrameKey>> {
        let location = self.locations.get(&id)?;
        let module = match self.mappings.get(&location.mapping_id) {
            Some(mapping) => self.text(mapping.filename).ok()?,
            None => "".into(),
        };
        let kind = match &*module {
            "" => FrameKind::Unknown,
            "[jit]" => FrameKind::Jit,
            _ if module.starts_with("[kernel") || module.starts_with("[bpf") => FrameKind::Kernel,
            _ if module.starts_with('[') && location.address >> 63 == 1 => FrameKind::Kernel,
            _ if module.ends_with("vmlinux") => FrameKind::Kernel,
            _ => FrameKind::User,
        };
        let module_id = match &*module {
            "[jit]" => NameId::NONE,
            module => recording.names.id(module),
        };
        let blank = FrameKey {
            module: module_id,
            address: location.address,
            kind,
            ..FrameKey::named(NameId::NONE)
        };
        if location.line.is_empty() {
            let name = recording.names.id(&place(&module, location.address));
            return Some(vec![FrameKey { name, ..blank }]);
        }
        let last = location.line.len() - 1;
        let mut frames = Vec::new();
        for (index, line) in location.line.iter().enumerate().rev() {
            let function = self.functions.get(&line.function_id)?;
            let name = self.text(function.name).ok()?;
            let file = self.text(function.filename).ok()?;
            frames.push(FrameKey {
                name: recording.names.id(&name),
                file: recording.names.id(&file),
                line: u32::try_from(line.line).unwrap_or(0),
                inlined: index < last,
                ..blank
            });
        }
        Some(frames)
    }

    /// Labels that mean the same everywhere become parts of the key; others are kept as they are.
    fn key(
        &self,
        sample: &Sample,
        chain: &[FrameKey],
        recording: &mut Recording,
    ) -> Result<RowKey, ReadError> {
        let found = recording.unchain(chain);
        let mut key = found.key(TaskKey::named(NameId::NONE));
        let mut labels = Labels::new();
        for label in &sample.label {
            let (name, text) = (self.text(label.key)?, self.text(label.str)?);
            let id = u32::try_from(label.num).unwrap_or(0);
            match &*name {
                "comm" | "thread" | "thread_name" if !key.task.comm.is_some() => {
                    key.task.comm = recording.names.id(&text);
                }
                "pid" | "process_id" if text.is_empty() => key.task.pid = id,
                "tid" | "thread_id" if text.is_empty() => key.task.tid = id,
                "reason" => key.reason = recording.names.id(&text),
                "idle" => key.idle = text == "true",
                "user_end" => key.end = StackEnd::of_word(&text),
                _ => {
                    let unit = self.text(label.num_unit)?;
                    let shown = if text.is_empty() {
                        format!("{} {unit}", label.num as i64)
                    } else {
                        text.into_owned()
                    };
                    labels.push((
                        recording.names.id(&name),
                        recording.names.id(shown.trim_end()),
                    ));
                }
            }
        }
        key.labels = recording.label_set(labels);
        Ok(key)
    }
}

#[cfg(test)]
#[path = "pprof_tests.rs"]
mod tests;
