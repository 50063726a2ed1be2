//! What `make dist` packed, at work where there is no C library, where there is another one, and where it lies elsewhere.

#[path = "dist/container.rs"]
mod container;
#[path = "dist/machines.rs"]
mod machines;
#[path = "dist/packages.rs"]
mod packages;
#[path = "dist/sources.rs"]
mod sources;
#[path = "dist/userland.rs"]
mod userland;

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use userland::{Userland, run, staged, unpack};

/// Bytes that the program may have: it is copied to machines that have nothing else.
const MOST_BYTES: usize = 8_000_000;
/// Sampling rate; no divisor or multiple of the kernel's ticks.
const HERTZ: u64 = 997;
/// Prime numbers of calls.
const NAPS: u64 = 307;
const ALLOCATIONS: u64 = 211;

fn tools(unpacked: &Path) -> Vec<String> {
    let entries = fs::read_dir(unpacked.join("bin")).expect("programs");
    let names = entries.flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name != "usekit").collect()
}

impl Userland {
    /// Runs a tool of ours on /program and gives what the program said of itself, and the file that the tool wrote.
    fn trace(&self, tool: &str, args: &[&str]) -> (Value, String) {
        let mut all = args.to_vec();
        all.extend(["-o", "/traced.folded", "--", "/program"]);
        let output = run(&mut self.command(tool, &all));
        let stdout = String::from_utf8(output.stdout).expect("text");
        let own = stdout.lines().find(|line| line.contains("burn_ns"));
        let own = serde_json::from_str(own.expect("its report")).expect("JSON");
        let folded = fs::read_to_string(self.path("traced.folded")).expect("folded stacks");
        (own, folded)
    }

    /// Every tool against what the program knows of itself. `tables`: the C library can be unwound.
    fn tools_tell_the_truth(&self, tables: bool) {
        let (own, folded) = self.trace("profile", &["-F", &HERTZ.to_string()]);
        let expected = number(&own, "burn_ns") * HERTZ / 1_000_000_000;
        let found = value_of(&folded, if tables { &["burns", "hot"] } else { &["hot"] });
        assert!(
            found.abs_diff(expected) <= expected / 10,
            "{found} samples, {expected} expected:\n{folded}"
        );

        let flame = run(&mut self.command("flame", &["top", "/traced.folded"]));
        let table = String::from_utf8_lossy(&flame.stdout).into_owned();
        assert!(table.contains("hot"), "{table}");
        run(&mut self.command("flame", &["draw", "/traced.folded", "-o", "/drawn.svg"]));
        let svg = fs::read_to_string(self.path("drawn.svg")).expect("a picture");
        assert!(svg.contains("<svg") && svg.contains("hot"), "{svg}");

        let (own, folded) = self.trace("offcputime", &[]);
        let (found, least) = (
            value_of(
                &folded,
                &[if tables { "naps" } else { "hrtimer_nanosleep" }],
            ),
            NAPS * 1000,
        );
        let most = number(&own, "nap_ns") / 1000;
        assert!(
            (least..=most).contains(&found),
            "{found} us of naps, {least} to {most} expected:\n{folded}"
        );

        let output = run(&mut self.command("runqlat", &["-j", "--", "/program"]));
        let stdout = String::from_utf8(output.stdout).expect("text");
        let report = stdout.lines().find(|line| line.contains("\"count\":"));
        let report: Value = serde_json::from_str(report.expect("a report")).expect("JSON");
        let waits = waits_of(&report);
        assert!(waits >= NAPS, "{waits} waits, {NAPS} naps: {report}");

        for tool in ["biolatency", "pressure"] {
            let output = run(&mut self.command(tool, &["-j", "0.2", "1"]));
            let stdout = String::from_utf8(output.stdout).expect("text");
            let lines: Vec<Value> = stdout
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect();
            assert!(!lines.is_empty(), "{tool}: nothing");
        }
        for tool in tools(&self.path("usekit")) {
            for args in [&["--version"][..], &["--help"], &["--completions", "bash"]] {
                let output = run(&mut self.command(&tool, args));
                assert!(!output.stdout.is_empty(), "{tool} {args:?}");
            }
        }
    }

    /// A library is found by its bare name, its function by the library's own table, and all its calls are counted.
    fn allocations_are_counted(&self, tables: bool) {
        let (_, folded) = self.trace("profile", &["-e", "uprobe:libc:malloc", "-c", "1"]);
        assert_eq!(
            value_of(&folded, &[if tables { "allocates" } else { "malloc" }]),
            ALLOCATIONS,
            "{folded}"
        );
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

/// The sum over stacks that have all these functions.
fn value_of(folded: &str, functions: &[&str]) -> u64 {
    let lines = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let with = |stack: &str| {
        let frames: BTreeSet<_> = stack.split(';').collect();
        functions.iter().all(|function| frames.contains(function))
    };
    lines
        .filter(|(stack, _)| with(stack))
        .map(|(_, value)| value.parse::<u64>().expect("a number"))
        .sum()
}

/// The count of a report's histograms, wherever it keeps them.
fn waits_of(report: &Value) -> u64 {
    match report {
        Value::Object(fields) => fields
            .get("count")
            .and_then(Value::as_u64)
            .unwrap_or_else(|| fields.values().map(waits_of).sum()),
        Value::Array(items) => items.iter().map(waits_of).sum(),
        _ => 0,
    }
}

fn library(name: &str) -> PathBuf {
    let output = run(Command::new("cc").arg(format!("-print-file-name={name}")));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

#[test]
fn the_archive_has_everything() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("usekit");
    unpack(&staged(), &root);
    let tools = tools(&root);
    assert!(tools.len() >= 6, "{tools:?}");
    for tool in tools.iter().map(String::as_str).chain(["usekit"]) {
        let section = if tool == "flame" { 1 } else { 8 };
        for file in [
            format!("share/man/man{section}/{tool}.{section}"),
            format!("share/bash-completion/completions/{tool}"),
            format!("share/zsh/site-functions/_{tool}"),
            format!("share/fish/vendor_completions.d/{tool}.fish"),
        ] {
            let length = fs::metadata(root.join(&file)).map_or(0, |data| data.len());
            assert!(length > 0, "{file}");
        }
    }
    for tool in &tools {
        let examples = format!("share/doc/usekit/examples/{tool}_example.txt");
        assert!(root.join(&examples).is_file(), "{examples}");
    }
    let program = fs::read(root.join("bin/usekit")).expect("a program");
    assert!(program.len() <= MOST_BYTES, "{} bytes", program.len());
    let path = env!("CARGO_MANIFEST_DIR").as_bytes();
    let found = program.windows(path.len()).any(|bytes| bytes == path);
    assert!(!found, "the builder's directories");
    for file in [
        "LICENSE",
        "README.md",
        "docs/wait.png",
        "share/doc/usekit/LINKED",
        "SECURITY.md",
        "share/doc/usekit/SECURITY.md",
        "share/doc/usekit/docs/guide.md",
        "share/man/man7/usekit.7",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
}

#[test]
fn where_there_is_nothing() {
    let userland = Userland::empty();
    userland.compile("cc", &["-static"]);
    userland.tools_tell_the_truth(true);
}

/// As Alpine has it: busybox, and musl in /lib, which is built with neither unwind tables nor frame pointers: the callers of
/// its functions cannot be known.
#[test]
fn where_the_c_library_is_musl() {
    let userland = Userland::empty();
    userland.give(Path::new("/bin/busybox"), "/bin/busybox");
    symlink("busybox", userland.path("bin/sh")).expect("a link");
    let linker = format!("ld-musl-{ARCH}.so.1");
    let library = userland.path(&format!("lib/libc.musl-{ARCH}.so.1"));
    let path = format!("/lib/{linker}");
    userland.give(Path::new(&path), &path);
    symlink(linker, library).expect("a link");
    userland.compile("musl-gcc", &[]);
    userland.tools_tell_the_truth(false);
    userland.allocations_are_counted(false);
    let line = "profile -q -f -F 997 -- /program | busybox grep -c hot";
    let piped = run(&mut userland.command("/bin/sh", &["-c", line]));
    assert_ne!(String::from_utf8_lossy(&piped.stdout).trim(), "0");
}

/// As Fedora and its relatives have it: the C library in /usr/lib64, and no /lib but a link.
#[test]
fn where_libraries_are_in_lib64() {
    let userland = Userland::empty();
    userland.give(&library("libc.so.6"), "/usr/lib64/libc.so.6");
    userland.give(
        &library("ld-linux-x86-64.so.2"),
        "/usr/lib64/ld-linux-x86-64.so.2",
    );
    symlink("usr/lib64", userland.path("lib64")).expect("a link");
    userland.compile("cc", &["-Wl,-rpath,/usr/lib64"]);
    userland.tools_tell_the_truth(true);
    userland.allocations_are_counted(true);
}

/// Debian's own, made with `debootstrap --variant=minbase SUITE DIR`: their paths, separated by colons.
#[test]
fn in_the_userlands_that_are_given() {
    let given = std::env::var("USEKIT_USERLANDS").unwrap_or_default();
    for root in given.split(':').filter(|root| !root.is_empty()) {
        let userland = Userland::empty();
        for place in ["etc", "usr", "lib", "lib64", "bin"] {
            let from = Path::new(root).join(place);
            run(Command::new("cp")
                .arg("-a")
                .arg(from)
                .arg(userland.path("/")));
        }
        userland.compile("cc", &[]);
        let starts = userland.command("/program", &[]).status();
        if starts.is_ok_and(|status| status.success()) {
            userland.allocations_are_counted(true);
        } else {
            eprintln!(
                "{root}: older than this machine's C library; the program takes its own along"
            );
            userland.compile("cc", &["-static"]);
        }
        userland.tools_tell_the_truth(true);
        eprintln!("{root}: as it should be");
    }
}
