//! Manuals name every key of their tools' JSON.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kernel::Machine;
use crate::tool::Tool;

/// Runs that have all parts of a report, but for a budget's.
const RUNS: [(&str, &str); 12] = [
    ("pressure", "-j -s 300ms 1"),
    ("profile", "-j 300ms"),
    ("offcputime", "-j --waker 300ms"),
    ("runqlat", "-j -P --slower 1us 300ms 1"),
    ("lockstat", "-j -s 1 300ms"),
    ("lockstat", "-j --now"),
    ("biolatency", "-j -P --phases --slower 1us 300ms 1"),
    ("syscount", "-j 300ms 1"),
    ("why", "-j 300ms"),
    ("why", "--brief 300ms"),
    ("why", "-j --slowest 1% --all 300ms"),
    ("why", "--brief --slowest 1% --all 300ms"),
];

/// Objects whose keys are names of others: losses and errors, ends of stacks, files, disks.
const BY_NAME: [&str; 5] = ["losses", "errors", "user_ends", "build_ids", "disks_busy"];

fn add_keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                found.insert(key.clone());
                if !BY_NAME.contains(&&**key) {
                    add_keys(value, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_keys(value, found)),
        _ => {}
    }
}

/// Words of a tool's manual, and of those that its fields are said to be as of.
fn words(tool: &str) -> BTreeSet<String> {
    let page = |tool: &str| {
        let path = format!("{}/../man/{tool}.8", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("a manual")
    };
    let own = page(tool);
    let others = own.split("(as of\n.BR ").skip(1);
    let others = others.filter_map(|rest| rest.split_whitespace().next());
    let pages: Vec<String> = others.map(page).collect();
    let pages = pages.iter().chain([&own]);
    let words = pages.flat_map(|page| page.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.map(str::to_owned).collect()
}

#[test]
fn manuals_name_every_key_of_their_tools_json() {
    let _machine = Machine::beside();
    for (tool, options) in RUNS {
        let mut keys = BTreeSet::new();
        for report in Tool::run(tool, options).reports() {
            add_keys(&report, &mut keys);
        }
        let words = words(tool);
        let unnamed: Vec<&String> = keys.difference(&words).collect();
        assert!(keys.len() > 10, "{tool}: {keys:?}");
        assert!(unnamed.is_empty(), "man/{tool}.8 lacks {unnamed:?}");
    }
}
