//! Labels of made-up samples.

use super::*;
use crate::read::{ReadOptions, read};

#[test]
fn a_task_whose_number_is_one_has_a_number() {
    let values = |text: &str, label: &str| {
        let recording = read(text.as_bytes(), &ReadOptions::default()).expect("a profile");
        let found = top(&recording, &By::Label(label.into()));
        let names = found.entries.into_iter().map(|entry| entry.name);
        names.collect::<Vec<_>>()
    };
    let first = "init 1/1 1.5: cpu-clock: \n\t10 f (/a)\n\n";
    for label in ["pid", "tid"] {
        assert_eq!(values(first, label), ["1"]);
        assert_eq!(values("a;f 1\n", label), [format!("[no {label}]")]);
    }
}
