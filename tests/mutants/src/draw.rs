//! The choice of files and of mutations: drawn by a seed, the kinds in turns.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::mutation::{self, Mutation};

/// The accounting in Rust: what counts, adds, divides, merges and sorts. Ends of names count below directories.
const ACCOUNTS: [(&str, &[&str]); 6] = [
    ("common/hist/src", &[""]),
    ("common/budget/src", &[""]),
    ("common/host/src", &["clock"]),
    ("common/loader/src", &["arrivals", "counters", "maps"]),
    ("common/session/src", &["collect", "intervals", "schedule"]),
    (
        "common/profile/src",
        &[
            "ask/",
            "compare/",
            "folded/",
            "functions",
            "heaviest",
            "json/",
            "losses",
            "model",
            "reasons",
            "recording/",
            "statistics",
            "units",
            "write/",
        ],
    ),
];

/// In every tool.
const OF_TOOLS: [&str; 24] = [
    "assemble",
    "busy",
    "collection",
    "completions",
    "counters",
    "disk_use",
    "ended",
    "harvest",
    "idle",
    "intervals",
    "json",
    "losses",
    "merge",
    "moments",
    "psi",
    "ranking",
    "report",
    "row",
    "rows",
    "sampled",
    "table",
    "throttled",
    "utilisation",
    "weighted",
];

/// Paths below `root`, sorted.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in ["bpf", "common", "tools"] {
        below(root, Path::new(directory), &mut found)?;
    }
    found.retain(|file| is_mutated(file));
    found.sort();
    ensure!(
        found.len() > 100,
        "only {} files in {}",
        found.len(),
        root.display()
    );
    Ok(found)
}

fn below(root: &Path, directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(root.join(directory));
    for entry in entries.with_context(|| format!("read {}", directory.display()))? {
        let entry = entry?;
        let path = directory.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            below(root, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

fn is_mutated(file: &Path) -> bool {
    let name = file.to_string_lossy();
    if name.starts_with("bpf/") {
        let is_shipped = !name.starts_with("bpf/host/") && !name.starts_with("bpf/tests/");
        return is_shipped && (name.ends_with(".bpf.c") || name.ends_with(".bpf.h"));
    }
    let Some(stem) = name.strip_suffix(".rs").filter(|it| !it.ends_with("tests")) else {
        return false;
    };
    if let Some(rest) = stem.strip_prefix("tools/") {
        let is_tracing = !rest.starts_with("flame/");
        return is_tracing
            && rest
                .rsplit('/')
                .next()
                .is_some_and(|it| OF_TOOLS.contains(&it));
    }
    ACCOUNTS.iter().any(|(directory, parts)| {
        let rest = stem
            .strip_prefix(directory)
            .and_then(|it| it.strip_prefix('/'));
        rest.is_some_and(|rest| {
            parts.iter().any(|part| {
                part.is_empty() || rest == *part || (part.ends_with('/') && rest.starts_with(part))
            })
        })
    })
}

/// Mutations in the order in which they are tried: of C and of Rust, and of the kinds, in turns.
pub(crate) fn order(root: &Path, files: &[PathBuf], seed: u64) -> Result<Vec<Mutation>> {
    let mut classes = BTreeMap::<_, Vec<Mutation>>::new();
    for file in files {
        let text = fs::read_to_string(root.join(file))?;
        for mutation in mutation::of(file, &text)? {
            let class = (mutation.kind, mutation.is_c());
            classes.entry(class).or_default().push(mutation);
        }
    }
    let mut rng = Rng::with_seed(seed);
    let mut classes: Vec<Vec<Mutation>> = classes.into_values().collect();
    for class in &mut classes {
        rng.shuffle(class);
    }
    let mut order = Vec::new();
    while classes.iter().any(|class| !class.is_empty()) {
        order.extend(classes.iter_mut().filter_map(Vec::pop));
    }
    Ok(order)
}
