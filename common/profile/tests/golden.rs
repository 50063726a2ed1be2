//! Every writer against text that was read by people. `BLESS=1` writes it anew: read the difference.

mod fixtures;

use std::path::Path;
use std::{env, fs};

use profile::folded::{self, FoldedOptions, Idle};
use profile::functions::{self, Words};
use profile::listing::{self, ListOptions};
use profile::model::Profile;
use profile::{json, reasons};

fn check(name: &str, write: impl Fn(&mut Vec<u8>)) {
    let mut text = Vec::new();
    write(&mut text);
    let text = String::from_utf8(text).expect("writes");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if env::var_os("BLESS").is_some() {
        return fs::write(&path, &text).expect("writes");
    }
    assert!(path.exists(), "{name} is missing; BLESS=1 writes it");
    assert_eq!(text, fs::read_to_string(&path).expect("writes"), "{name}");
}

fn folded_as(name: &str, profile: &Profile, options: FoldedOptions) -> folded::Written {
    check(name, |out| {
        folded::write(profile, &options, out).expect("writes");
    });
    folded::write(profile, &options, &mut Vec::new()).expect("writes")
}

fn us() -> FoldedOptions {
    FoldedOptions {
        divisor: 1000,
        ..FoldedOptions::default()
    }
}

#[test]
fn folded_lines() {
    let samples = folded_as(
        "samples.folded",
        &fixtures::samples(),
        FoldedOptions::default(),
    );
    assert_eq!((samples.total, samples.dropped), (1000, 0));
    let waits = folded_as("waits.folded", &fixtures::waits(), us());
    assert_eq!(waits.dropped, 400);
}

#[test]
fn folded_lines_with_everything() {
    let profile = fixtures::waits();
    let plain = folded::write(&profile, &us(), &mut Vec::new()).unwrap();
    let options = FoldedOptions {
        delimiter: true,
        annotate: true,
        threads: true,
        reason: true,
        split: true,
        idle: Idle::Fold,
        ..us()
    };
    folded_as("waits-everything.folded", &profile, options);
    let split = FoldedOptions {
        split: true,
        ..us()
    };
    let split = folded_as("waits-split.folded", &profile, split);
    assert_eq!((split.total, split.dropped), (plain.total, plain.dropped));
    let idle = FoldedOptions {
        idle: Idle::Only,
        ..us()
    };
    folded_as("waits-idle.folded", &profile, idle);
}

#[test]
fn json_objects() {
    let mut extra = serde_json::Map::new();
    extra.insert("losses".into(), 0.into());
    for (name, profile) in [
        ("samples.json", fixtures::samples()),
        ("waits.json", fixtures::waits()),
    ] {
        check(name, |out| json::write(&profile, &extra, out).unwrap());
        let mut text = Vec::new();
        json::write(&profile, &extra, &mut text).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value, json::to_json(&profile, extra.clone()));
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
    extra.insert("tool".into(), "mine".into());
    let error = json::write(&fixtures::samples(), &extra, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn function_tables() {
    let write = |name: &str, profile: &Profile, rows, is_sampled| {
        check(name, |out| {
            let words = Words {
                what: "samples",
                ..Words::default()
            };
            functions::write(profile, rows, 80, is_sampled, words, out).unwrap();
        });
    };
    write("samples.functions", &fixtures::samples(), 4, true);
    let mut few = fixtures::samples();
    few.samples.drain(..4);
    write("few.functions", &few, 4, true);
    write("waits.functions", &fixtures::waits(), 20, false);
}

#[test]
fn stack_lists() {
    let options = ListOptions {
        top: 10,
        idle: Idle::Fold,
        is_time: true,
        split: true,
        whole: true,
        color: false,
    };
    let write = |name: &str, profile: &Profile, options: ListOptions| {
        check(name, |out| listing::write(profile, &options, out).unwrap());
    };
    write("waits.stacks", &fixtures::waits(), options);
    let brief = ListOptions {
        top: 2,
        idle: Idle::Show,
        split: false,
        color: true,
        ..options
    };
    let lines = ListOptions {
        whole: false,
        ..brief
    };
    write("waits-lines.stacks", &fixtures::waits(), lines);
    write("waits-brief.stacks", &fixtures::waits(), brief);
    write(
        "samples.stacks",
        &fixtures::samples(),
        ListOptions {
            is_time: false,
            split: false,
            ..options
        },
    );
    check("waits.reasons", |out| {
        reasons::write(&fixtures::waits(), out).unwrap()
    });
}

#[test]
fn nothing_measured_is_no_error() {
    let profile = Profile::default();
    let mut out = Vec::new();
    folded::write(&profile, &us(), &mut out).unwrap();
    assert!(out.is_empty());
    functions::write(&profile, 10, 80, false, Words::default(), &mut out).unwrap();
    reasons::write(&profile, &mut out).unwrap();
}

#[test]
fn text_for_people_fits_and_is_inert() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".folded") || name.ends_with(".json") {
            continue;
        }
        for line in fs::read_to_string(&path).unwrap().lines() {
            let line = ["\x1b[1m", "\x1b[2m", "\x1b[0m"]
                .iter()
                .fold(line.to_owned(), |line, sequence| line.replace(sequence, ""));
            assert!(line.chars().count() <= 80, "{name}: {line}");
            assert!(
                !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{name}: {line}"
            );
        }
    }
}
