//! Small programs made by the system's compiler, and what its own tools say about them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::module::Module;
use super::sections::Sections;

/// What all tests of programs need.
pub(super) const TOOLS: [&str; 5] = ["gcc", "nm", "addr2line", "objcopy", "strip"];

/// `inner` is inlined into `outer`, which is inlined into `visible`.
pub(super) const INLINES: &str = "volatile int sink;
static inline __attribute__((always_inline)) void inner(int by) {
    for (int i = 0; i < by; i++)
        sink += i * by;
}
static inline __attribute__((always_inline)) void outer(int by) {
    sink ^= by;
    inner(by + 1);
}
__attribute__((noinline)) void visible(int by) {
    sink = 1;
    outer(by);
}
__attribute__((noinline)) static int hidden(int by) { return sink * by; }
int main(int argc, char **argv) { visible(argc); return hidden(argc); }
";

/// Whether all of the tools are there; says so when not, and fails if `REQUIRE_LIVE` is 1.
pub(super) fn have(tools: &[&str]) -> bool {
    for tool in tools {
        if Command::new(tool).arg("--version").output().is_err() {
            let required = std::env::var_os("REQUIRE_LIVE").is_some_and(|value| value == "1");
            assert!(!required, "{tool} is missing");
            eprintln!("SKIPPED: {tool} is missing");
            return false;
        }
    }
    true
}

/// Runs a command in a directory and returns what it printed.
#[track_caller]
pub(super) fn run(directory: &Path, command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .current_dir(directory)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles [`INLINES`] to `program` in `directory`.
pub(super) fn compile(directory: &Path, options: &str) -> PathBuf {
    std::fs::write(directory.join("program.c"), INLINES).unwrap();
    run(directory, &format!("gcc {options} program.c -o program"));
    directory.join("program")
}

/// A module as it is made of a file that a process maps.
pub(super) fn module(path: &Path, root: Option<File>) -> Module {
    let file = File::open(path).unwrap();
    let build_id = Sections::read(&file).and_then(|sections| sections.build_id());
    Module {
        path: path.to_str().unwrap().into(),
        build_id: build_id.unwrap_or_default(),
        file: Some(file),
        root,
    }
}

/// Start and size of a function, from `nm`.
pub(super) fn extent(program: &Path, function: &str) -> (u64, u64) {
    let directory = program.parent().unwrap();
    let table = run(directory, &format!("nm -S {}", program.display()));
    let line = table
        .lines()
        .find(|line| line.ends_with(&format!(" {function}")))
        .unwrap();
    let mut fields = line
        .split(' ')
        .map(|field| u64::from_str_radix(field, 16).unwrap_or(0));
    (fields.next().unwrap(), fields.next().unwrap())
}

/// Functions at an address with their lines, outermost first, from `addr2line`.
pub(super) fn oracle(program: &Path, address: u64) -> Vec<(String, u32)> {
    let directory = program.parent().unwrap();
    let text = run(
        directory,
        &format!("addr2line -i -f -e {} {address:#x}", program.display()),
    );
    let lines: Vec<&str> = text.lines().collect();
    lines
        .chunks_exact(2)
        .rev()
        .map(|pair| {
            let line = pair[1].rsplit_once(':').unwrap().1;
            let digits = line.split(' ').next().unwrap();
            (pair[0].to_owned(), digits.parse().unwrap_or(0))
        })
        .collect()
}
