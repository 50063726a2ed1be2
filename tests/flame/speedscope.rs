//! speedscope's own importer reads our files with the totals that flame finds in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::commands::WAITS;
use crate::{Files, Run, STACKS, flame};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The unpacked package; the network is needed once.
fn package() -> String {
    let target = Path::new(env!("CARGO_BIN_EXE_flame")).ancestors().nth(2);
    let output = Command::new(project().join("setup/speedscope"))
        .arg(target.expect("a target directory").join("speedscope"))
        .output();
    let path = Run::of(output.expect("bash runs")).ok();
    path.trim().to_owned()
}

/// What its importer finds: a profile per value.
fn import(path: &str) -> Vec<Value> {
    let output = Command::new("node")
        .arg(project().join("tests/flame/speedscope.js"))
        .args([&package(), path])
        .output();
    let out = Run::of(output.expect("node is installed (setup/deps test)")).ok();
    // It tells the console which format it found, first.
    let json = out.lines().last().expect("a line");
    serde_json::from_str(json).unwrap_or_else(|err| panic!("{err}: {out}"))
}

/// Name → self and total, of one profile; folded text marks kinds, the others do not.
fn frames(profile: &Value) -> BTreeMap<String, (u64, u64)> {
    let number = |value: &Value| value.as_f64().expect("a number") as u64;
    let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (name, weights) in profile["frames"].as_object().expect("frames") {
        let plain = ["_[k]", "_[i]", "_[j]"]
            .iter()
            .find_map(|mark| name.strip_suffix(mark));
        let sums = all.entry(plain.unwrap_or(name).to_owned()).or_default();
        sums.0 += number(&weights[0]);
        sums.1 += number(&weights[1]);
    }
    all
}

/// By hand from [`STACKS`], whose waker `app` is a frame of another thread's stack, beside the thread of that name.
fn expected() -> BTreeMap<String, (u64, u64)> {
    let frames = [
        ("app", (80, 1000)),
        ("web", (0, 80)),
        ("main", (0, 1000)),
        ("parse", (0, 450)),
        ("lex", (300, 300)),
        ("reduce", (150, 150)),
        ("run", (0, 350)),
        ("read", (0, 250)),
        ("vfs_read", (250, 250)),
        ("step", (100, 100)),
        ("[idle]", (0, 120)),
        ("poll", (120, 120)),
        ("lock", (0, 80)),
        ("futex_wait", (0, 80)),
        ("--", (0, 80)),
        ("wake", (0, 80)),
        ("unlock", (0, 80)),
    ];
    frames
        .map(|(name, sums)| (name.to_owned(), sums))
        .into_iter()
        .collect()
}

#[test]
fn folded_and_speedscope_files_have_every_frames_self_and_total() {
    let files = Files::new();
    for name in ["out.folded", "out.speedscope.json"] {
        let profiles = import(&files.made("convert", STACKS, name));
        assert_eq!(profiles.len(), 1, "{name}");
        assert_eq!(profiles[0]["total"], 1000, "{name}");
        assert_eq!(frames(&profiles[0]), expected(), "{name}");
    }
}

#[test]
fn every_value_is_a_profile_with_its_unit_and_their_sum_the_first() {
    let files = Files::new();
    let (json, out) = (
        files.file("wait.json", WAITS),
        files.path("wait.speedscope.json"),
    );
    flame(format!("convert {json} {out}"), "").ok();
    let profiles = import(&out);
    let expected = [
        ("total", 500_000_000),
        ("blocked", 400_000_000),
        ("runqueue", 100_000_000),
    ];
    assert_eq!(profiles.len(), expected.len());
    for (profile, (name, total)) in profiles.iter().zip(expected) {
        assert_eq!(profile["name"], name);
        assert_eq!(profile["unit"], "nanoseconds", "{name}");
        assert_eq!(profile["total"], total, "{name}");
    }
}

/// In pprof threads and idleness are labels and inlined functions lines of their caller, none of which speedscope shows.
#[test]
fn pprof_files_have_the_same_totals_there() {
    let profiles = import(&Files::new().made("convert", STACKS, "out.pb.gz"));
    assert_eq!(profiles[0]["total"], 1000);
    let mut wanted = expected();
    for name in ["web", "[idle]", "reduce"] {
        wanted.remove(name);
    }
    wanted.insert("app".into(), (80, 80));
    wanted.insert("parse".into(), (150, 450));
    assert_eq!(frames(&profiles[0]), wanted);
}
