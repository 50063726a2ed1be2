//! Go's function table against the `.debug_frame` that the same linker writes, and damaged ones.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use unwind::{Cfa, Image, Rule, Table};

use crate::oracle::Random;

/// A program for an architecture by Go's name.
fn go(dir: &Path, architecture: &str, flags: &[&str]) -> PathBuf {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/workloads/chains/chains.go"
    );
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = dir.join("program");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .args(flags)
        .arg(source)
        .current_dir(dir)
        .env("GOCACHE", home.join("go"))
        .env("GOPATH", home.join("gopath"))
        .env("GOENV", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .env("GOARCH", architecture)
        .status();
    assert!(status.expect("go, see setup/deps").success());
    program
}

fn table(bytes: &[u8]) -> Table {
    Image::from_memory(bytes).unwrap().table().unwrap().0
}

/// Bytes from the CFA down to the return address; 0: it is in a register.
fn down_to_return_address(architecture: &str, rule: Rule) -> i32 {
    match (architecture, rule.slot) {
        ("amd64", _) => 8,
        (_, 62) => -8 * (i32::from(rule.fp_offset) + 1),
        (_, 63) => -8 * i32::from(rule.fp_offset),
        (_, words) => 8 * i32::from(words),
    }
}

#[test]
fn a_stripped_go_program_has_the_rows_that_debug_frame_had() {
    for architecture in ["amd64", "arm64"] {
        assert_rows(architecture);
    }
}

fn assert_rows(architecture: &str) {
    let dir = tempfile::tempdir().unwrap();
    for mode in ["-buildmode=exe", "-buildmode=pie"] {
        let [whole, stripped] = [&[mode][..], &[mode, "-ldflags", "-s -w"]].map(|flags| {
            let program = go(dir.path(), architecture, flags);
            std::fs::read(program).unwrap()
        });
        let text = object::File::parse(&*whole).unwrap();
        let text = text.section_by_name(".text").unwrap();
        let names = object::File::parse(&*stripped).unwrap();
        assert!(names.section_by_name(".debug_frame").is_none());
        let [whole, stripped] = [&whole, &stripped].map(|bytes| table(bytes));
        let (mut equal, mut outermost, mut padding, mut too_large) = (0, 0, 0, 0);
        for address in text.address()..text.address() + text.size() {
            let [ours, theirs] = [&stripped, &whole].map(|table| table.lookup(address));
            match (ours.cfa, theirs.cfa) {
                (Cfa::Sp, Cfa::Sp) => {
                    let row = |rule: Rule| {
                        let down = down_to_return_address(architecture, rule);
                        (rule.cfa_offset, down)
                    };
                    let what = format!("{architecture}, {mode}, {address:#x}");
                    assert_eq!(row(ours), row(theirs), "{what}");
                    equal += 1;
                }
                (Cfa::Uncovered, Cfa::Sp) if theirs.cfa_offset < 0 => outermost += 1,
                // Frames of 256 KiB and more, in `reflect`.
                (Cfa::Unsupported, Cfa::Unsupported) => too_large += 1,
                (Cfa::End, Cfa::Sp | Cfa::End) => outermost += 1,
                (Cfa::Uncovered | Cfa::Sp | Cfa::End, Cfa::Uncovered) => padding += 1,
                _ => panic!("{mode}, {address:#x}: {ours:?}, {theirs:?}"),
            }
        }
        eprintln!(
            "{architecture}, {mode}: {equal} bytes of code alike, {outermost} in outermost functions, {padding} of padding"
        );
        assert!(equal > 400_000 && outermost > 0 && outermost < 10_000);
        assert!(padding < equal / 20);
        assert!(too_large < 4_000, "{too_large}");
    }
}

#[test]
fn damaged_tables_of_go_cost_rows_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let program = go(dir.path(), "amd64", &["-ldflags", "-s -w"]);
    let good = std::fs::read(program).unwrap();
    let file = object::File::parse(&*good).unwrap();
    let (at, size) = file
        .section_by_name(".gopclntab")
        .unwrap()
        .file_range()
        .unwrap();
    let mut random = Random(7);
    for round in 0..60 {
        let mut bytes = good.clone();
        // The head first, where everything depends on it; then anywhere.
        let reach = if round < 30 { 72 } else { size };
        for _ in 0..=round {
            bytes[usize::try_from(at + random.below(reach)).unwrap()] =
                random.next().to_le_bytes()[0];
        }
        if let Ok((table, _)) = Image::from_memory(&bytes).unwrap().table() {
            let rule = table.lookup(file.entry());
            assert!(
                rule == Rule::UNCOVERED || [Cfa::Sp, Cfa::End].contains(&rule.cfa),
                "{rule:?}"
            );
        }
    }
}
