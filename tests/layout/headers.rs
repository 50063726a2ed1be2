//! Headers by the tools whose BPF programs include them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The headers of `include` with the tools that include them, themselves or through others.
pub(crate) fn users(bpf: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let include = bpf.join("include");
    let folder = include.join("machine");
    let machine = named_in(&folder).map(|header| format!("machine/{header}"));
    let mut users: BTreeMap<String, BTreeSet<String>> = named_in(&include)
        .filter(|name| include.join(name).is_file())
        .chain(machine)
        .map(|header| (header, BTreeSet::new()))
        .collect();
    for tool in named_in(bpf) {
        for file in named_in(&bpf.join(&tool)).filter(|file| file.ends_with(".bpf.c")) {
            let mut left = included(&bpf.join(&tool).join(file));
            let mut seen = BTreeSet::new();
            while let Some(header) = left.pop() {
                if !seen.insert(header.clone()) {
                    continue;
                }
                let beside = bpf.join(&tool).join(&header);
                let is_own = beside.is_file();
                left.extend(included(&if is_own {
                    beside
                } else {
                    include.join(&header)
                }));
                if let Some(tools) = users.get_mut(&header).filter(|_| !is_own) {
                    tools.insert(tool.clone());
                }
            }
        }
    }
    users
}

/// The names in a directory; none of what is no directory.
fn named_in(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).ok();
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names.map(|name| name.to_string_lossy().into_owned())
}

/// The quoted names in `#include` lines.
fn included(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let quoted = text
        .lines()
        .filter_map(|line| line.strip_prefix("#include \""));
    quoted
        .map(|rest| rest.trim_end_matches('"').to_owned())
        .collect()
}
