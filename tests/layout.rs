//! Every tool has all its files, under one stem; files stay small; no modules use each other in a circle, and no tool another;
//! a header of one tool's programs lies beside them; no script ends by luck.

#[path = "layout/circles.rs"]
mod circles;
#[path = "layout/headers.rs"]
mod headers;
#[path = "layout/scripts.rs"]
mod scripts;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use tools::TRACERS;

/// The tool that is made of others' engines, and has no programs of its own.
const OF_PARTS: &str = "why";
/// Tools that have these engines.
const PARTS: [&str; 5] = ["offcputime", "runqlat", "profile", "biolatency", "lockstat"];

/// Lines a source file may have.
const MOST_LINES: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_tool_has_all_its_files() {
    assert!(TRACERS.len() >= 6, "{TRACERS:?}");
    for tool in TRACERS.iter() {
        let programs = format!("bpf/{tool}/{tool}.bpf.c");
        assert_eq!(root().join(&programs).is_file(), *tool != OF_PARTS);
        for file in [
            format!("tools/{tool}/main.rs"),
            format!("tools/{tool}/report.rs"),
            format!("man/{tool}.8"),
            format!("man/{tool}_example.txt"),
        ] {
            assert!(root().join(&file).is_file(), "{file} is missing");
        }
        let mut live = ["tests/live", "tests/live/beside"].iter();
        let has_test = live.any(|place| root().join(format!("{place}/{tool}.rs")).is_file());
        assert!(has_test, "{tool}.rs is missing in tests/live");
    }
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if [".rs", ".c", ".h"]
            .iter()
            .any(|ending| name.ends_with(ending))
        {
            found.push(path);
        }
    }
}

#[test]
fn files_stay_small() {
    let mut files = Vec::new();
    let root = root();
    sources(&root, &mut files);
    assert!(files.len() > 50);
    for file in files {
        let name = file
            .strip_prefix(&root)
            .expect("below the root")
            .to_string_lossy()
            .into_owned();
        let lines = fs::read_to_string(&file).expect("text").lines().count();
        let most = if name.ends_with("main.rs") && name.starts_with("tools/") {
            150
        } else {
            MOST_LINES
        };
        assert!(lines <= most, "{name} has {lines} lines");
    }
}

/// Places where code may differ between architectures: one file in user space, three in the kernel's, which choose from a folder; and what compiles those for tests.
/// Workloads are tests' own.
#[test]
fn architectures_differ_in_one_place() {
    let mut files = Vec::new();
    let root = root();
    for directory in ["bench", "bpf", "common", "tools"] {
        sources(&root.join(directory), &mut files);
    }
    let mut found: Vec<String> = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("text");
        if ["target_arch", "__TARGET_ARCH", "asm!("]
            .iter()
            .any(|mark| text.contains(mark))
        {
            let name = file.strip_prefix(&root).expect("below the root");
            found.push(name.to_string_lossy().into_owned());
        }
    }
    found.sort();
    assert_eq!(
        found,
        [
            "bpf/include/registers.bpf.h",
            "bpf/include/registers.h",
            "bpf/include/unwind_machine.bpf.h",
            "bpf/tests/compile/mod.rs",
            "bpf/tests/host/mod.rs",
            "common/host/src/machine.rs",
        ]
    );
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let root = root();
    let mut crates: Vec<PathBuf> = ["bench/src", "bpf/src", "tests/live", "tools", "tools/flame"]
        .map(|path| root.join(path))
        .into();
    for crates_of in ["common", "tests"] {
        let directories = fs::read_dir(root.join(crates_of)).expect("a directory");
        let sources = directories.flatten().map(|entry| entry.path().join("src"));
        crates.extend(sources.filter(|path| path.is_dir()));
    }
    assert!(crates.len() > 10, "{crates:?}");
    for path in crates {
        let circles = circles::circles(&path);
        assert!(circles.is_empty(), "{}: {circles:?}", path.display());
    }
}

#[test]
fn no_tool_uses_another() {
    for tool in TRACERS.iter() {
        let mut files = Vec::new();
        sources(&root().join("tools").join(tool), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("text");
            for path in text.split("crate::").skip(1) {
                let module = path.split("::").next();
                // Rooms that tests of several tools make reports from and hold them to are no tools.
                let is_allowed = module.is_some_and(|name| {
                    let is_part = *tool == OF_PARTS && PARTS.contains(&name);
                    is_part || [*tool, "made_up", "narrow", "one_window"].contains(&name)
                });
                assert!(is_allowed, "{}: {module:?}", file.display());
            }
        }
    }
}

#[test]
fn headers_of_one_tool_lie_beside_its_programs() {
    let users = headers::users(&root().join("bpf"));
    assert!(users.len() > 20, "{users:?}");
    for (header, tools) in users {
        assert!(tools.len() > 1, "bpf/include/{header}: {tools:?}");
    }
}

#[test]
fn no_pipe_of_a_script_breaks_by_luck() {
    let mut found = Vec::new();
    scripts::with_pipefail(&root(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    for (path, script) in found {
        let broken = scripts::pipes_that_break(&script);
        assert!(broken.is_empty(), "{}: {broken:#?}", path.display());
    }
}

#[test]
fn architecture_names_files_that_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a page");
    let quoted = text.split('`').skip(1).step_by(2);
    let paths: Vec<&str> = quoted
        .filter(|words| words.contains('/') && !words.contains("TOOL"))
        .collect();
    assert!(paths.len() > 50, "{}", paths.len());
    for path in paths {
        assert!(root().join(path).exists(), "{path}");
    }
}

/// Its table says of each crate below `common` which others it may use; rows go from the ground upwards.
#[test]
fn rooms_use_only_what_the_architecture_allows() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a page");
    let mut allowed: Vec<(String, Vec<String>)> = Vec::new();
    for row in text.lines().filter(|row| row.starts_with("| `common/")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let room = cells[1].trim_matches('`').trim_start_matches("common/");
        let others = cells[3].split(", ").filter(|other| !other.is_empty());
        let others: Vec<String> = others.map(Into::into).collect();
        let is_below = |other: &String| allowed.iter().any(|(lower, _)| lower == other);
        assert!(
            others.iter().all(is_below),
            "{room} stands above what it uses"
        );
        allowed.push((room.into(), others));
    }
    let rooms = fs::read_dir(root().join("common")).expect("a directory");
    let rooms = rooms
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").exists());
    assert_eq!(rooms.count(), allowed.len(), "each room has its row");
    for (room, others) in allowed {
        let manifest = root().join("common").join(&room).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("a manifest");
        let uses = manifest.lines().filter_map(|line| {
            line.strip_prefix("usekit-")?
                .strip_suffix(".workspace = true")
        });
        assert_eq!(uses.collect::<Vec<_>>(), others, "{room}");
    }
}
