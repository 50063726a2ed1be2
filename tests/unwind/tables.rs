//! Whole files: every row, both its ends, and addresses within and between.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::machine::{LIBRARIES, LINKER};
use crate::oracle::{Outcome, compare};

fn assert_equal(path: &Path) -> Outcome {
    let outcome = compare(path).unwrap_or_else(|| panic!("{}: no .eh_frame", path.display()));
    eprintln!(
        "{}: {} rows, {} addresses, {} unsupported, {} without rbp, {} ends, {} in signal frames",
        path.display(),
        outcome.rows,
        outcome.addresses,
        outcome.unsupported.len(),
        outcome.lost,
        outcome.ends,
        outcome.signals,
    );
    let some = &outcome.differing[..outcome.differing.len().min(5)];
    assert!(
        some.is_empty(),
        "{} differ: {some:#?}",
        outcome.differing.len()
    );
    outcome
}

fn library(name: &str) -> Option<PathBuf> {
    let path = Path::new(LIBRARIES).join(name);
    path.exists().then_some(path)
}

#[test]
fn every_row_of_libc_says_what_gimli_says() {
    let outcome = assert_equal(&library("libc.so.6").expect("libc"));
    // longjmp and setcontext: what is behind them is no caller, and rsp (register 7) comes from elsewhere.
    let other = |text: &&String| !text.contains("(Register(7), ");
    assert_eq!(outcome.unsupported.iter().find(other), None);
    assert!(outcome.unsupported.len() < 10, "{:#?}", outcome.unsupported);
    assert_eq!(outcome.broken, Vec::<String>::new());
    assert!(outcome.rows > 10_000);
    assert!(outcome.signals > 0, "__restore_rt");
    assert_eq!(outcome.lost, 0);
}

#[test]
fn every_row_of_other_libraries_says_what_gimli_says() {
    for name in [LINKER, "libstdc++.so.6", "libcrypto.so.3", "libm.so.6"] {
        if let Some(path) = library(name) {
            let outcome = assert_equal(&path);
            // Lazy binding needs it, in the dynamic linker only.
            assert_eq!(
                outcome.bx > 1000,
                name.starts_with("ld-"),
                "{name}: {}",
                outcome.bx
            );
            for text in outcome.unsupported {
                eprintln!("{text}");
            }
        }
    }
}

#[test]
fn every_row_of_this_program_says_what_gimli_says() {
    let outcome = assert_equal(&std::env::current_exe().unwrap());
    assert_eq!(outcome.unsupported, Vec::<String>::new());
}

#[test]
fn every_row_of_many_programs_says_what_gimli_says() {
    let mut paths: Vec<_> = ["/usr/bin", LIBRARIES]
        .iter()
        .flat_map(|directory| std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.symlink_metadata().unwrap().is_file())
        .collect();
    paths.sort();
    // In an order that has nothing to do with names, so that the time limit cuts no family of files.
    paths.sort_by_key(|path| path.as_os_str().len() * 7919 % 1009);
    let largest = if cfg!(debug_assertions) {
        1 << 20
    } else {
        64 << 20
    };
    let begin = Instant::now();
    let (mut files, mut rows, mut lost, mut unsupported) = (0, 0, 0, Vec::new());
    for path in &paths {
        if path.metadata().unwrap().len() > largest {
            continue;
        }
        let Some(outcome) = compare(path) else {
            continue;
        };
        let some = &outcome.differing[..outcome.differing.len().min(5)];
        assert!(some.is_empty(), "{}: {some:#?}", path.display());
        files += 1;
        rows += outcome.rows;
        lost += outcome.lost;
        for text in outcome.broken {
            eprintln!("{}: {text}", path.display());
        }
        unsupported.extend(outcome.unsupported);
        if begin.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    let count = unsupported.len();
    eprintln!("{files} files, {rows} rows, {count} unsupported, {lost} addresses without rbp");
    assert!(files > 0);
    let some: Vec<_> = unsupported.iter().take(5).collect();
    assert!(count as u64 * 1000 <= rows, "{some:#?}");
}
