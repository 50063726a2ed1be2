//! Native stacks, by gdb.

use std::collections::BTreeMap;
use std::process::Command;

use python::Process;

use super::interpreters::Interpreter;
use super::outside::Outside;

/// Native frames of a thread that are looked at.
pub(crate) const MOST: usize = 300;

/// The return addresses of each thread, by its number.
pub(crate) fn stacks(interpreter: &Interpreter, process: &Outside) -> BTreeMap<u64, Vec<u64>> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    let loader = interpreter.words.len() > 1;
    if loader {
        // Else it takes the loader.
        gdb.args(["-iex", "set exec-file-mismatch off"]);
        gdb.args(interpreter.words.last());
    }
    gdb.args(["-p", &process.pid.to_string()]);
    // A program that another loader started has libraries that gdb does not know of.
    for mapping in process
        .mappings()
        .iter()
        .filter(|mapping| loader && mapping.offset == 0)
    {
        let path = mapping.path.display().to_string();
        if path.contains(".so") {
            let start = mapping.range.start;
            gdb.args(["-ex", &format!("add-symbol-file {path} -o {start:#x}")]);
        }
    }
    gdb.args(["-ex", &format!("thread apply all backtrace {MOST}")]);
    let output = gdb.output().expect("gdb");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut stacks = BTreeMap::new();
    let mut thread = 0;
    for line in text.lines() {
        if let Some((_, tid)) = line
            .strip_prefix("Thread ")
            .and_then(|line| line.split_once("(LWP "))
        {
            let digits = tid.split(|byte: char| !byte.is_ascii_digit()).next();
            thread = digits.and_then(|tid| tid.parse().ok()).expect("a number");
            stacks.insert(thread, Vec::new());
        } else if line.starts_with('#') {
            let word = line
                .split_whitespace()
                .nth(1)
                .and_then(|word| word.strip_prefix("0x"));
            let address = word.and_then(|word| u64::from_str_radix(word, 16).ok());
            stacks.entry(thread).or_default().extend(address);
        }
    }
    stacks
}
