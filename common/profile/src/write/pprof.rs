//! pprof's `profile.proto`, compressed. What must hold for Go's reader: github.com/google/pprof, profile.CheckValid.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::columns::{CLOCK, TOTAL};
use crate::frame::FrameKind;
use crate::model::StackEnd;
use crate::pprof::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType, place};
use crate::recording::{Boxes, CellKind, FrameKey, Map, NameId, Recording, Row};

pub(super) fn write(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let mut encoder = Encoder::new(recording);
    encoder.values();
    for row in recording.rows() {
        encoder.sample(&row);
    }
    encoder.header();
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&encoder.finish())?;
    gzip.finish().map(drop)
}

/// A location: the frames inlined at one address, the innermost first.
type LocationKey = Vec<FrameKey>;

struct Encoder<'a> {
    recording: &'a Recording,
    /// Written as it goes: it takes less memory than its messages.
    document: Vec<u8>,
    strings: Map<String, u64>,
    texts: Vec<String>,
    /// Name and source file.
    functions: Map<(NameId, NameId), u64>,
    locations: Map<LocationKey, u64>,
    /// By module; what is not any module's has none.
    mappings: Map<String, u64>,
    /// In order of their IDs.
    modules: Vec<Module>,
    has_lines: bool,
    columns: Vec<Column>,
}

/// A mapping, as far as it is known.
struct Module {
    path: String,
    largest_address: u64,
    /// All functions in it have names.
    has_functions: bool,
}

/// A number that every sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// How many samples or intervals.
    Count,
    /// One of the recording's values.
    Value(usize),
    /// Samples of a clock as time.
    Clock,
    /// What graphs draw, where that is the sum of several values.
    Total,
}

impl<'a> Encoder<'a> {
    fn new(recording: &'a Recording) -> Self {
        let mut encoder = Self {
            recording,
            document: Vec::new(),
            strings: Map::default(),
            texts: Vec::new(),
            functions: Map::default(),
            locations: Map::default(),
            mappings: Map::default(),
            modules: Vec::new(),
            has_lines: recording.frames().iter().any(|frame| frame.line > 0),
            columns: columns(recording),
        };
        encoder.string("");
        encoder.main_mapping();
        encoder
    }

    /// Goes on with the document by one of its repeated messages.
    fn put(&mut self, number: u8, message: &impl Message) {
        self.document.push(number << 3 | 2);
        let mut bytes = message.encode_length_delimited_to_vec();
        self.document.append(&mut bytes);
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.strings.insert(text.to_owned(), id);
        id
    }

    /// pprof names the profile after the first mapping: that of the heaviest program, not of the kernel or a library.
    fn main_mapping(&mut self) {
        let mut weights: Map<NameId, u64> = Map::default();
        for row in self.recording.rows() {
            let frames = self.recording.root_first(row.key.stack);
            if let Some(root) = frames
                .iter()
                .find(|frame| is_program(self.recording.text(frame.module)))
            {
                let sum = weights.entry(root.module).or_default();
                *sum = sum.saturating_add(self.recording.weight(&row));
            }
        }
        let heaviest = weights
            .into_iter()
            .max_by_key(|(name, weight)| (*weight, *name));
        if let Some((name, _)) = heaviest {
            self.mapping(self.recording.text(name), 0);
        }
    }

    fn mapping(&mut self, module: &str, address: u64) -> u64 {
        if module.is_empty() {
            return 0;
        }
        let next = self.modules.len() as u64 + 1;
        let id = *self.mappings.entry(module.to_owned()).or_insert(next);
        if id == next {
            self.modules.push(Module {
                path: module.to_owned(),
                largest_address: 0,
                has_functions: true,
            });
        }
        let largest = &mut self.modules[id as usize - 1].largest_address;
        *largest = address.max(*largest);
        id
    }

    fn values(&mut self) {
        for column in self.columns.clone() {
            let (name, unit) = self.column(column);
            let value_type = self.value_type(name, unit);
            self.put(1, &value_type);
        }
    }

    fn column(&self, column: Column) -> (&'a str, &'a str) {
        let header = &self.recording.header;
        let unit = |unit: &'a str| match unit {
            "ns" => "nanoseconds",
            "" => "count",
            unit => unit,
        };
        match column {
            Column::Count => ("samples", "count"),
            Column::Value(index) => {
                let value = &header.values[index];
                (&value.name, unit(&value.unit))
            }
            Column::Clock => CLOCK,
            Column::Total => (TOTAL, unit(self.recording.unit())),
        }
    }

    fn number(&self, column: Column, row: &Row<'_>) -> u64 {
        match column {
            Column::Count => row.count,
            Column::Value(index) => row.values[index],
            Column::Clock => row.values[0].saturating_mul(self.recording.header.period_ns),
            Column::Total => self.recording.weight(row),
        }
    }

    fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        let (name, unit) = (self.string(name), self.string(unit));
        ValueType { name, unit }
    }

    fn sample(&mut self, row: &Row<'_>) {
        let location_id = self.stack(row);
        // pprof's values are signed.
        let bounded = |value: u64| value.min(i64::MAX as u64);
        let numbers = self.columns.iter().map(|column| self.number(*column, row));
        let value = numbers.map(bounded).collect();
        let label = self.labels(row);
        let sample = Sample {
            location_id,
            value,
            label,
        };
        self.put(2, &sample);
    }

    /// Location IDs, leaf first.
    fn stack(&mut self, row: &Row<'_>) -> Vec<u64> {
        let cells = self.recording.chain(row.key, Boxes::default());
        let mut ids = Vec::new();
        let mut inlined: LocationKey = Vec::new();
        for cell in cells.iter().rev() {
            inlined.push(cell.frame);
            // Up to the function that it was all inlined into.
            if !cell.frame.inlined || cell.kind == CellKind::Waker {
                ids.push(self.location(&inlined));
                inlined.clear();
            }
        }
        if !inlined.is_empty() {
            ids.push(self.location(&inlined));
        }
        ids
    }

    fn location(&mut self, frames: &LocationKey) -> u64 {
        if let Some(id) = self.locations.get(frames) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(frames.clone(), id);
        let Some(physical) = frames.last() else {
            return id;
        };
        let module = match (physical.kind, self.recording.text(physical.module)) {
            (FrameKind::Jit, "") => "[jit]",
            (FrameKind::Kernel, "") => "[kernel]",
            (_, module) => module,
        };
        let mapping_id = self.mapping(module, physical.address);
        let line = if frames.len() == 1 && self.is_nameless(physical, module) {
            let mapping = mapping_id.checked_sub(1);
            if let Some(module) = mapping.and_then(|at| self.modules.get_mut(at as usize)) {
                module.has_functions = false;
            }
            Vec::new()
        } else {
            let lines = frames.iter().map(|frame| Line {
                function_id: self.function(frame),
                line: frame.line.into(),
            });
            lines.collect()
        };
        let location = Location {
            id,
            mapping_id,
            address: physical.address,
            line,
        };
        self.put(4, &location);
        id
    }

    /// Looks whether its name is its place in its file: pprof, which has the file or a server, may know better.
    fn is_nameless(&self, frame: &FrameKey, module: &str) -> bool {
        let name = self.recording.text(frame.name);
        frame.kind == FrameKind::User && name == place(module, frame.address)
    }

    fn function(&mut self, frame: &FrameKey) -> u64 {
        let next = self.functions.len() as u64 + 1;
        let id = *self
            .functions
            .entry((frame.name, frame.file))
            .or_insert(next);
        if id == next {
            let name = self.string(self.recording.text(frame.name));
            let file = self.string(self.recording.text(frame.file));
            let function = Function {
                id,
                name,
                system_name: name,
                filename: file,
            };
            self.put(5, &function);
        }
        id
    }

    fn labels(&mut self, row: &Row<'_>) -> Vec<Label> {
        let key = row.key;
        let recording = self.recording;
        let end = key.end.map_or("", StackEnd::word);
        let idle = if key.idle { "true" } else { "" };
        let texts = [
            ("comm", recording.text(key.task.comm)),
            ("reason", recording.text(key.reason)),
            ("idle", idle),
            ("user_end", end),
        ];
        let others = recording.labels(key.labels);
        let others = others
            .iter()
            .map(|(name, text)| (recording.text(*name), recording.text(*text)));
        let texts = texts.into_iter().chain(others);
        let texts = texts.filter(|(_, text)| !text.is_empty());
        let mut labels: Vec<Label> = texts
            .map(|(name, text)| Label {
                key: self.string(name),
                str: self.string(text),
                ..Label::default()
            })
            .collect();
        for (name, number) in [("pid", key.task.pid), ("tid", key.task.tid)] {
            if number > 0 {
                labels.push(Label {
                    key: self.string(name),
                    num: number.into(),
                    ..Label::default()
                });
            }
        }
        labels
    }

    fn header(&mut self) {
        let header = &self.recording.header;
        let mut profile = Profile {
            time_nanos: header.time_ns,
            duration_nanos: header.duration_ns,
            period: header.period_ns,
            ..Profile::default()
        };
        for (id, module) in (1..).zip(std::mem::take(&mut self.modules)) {
            let filename = self.string(&module.path);
            let build_id = header.build_ids.get(&module.path);
            profile.mapping.push(Mapping {
                id,
                memory_limit: module.largest_address.saturating_add(1),
                filename,
                build_id: build_id.map_or(0, |id| self.string(id)),
                // The files must not be looked for where names are all here; one flag is enough for pprof to think so.
                has_functions: module.has_functions,
                has_filenames: module.has_functions && self.has_lines,
                has_line_numbers: module.has_functions && self.has_lines,
                has_inline_frames: module.has_functions,
            });
        }
        if header.period_ns > 0 {
            profile.period_type = Some(self.value_type(CLOCK.0, CLOCK.1));
        } else if !header.event.is_empty() {
            profile.period_type = Some(self.value_type(&header.event, "count"));
        }
        let tool = (!header.tool.is_empty()).then(|| format!("made by usekit {}", header.tool));
        let comments = tool.iter().chain(&header.comments);
        profile.comment = comments.map(|text| self.string(text)).collect();
        let is_shown = |column: &&Column| matches!(column, Column::Clock | Column::Total);
        let drawn = Column::Value(0);
        let is_drawn = |column: &&Column| header.are_apart && **column == drawn;
        let shown = self
            .columns
            .iter()
            .find(|column| is_shown(column) || is_drawn(column));
        // Of contentions and delay the delay.
        let is_time = |column: &&Column| self.column(**column).1 == "nanoseconds";
        let time = self.columns.iter().find(is_time);
        let first = (!self.columns.is_empty()).then_some(Column::Value(0));
        if let Some(column) = shown.or(time).copied().or(first) {
            profile.default_sample_type = self.string(self.column(column).0);
        }
        self.document.append(&mut profile.encode_to_vec());
    }

    fn finish(mut self) -> Vec<u8> {
        let profile = Profile {
            string_table: self.texts,
            ..Profile::default()
        };
        self.document.append(&mut profile.encode_to_vec());
        self.document
    }
}

/// Counts first, as Go has them.
fn columns(recording: &Recording) -> Vec<Column> {
    let values = &recording.header.values;
    let is_count = |unit: &str| matches!(unit, "count" | "");
    let mut columns = Vec::new();
    if recording.header.has_counts && !values.iter().any(|value| is_count(&value.unit)) {
        columns.push(Column::Count);
    }
    columns.extend((0..values.len()).map(Column::Value));
    let alike = values.iter().filter(|value| value.unit == recording.unit());
    if alike.count() > 1 && !recording.header.are_apart {
        columns.push(Column::Total);
    } else if recording.header.period_ns > 0 && values.len() == 1 && is_count(recording.unit()) {
        columns.push(Column::Clock);
    }
    columns
}

/// Whether a module is an executable, as far as its name tells.
fn is_program(module: &str) -> bool {
    let base = module.rsplit('/').next().unwrap_or_default();
    !module.is_empty() && !module.starts_with('[') && !base.contains(".so")
}
