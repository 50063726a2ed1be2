//! pprof's `profile.proto`, compressed. What must hold for Go's reader: github.com/google/pprof, profile.CheckValid.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::columns::{CLOCK, TOTAL};
use crate::frame::FrameKind;
use crate::model::StackEnd;
use crate::protobuf::Message;
use crate::recording::{Boxes, CellKind, FrameKey, Map, NameId, Recording, Row};

pub(super) fn write(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let mut encoder = Encoder::new(recording);
    encoder.values();
    for row in recording.rows() {
        encoder.sample(&row);
    }
    encoder.header();
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&encoder.finish().0)?;
    gzip.finish().map(drop)
}

/// A location: the frames inlined at one address, the innermost first.
type LocationKey = Vec<FrameKey>;

struct Encoder<'a> {
    recording: &'a Recording,
    document: Message,
    strings: Map<String, u64>,
    texts: Vec<String>,
    /// Name and source file.
    functions: Map<(NameId, NameId), u64>,
    locations: Map<LocationKey, u64>,
    /// By module; what is not any module's has none.
    mappings: Map<String, u64>,
    /// Largest address in each mapping, in order of their IDs.
    modules: Vec<(String, u64)>,
    has_lines: bool,
    columns: Vec<Column>,
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
            document: Message::default(),
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
            self.modules.push((module.to_owned(), 0));
        }
        let largest = &mut self.modules[id as usize - 1].1;
        *largest = address.max(*largest);
        id
    }

    fn values(&mut self) {
        for column in self.columns.clone() {
            let (name, unit) = self.column(column);
            self.value_type(1, name, unit);
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

    fn value_type(&mut self, field: u32, name: &str, unit: &str) {
        let (name, unit) = (self.string(name), self.string(unit));
        let mut message = Message::default();
        message.number(1, name);
        message.number(2, unit);
        self.document.bytes(field, &message.0);
    }

    fn sample(&mut self, row: &Row<'_>) {
        let locations = self.stack(row);
        let mut message = Message::default();
        message.packed(1, locations);
        // pprof's values are signed.
        let bounded = |value: u64| value.min(i64::MAX as u64);
        let numbers = self.columns.iter().map(|column| self.number(*column, row));
        message.packed(2, numbers.map(bounded));
        self.labels(row, &mut message);
        self.document.bytes(2, &message.0);
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
        let mapping = self.mapping(module, physical.address);
        let mut message = Message::default();
        message.number(1, id);
        message.number(2, mapping);
        message.number(3, physical.address);
        for frame in frames {
            let mut line = Message::default();
            line.number(1, self.function(frame));
            line.number(2, frame.line.into());
            message.bytes(4, &line.0);
        }
        self.document.bytes(4, &message.0);
        id
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
            let mut message = Message::default();
            message.number(1, id);
            message.number(2, name);
            message.number(3, name);
            message.number(4, file);
            self.document.bytes(5, &message.0);
        }
        id
    }

    fn labels(&mut self, row: &Row<'_>, sample: &mut Message) {
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
        for (name, text) in texts
            .into_iter()
            .chain(others)
            .filter(|(_, text)| !text.is_empty())
        {
            let mut label = Message::default();
            label.number(1, self.string(name));
            label.number(2, self.string(text));
            sample.bytes(3, &label.0);
        }
        for (name, number) in [("pid", key.task.pid), ("tid", key.task.tid)] {
            if number > 0 {
                let mut label = Message::default();
                label.number(1, self.string(name));
                label.number(3, number.into());
                sample.bytes(3, &label.0);
            }
        }
    }

    fn header(&mut self) {
        let header = &self.recording.header;
        for (index, (module, largest)) in std::mem::take(&mut self.modules).into_iter().enumerate()
        {
            let file = self.string(&module);
            let build_id = header
                .build_ids
                .get(&module)
                .map_or(0, |id| self.string(id));
            let mut message = Message::default();
            message.number(1, index as u64 + 1);
            message.number(3, largest.saturating_add(1));
            message.number(5, file);
            message.number(6, build_id);
            // Names are all here: pprof must not look for the files.
            message.number(7, 1);
            message.number(8, u64::from(self.has_lines));
            message.number(9, u64::from(self.has_lines));
            message.number(10, 1);
            self.document.bytes(3, &message.0);
        }
        self.document.number(9, header.time_ns);
        self.document.number(10, header.duration_ns);
        if header.period_ns > 0 {
            let (name, unit) = CLOCK;
            self.value_type(11, name, unit);
            self.document.number(12, header.period_ns);
        } else if !header.event.is_empty() {
            self.value_type(11, &header.event, "count");
        }
        let tool = (!header.tool.is_empty()).then(|| format!("made by usekit {}", header.tool));
        let comments: Vec<u64> = tool
            .iter()
            .chain(&header.comments)
            .map(|text| self.string(text))
            .collect();
        for comment in comments {
            self.document.number(13, comment);
        }
        let is_shown = |column: &&Column| matches!(column, Column::Clock | Column::Total);
        let shown = self.columns.iter().find(is_shown);
        // Of contentions and delay the delay.
        let is_time = |column: &&Column| self.column(**column).1 == "nanoseconds";
        let time = self.columns.iter().find(is_time);
        let first = (!self.columns.is_empty()).then_some(Column::Value(0));
        if let Some(column) = shown.or(time).copied().or(first) {
            let name = self.string(self.column(column).0);
            self.document.number(14, name);
        }
    }

    fn finish(mut self) -> Message {
        for text in &self.texts {
            self.document.bytes(6, text.as_bytes());
        }
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
    if alike.count() > 1 {
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
