//! A name that no thread has: no error, as one may come to have it, but no result in silence either.

use crate::prelude::*;

/// More than 15 characters are nobody's name; `*` makes it a pattern that is taken.
const NOBODY: &str = "no-thread-is-called-so*";
const TOOLS: [(&str, &str); 8] = [
    ("why", "1"),
    ("offcputime", "0.2"),
    ("profile", "0.2"),
    ("lockstat", "0.2"),
    ("runqlat", "0.2 1"),
    ("syscount", "0.2 1"),
    ("biolatency", "0.2 1"),
    ("lockstat", "--now"),
];

fn remarks(tool: &str, options: &str) -> (String, usize) {
    let output = Tool::run(tool, options).ok();
    let said = output.stderr.lines();
    let said = said.filter(|line| line.starts_with(&format!("{tool}: no thread's name")));
    let count = said.count();
    (output.stdout, count)
}

#[test]
fn a_name_that_matches_nobody_is_remarked_by_every_tool() {
    let _machine = Machine::beside();
    for (tool, options) in TOOLS {
        let asked = format!("--comm {NOBODY} {options}");
        let (said, count) = remarks(tool, &asked);
        assert_eq!(count, 1, "{tool}");
        if tool == "why" {
            let nobody = said.starts_with("no thread of those asked for was seen in ");
            assert!(nobody && !said.contains("next: "), "{said}");
        }
        assert_eq!(remarks(tool, &format!("-q {asked}")).1, 0, "{tool}");
    }
}

/// It waits for a word, and nothing else: nothing is counted of it, in any tool.
#[test]
fn a_name_that_somebody_has_is_not_remarked_though_he_does_nothing() {
    let _machine = Machine::beside();
    let workload = Workload::start("spinner", "--threads 1 --seconds 0.1");
    for (tool, options) in TOOLS {
        let asked = format!("--comm spinner* {options}");
        assert_eq!(remarks(tool, &asked).1, 0, "{tool}");
    }
    drop(workload);
}
