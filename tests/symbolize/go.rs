//! Go programs, which keep their function names when they are stripped; `go tool nm` of the same program, not stripped,
//! says what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSegment};

use crate::target::{Dir, Target, names, skip, symbolizer};

const SOURCE: &str = r#"
package main

import (
	"os"
	"time"
)

type stack[T any] struct{ items []T }

//go:noinline
func (s *stack[T]) push(item T) { s.items = append(s.items, item) }

type worker struct{ done chan int }

//go:noinline
func (w *worker) run(n int) { w.done <- n }

//go:noinline
func largest[T int | float64](values ...T) (max T) {
	for _, value := range values {
		if value > max {
			max = value
		}
	}
	return max
}

func main() {
	w := worker{make(chan int)}
	go func() { w.run(largest(1, 2)) }()
	s := stack[string]{}
	s.push("started\n")
	<-w.done
	_ = largest(1.5)
	os.Stdout.WriteString(s.items[0])
	time.Sleep(time.Hour)
}
"#;

/// Names that must be among those compared, lest the comparison become empty.
const EXPECTED: [&str; 5] = [
    "main.main",
    "main.main.func1",
    "main.(*worker).run",
    "main.(*stack[...]).push",
    "main.largest[...]",
];

/// Symbols that mark places; the first function has the same address.
const MARKS: [&str; 4] = ["runtime.text", "runtime.etext", "go.buildid", "go:buildid"];

/// Answer of `go` to these words; none where it is not installed.
fn go(dir: &Dir, words: &[&str]) -> Option<String> {
    // The cache outlives the test: the standard library is compiled once.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let output = Command::new("go")
        .args(words)
        .current_dir(dir.path())
        .env("GOCACHE", home.join("go"))
        .env("GOPATH", home.join("gopath"))
        .env("GOENV", "off")
        .env("GOFLAGS", "-trimpath")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .output()
        .ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go {words:?}: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Builds the program as `whole` and, with names removed, as `bare`; false when there is no Go.
fn build(dir: &Dir, mode: &str) -> bool {
    if go(dir, &["version"]).is_none() {
        skip("go is not installed");
        return false;
    }
    fs::write(dir.file("go.mod"), "module hot\n\ngo 1.18\n").unwrap();
    fs::write(dir.file("main.go"), SOURCE).unwrap();
    let mode = format!("-buildmode={mode}");
    go(dir, &["build", &mode, "-o", "whole"]);
    go(dir, &["build", &mode, "-ldflags=-s -w", "-o", "bare"]);
    true
}

/// Start and size of every function, with the names that the symbol table has for it.
fn functions(dir: &Dir) -> BTreeMap<(u64, u64), BTreeSet<String>> {
    let text = go(dir, &["tool", "nm", "-size", "whole"]).unwrap();
    let mut functions: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let mut next = || fields.next().unwrap_or_default();
        let (start, size, kind) = (next(), next(), next());
        let name = fields.collect::<Vec<_>>().join(" ");
        if matches!(kind, "T" | "t") && !MARKS.contains(&&*name) {
            let start = u64::from_str_radix(start, 16).unwrap();
            let size = size.parse().unwrap();
            let names = functions.entry((start, size)).or_default();
            names.extend(spellings(&name));
        }
    }
    functions
}

/// The ways in which the table may have a symbol's name: without the calling convention, and before Go 1.20 with `[...]`
/// for what is in brackets.
fn spellings(name: &str) -> Vec<String> {
    let name = name.strip_suffix(".abi0").unwrap_or(name);
    let mut spellings = vec![name.to_owned()];
    if let (Some(open), Some(close)) = (name.find('['), name.rfind(']')) {
        spellings.push(format!("{}[...]{}", &name[..open], &name[close + 1..]));
    }
    spellings
}

/// Runs `program` and asks for every function of `whole`, at its start, in its middle and at its last byte.
fn compare(dir: &Dir, program: &str) {
    let target = Target::start(&dir.file(program));
    let bias = bias(target.tgid, &dir.file(program));
    let mut symbolizer = symbolizer();
    assert!(symbolizer.runs_go(target.tgid), "{program}");
    assert!(!symbolizer.runs_go(std::process::id()));
    let functions = functions(dir);
    let mut wrong = Vec::new();
    for ((start, size), expected) in &functions {
        for address in [*start, start + size / 2, start + size.max(&1) - 1] {
            // Each as a leaf: a caller's address is looked up a byte before.
            let locations = target.locate(&mut symbolizer, &[bias + address]);
            let found = symbolizer.user(&locations);
            // nm has a dot for Go's middle dot.
            let found = names(&found).join(";").replace('·', ".");
            if !expected.contains(&found) {
                wrong.push(format!("{address:#x}: {found}, not {expected:?}"));
            }
        }
    }
    let differing = wrong.len();
    assert!(
        wrong.is_empty(),
        "{program}: {differing} of {} × 3: {wrong:#?}",
        functions.len()
    );
    assert_eq!(symbolizer.losses().unnamed, 0);
    for name in EXPECTED {
        assert!(functions.values().any(|n| n.contains(name)), "{name}");
    }
    let count = functions.len();
    eprintln!("{program}: {count} functions agree");
    assert!(count > 1000);
}

/// How far from its ELF addresses a program was loaded.
fn bias(tgid: u32, program: &Path) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{tgid}/maps")).unwrap();
    let path = program.to_str().unwrap();
    let first = maps.lines().find(|l| l.ends_with(path)).unwrap();
    let start = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let bytes = fs::read(program).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let lowest = file.segments().map(|s| s.address()).min().unwrap();
    start - (lowest & !0xfff)
}

/// Removes the section headers: their place, number and size.
fn cut_sections(dir: &Dir, program: &str, as_name: &str) {
    let mut bytes = fs::read(dir.file(program)).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3a..0x40].fill(0);
    dir.program(as_name, &bytes);
}

fn agrees(mode: &str) {
    let dir = Dir::new();
    if !build(&dir, mode) {
        return;
    }
    let bytes = fs::read(dir.file("bare")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert_eq!(file.symbols().count(), 0, "stripped");
    let table = file
        .sections()
        .filter(|s| s.name().is_ok_and(|n| n.ends_with(".gopclntab")));
    assert_eq!(table.count(), 1);
    compare(&dir, "bare");
    cut_sections(&dir, "bare", "headless");
    compare(&dir, "headless");
    // The table inside another section, as other linkers leave it.
    let renamed = "--rename-section .gopclntab=.other --rename-section .data.rel.ro.gopclntab=.data.rel.ro.other";
    // A symbol without a size, as a stripped program with C code may have: it must not name the Go code behind it.
    let anchored = "--add-symbol anchor=.text:0x10,function,global";
    for (program, options) in [("merged", renamed), ("anchored", anchored)] {
        dir.run(&format!("objcopy {options} bare {program}"));
        compare(&dir, program);
    }
}

#[test]
fn every_function_of_a_stripped_static_program() {
    agrees("exe");
}

#[test]
fn every_function_of_a_stripped_position_independent_program() {
    agrees("pie");
}
