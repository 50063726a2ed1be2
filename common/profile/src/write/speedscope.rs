//! speedscope's file format: a sampled profile per value; what graphs draw comes first.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::folded::root;
use crate::columns::TOTAL;
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
                // Not speedscope's, which ignores these.
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
    let alike = header
        .values
        .iter()
        .filter(|value| value.unit == recording.unit());
    let total = (alike.count() > 1).then(|| {
        let weights = recording.rows().map(|row| recording.weight(&row));
        profile(TOTAL, recording.unit(), weights.collect(), &stacks)
    });
    let values = header.values.iter().enumerate().map(|(index, value)| {
        let weights = recording.rows().map(|row| row.values[index]);
        profile(&value.name, &value.unit, weights.collect(), &stacks)
    });
    let document = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("usekit@", env!("CARGO_PKG_VERSION")),
        "name": header.tool,
        "activeProfileIndex": 0,
        "shared": {"frames": frames.all},
        "profiles": total.into_iter().chain(values).collect::<Vec<_>>(),
    });
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

fn profile(name: &str, unit: &str, weights: Vec<u64>, stacks: &[Vec<usize>]) -> Json {
    let unit = match unit {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "none",
    };
    let name = if name.is_empty() { "samples" } else { name };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{ReadOptions, read};

    #[test]
    fn a_stack_has_each_of_its_frames_once() {
        let text = b"app;main;read 2\n";
        let recording = read(&text[..], &ReadOptions::default()).expect("a line");
        let mut out = Vec::new();
        write(&recording, &mut out).expect("a vector");
        let document: Json = serde_json::from_slice(&out).expect("JSON");
        let profile = &document["profiles"][0];
        assert_eq!(profile["samples"], json!([[0, 1, 2]]));
        assert_eq!(profile["weights"], json!([2]));
        for (at, name) in ["app", "main", "read"].iter().enumerate() {
            assert_eq!(document["shared"]["frames"][at]["name"], *name);
        }
    }
}
