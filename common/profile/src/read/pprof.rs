//! pprof's `profile.proto`, of ours and of others.

use super::{DEEPEST, MOST_REMARKS, ReadError};
use crate::columns::{CLOCK, TOTAL};
use crate::frame::FrameKind;
use crate::model::StackEnd;
use crate::protobuf::{Damaged, Field, Fields, numbers};
use crate::recording::{FrameKey, Header, Labels, Map, NameId, Recording, RowKey, TaskKey, Value};

/// The document's parts before they are put together: tables may come behind what refers to them.
#[derive(Default)]
struct Parts<'a> {
    sample_types: Vec<(u64, u64)>,
    /// ID → file name and build ID.
    mappings: Map<u64, (u64, u64)>,
    locations: Map<u64, Location>,
    /// ID → name and file name.
    functions: Map<u64, (u64, u64)>,
    strings: Vec<&'a [u8]>,
    time_ns: u64,
    duration_ns: u64,
    period_type: (u64, u64),
    period: u64,
    comments: Vec<u64>,
    /// Of all tables together.
    entries: usize,
}

/// Entries of tables that are believed; the largest profiles have some hundred thousand.
const MOST_ENTRIES: usize = 16 << 20;

#[derive(Default)]
struct Location {
    mapping: u64,
    address: u64,
    /// Function and line; innermost inlined one first.
    lines: Vec<(u64, u64)>,
}

impl From<Damaged> for ReadError {
    fn from(Damaged(at): Damaged) -> Self {
        Self::at("not a pprof profile, or damaged here", at as u64)
    }
}

/// Reads a whole, uncompressed document.
pub(super) fn read(document: &[u8]) -> Result<Recording, ReadError> {
    let mut parts = Parts::default();
    for field in Fields::new(document, 0) {
        parts.take(field?)?;
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
    let kept: Vec<usize> = parts.kept(&recording.header);
    recording.header.values = kept
        .iter()
        .map(|at| recording.header.values[*at].clone())
        .collect();
    recording.header.has_counts = count.is_some();
    let mut frames: Map<u64, Vec<FrameKey>> = Map::default();
    let mut sample = SampleParts::default();
    // Again, now that everything that samples refer to is known.
    for field in Fields::new(document, 0) {
        let (2, Field::Bytes(bytes, base)) = field? else {
            continue;
        };
        sample.read(bytes, base)?;
        if sample.values.len() != parts.sample_types.len() {
            return Err(ReadError::at(
                "a sample's values are not as many as their types",
                base as u64,
            ));
        }
        let mut chain = Vec::new();
        for id in sample.locations.iter().rev() {
            if !frames.contains_key(id) {
                let found = parts.frames_of(*id, &mut recording);
                let found =
                    found.ok_or_else(|| ReadError::at(format!("no location {id}"), base as u64))?;
                frames.insert(*id, found);
            }
            chain.extend_from_slice(&frames[id]);
            if chain.len() > DEEPEST {
                return Err(too_deep(base));
            }
        }
        let key = parts.key(&sample, &chain, &mut recording)?;
        let values: Vec<u64> = kept.iter().map(|at| sample.values[*at]).collect();
        recording.add(&key, count.map_or(0, |at| sample.values[at]), &values);
    }
    Ok(recording)
}

/// What one sample is made of.
#[derive(Default)]
struct SampleParts {
    locations: Vec<u64>,
    values: Vec<u64>,
    /// Key, text, number, unit of the number.
    labels: Vec<[u64; 4]>,
}

impl SampleParts {
    fn read(&mut self, bytes: &[u8], base: usize) -> Result<(), ReadError> {
        self.locations.clear();
        self.values.clear();
        self.labels.clear();
        for field in Fields::new(bytes, base) {
            match field? {
                (1, field) => numbers(field, &mut self.locations, DEEPEST)?,
                (2, field) => numbers(field, &mut self.values, DEEPEST)?,
                (3, Field::Bytes(bytes, base)) => self.labels.push(fields_of(bytes, base)?),
                _ => {}
            }
            if self.locations.len().max(self.labels.len()) > DEEPEST {
                return Err(too_deep(base));
            }
        }
        if self.values.iter().any(|value| *value >> 63 == 1) {
            return Err(ReadError::at(
                "a negative value: a difference of profiles is no profile",
                base as u64,
            ));
        }
        Ok(())
    }
}

/// Fields 1 to N of a message of numbers.
fn fields_of<const N: usize>(bytes: &[u8], base: usize) -> Result<[u64; N], Damaged> {
    let mut found = [0; N];
    for field in Fields::new(bytes, base) {
        if let (number, Field::Number(value)) = field?
            && let Some(place) = found.get_mut((number as usize).wrapping_sub(1))
        {
            *place = value;
        }
    }
    Ok(found)
}

impl<'a> Parts<'a> {
    fn take(&mut self, (number, field): (u64, Field<'a>)) -> Result<(), ReadError> {
        self.entries += usize::from(matches!(number, 1 | 3..=6 | 13));
        match (number, field) {
            (1, Field::Bytes(bytes, base)) => {
                let [name, unit] = fields_of(bytes, base)?;
                self.sample_types.push((name, unit));
            }
            (3, Field::Bytes(bytes, base)) => {
                let [id, _, _, _, file, build_id] = fields_of(bytes, base)?;
                self.mappings.insert(id, (file, build_id));
            }
            (4, Field::Bytes(bytes, base)) => {
                let (id, location) = location(bytes, base)?;
                self.entries += location.lines.len();
                self.locations.insert(id, location);
            }
            (5, Field::Bytes(bytes, base)) => {
                let [id, name, _, file] = fields_of(bytes, base)?;
                self.functions.insert(id, (name, file));
            }
            (6, Field::Bytes(bytes, _)) => self.strings.push(bytes),
            (9, Field::Number(value)) => self.time_ns = value,
            (10, Field::Number(value)) => self.duration_ns = value,
            (11, Field::Bytes(bytes, base)) => {
                let [name, unit] = fields_of(bytes, base)?;
                self.period_type = (name, unit);
            }
            (12, Field::Number(value)) => self.period = value,
            (13, field) => numbers(field, &mut self.comments, MOST_REMARKS)?,
            _ => {}
        }
        Ok(())
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
            self.text(self.sample_types[at].0)
                .is_ok_and(|text| text == name)
        };
        let unit = |at: usize| self.text(self.sample_types[at].1).unwrap_or_default();
        let is_derived = |at: &usize| {
            let is_clock = is(*at, CLOCK.0) && header.period_ns > 0;
            !header.tool.is_empty() && (is(*at, TOTAL) || is_clock)
        };
        let all = (0..self.sample_types.len()).filter(|at| !is_derived(at));
        let is_count =
            |at: &usize| (is(*at, "samples") || is(*at, "events")) && unit(*at) == "count";
        let others: Vec<usize> = all.clone().filter(|at| !is_count(at)).collect();
        if others.is_empty() {
            all.collect()
        } else {
            others
        }
    }

    fn header(&self) -> Result<Header, ReadError> {
        let mut values = Vec::new();
        for (name, unit) in &self.sample_types {
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
        for comment in self.comments.iter().take(MOST_REMARKS) {
            let comment = self.text(*comment)?.into_owned();
            match comment.strip_prefix("made by usekit ") {
                Some(name) => name.clone_into(&mut tool),
                None => comments.push(comment),
            }
        }
        let mut build_ids = std::collections::BTreeMap::new();
        for (file, build_id) in self
            .mappings
            .values()
            .filter(|(_, build_id)| *build_id != 0)
        {
            build_ids.insert(
                self.text(*file)?.into_owned(),
                self.text(*build_id)?.into_owned(),
            );
        }
        let is_time = self.text(self.period_type.1)? == "nanoseconds";
        let event = if is_time || tool.is_empty() {
            String::new()
        } else {
            self.text(self.period_type.0)?.into_owned()
        };
        Ok(Header {
            tool,
            event,
            values,
            duration_ns: self.duration_ns,
            time_ns: self.time_ns,
            period_ns: if is_time { self.period } else { 0 },
            comments,
            build_ids,
            shows_threads: false,
            has_counts: false,
        })
    }

    /// The frames of a location, root → leaf.
    fn frames_of(&self, id: u64, recording: &mut Recording) -> Option<Vec<FrameKey>> {
        let location = self.locations.get(&id)?;
        let module = match self.mappings.get(&location.mapping) {
            Some((file, _)) => self.text(*file).ok()?,
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
        if location.lines.is_empty() {
            let base = module.rsplit('/').next().unwrap_or_default();
            let name = recording
                .names
                .id(&format!("{base}+{:#x}", location.address));
            return Some(vec![FrameKey { name, ..blank }]);
        }
        let last = location.lines.len() - 1;
        let mut frames = Vec::new();
        for (index, (function, line)) in location.lines.iter().enumerate().rev() {
            let (name, file) = self.functions.get(function)?;
            let (name, file) = (self.text(*name).ok()?, self.text(*file).ok()?);
            frames.push(FrameKey {
                name: recording.names.id(&name),
                file: recording.names.id(&file),
                line: u32::try_from(*line).unwrap_or(0),
                inlined: index < last,
                ..blank
            });
        }
        Some(frames)
    }

    /// Labels that mean the same everywhere become parts of the key; others are kept as they are.
    fn key(
        &self,
        sample: &SampleParts,
        chain: &[FrameKey],
        recording: &mut Recording,
    ) -> Result<RowKey, ReadError> {
        let found = recording.unchain(chain);
        let mut key = RowKey {
            task: TaskKey {
                comm: NameId::NONE,
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
        let mut labels = Labels::new();
        for [name, text, number, unit] in &sample.labels {
            let (name, text) = (self.text(*name)?, self.text(*text)?);
            let id = u32::try_from(*number).unwrap_or(0);
            match &*name {
                "comm" | "thread" | "thread_name" if !key.task.comm.is_some() => {
                    key.task.comm = recording.names.id(&text);
                }
                "pid" | "process_id" if text.is_empty() => key.task.pid = id,
                "tid" | "thread_id" if text.is_empty() => key.task.tid = id,
                "reason" => key.reason = recording.names.id(&text),
                "idle" => key.idle = text == "true",
                "user_end" => {
                    key.end = StackEnd::ALL.into_iter().find(|end| end.word() == text);
                }
                _ => {
                    let unit = self.text(*unit)?;
                    let shown = if text.is_empty() {
                        format!("{} {unit}", *number as i64)
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

fn too_deep(base: usize) -> ReadError {
    ReadError::at("more than 16,384 frames", base as u64)
}

fn location(bytes: &[u8], base: usize) -> Result<(u64, Location), ReadError> {
    let [id, mapping, address] = fields_of(bytes, base)?;
    let mut location = Location {
        mapping,
        address,
        lines: Vec::new(),
    };
    for field in Fields::new(bytes, base) {
        if let (4, Field::Bytes(bytes, base)) = field? {
            let [function, line] = fields_of(bytes, base)?;
            location.lines.push((function, line));
            if location.lines.len() > DEEPEST {
                return Err(too_deep(base));
            }
        }
    }
    Ok((id, location))
}
