//! speedscope's file format: a sampled profile per value.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::folded::root;
use crate::recording::{Boxes, Map, Recording};

pub(super) fn write(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut stacks: Vec<Vec<usize>> = Vec::new();
    let boxes = Boxes {
        idle: true,
        ..Boxes::default()
    };
    for row in recording.rows() {
        let mut stack = vec![frames.id(json!({"name": root(recording, row.key.task)}))];
        for cell in recording.chain(row.key, boxes) {
            let text = |name| Some(recording.text(name)).filter(|text| !text.is_empty());
            let mut frame = json!({"name": recording.cell_text(&cell)});
            let fields = [
                ("file", text(cell.frame.file).map(Json::from)),
                (
                    "line",
                    (cell.frame.line > 0).then(|| cell.frame.line.into()),
                ),
                // Not speedscope's: it ignores these, our reader does not.
                ("kind", cell.frame.kind.word().map(Json::from)),
                ("module", text(cell.frame.module).map(Json::from)),
                ("inlined", cell.frame.inlined.then_some(Json::Bool(true))),
            ];
            for (key, value) in fields {
                if let Some(value) = value {
                    frame[key] = value;
                }
            }
            stack.push(frames.id(frame));
        }
        stacks.push(stack);
    }
    let header = &recording.header;
    let profiles = (0..header.values.len()).map(|index| profile(recording, index, &stacks));
    let document = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("usekit@", env!("CARGO_PKG_VERSION")),
        "name": header.tool,
        "activeProfileIndex": 0,
        "shared": {"frames": frames.all},
        "profiles": profiles.collect::<Vec<_>>(),
    });
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

fn profile(recording: &Recording, index: usize, stacks: &[Vec<usize>]) -> Json {
    let value = &recording.header.values[index];
    let weights: Vec<u64> = recording.rows().map(|row| row.values[index]).collect();
    let unit = match &*value.unit {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "none",
    };
    let name = if value.name.is_empty() {
        "samples"
    } else {
        &value.name
    };
    json!({
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": weights.iter().fold(0, |sum: u64, weight| sum.saturating_add(*weight)),
        "samples": stacks,
        "weights": weights,
    })
}

#[derive(Default)]
struct Frames {
    all: Vec<Json>,
    ids: Map<String, usize>,
}

impl Frames {
    fn id(&mut self, frame: Json) -> usize {
        *self.ids.entry(frame.to_string()).or_insert_with(|| {
            self.all.push(frame);
            self.all.len() - 1
        })
    }
}
