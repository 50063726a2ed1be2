//! Reasons of waits in documents are those that tools give.

use std::collections::BTreeSet;

use super::read;

/// Tools, `flame` and the manual have one list of reasons.
#[test]
fn reasons_are_those_that_the_manual_and_flame_know() {
    let source = read("common/host/src/waits/mod.rs");
    let names = source.split("pub fn name(self)").nth(1);
    let names = names.and_then(|rest| rest.split("\n    }\n").next());
    let arms = names.expect("a function").split("=> \"").skip(1);
    let mut given: BTreeSet<&str> = arms.filter_map(|arm| arm.split('"').next()).collect();
    // One is not the kernel's to tell.
    let by_functions = read("tools/offcputime/gil.rs");
    let by_functions = by_functions.split("GIL: &str = \"").nth(1);
    given.extend(by_functions.and_then(|rest| rest.split('"').next()));
    assert_eq!(given, profile::reasons::WORDS.into(), "flame's");
    let page = read("man/offcputime.8").replace("\\-", "-");
    let paragraph = page.split("\nThe reason of each wait ").nth(1);
    let paragraph = paragraph.and_then(|rest| rest.split("\n.PP\n").next());
    let is_of_a_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words = paragraph.expect("a paragraph");
    let words: BTreeSet<&str> = words.split(|c| !is_of_a_word(c)).collect();
    let missing: Vec<_> = given.difference(&words).collect();
    assert!(missing.is_empty(), "offcputime.8 lacks {missing:?}");
}
