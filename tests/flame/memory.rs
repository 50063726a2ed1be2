//! How much memory long inputs take: what their different stacks need, however often those come.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Different stacks, of 20 frames each.
const STACKS: usize = 2_000;

/// Lines that come again and again, some 1.2 MB of them.
fn folded() -> String {
    let line = |n: usize| {
        let frames = (0..20).map(|depth| format!("function_number_{}", n * depth % 977));
        format!("app;{} {n}\n", frames.collect::<Vec<_>>().join(";"))
    };
    (0..STACKS).map(line).collect()
}

/// The same as perf script prints it, each at another address.
fn perf() -> String {
    let event = |n: usize| {
        let frame = |depth: usize| {
            let (address, name) = (0x40_0000 + n * 64 + depth, n * depth % 977);
            format!("\t{address:16x} function_number_{name}+0x{n:x} (/bin/app)\n")
        };
        let frames: String = (0..20).map(frame).collect();
        format!("app {n}/{n} [000] {n}.000000: cpu-clock: \n{frames}\n")
    };
    (0..STACKS).map(event).collect()
}

/// Largest resident size, KiB, of folding this so many times through a pipe.
fn peak_kib(text: &str, times: usize) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(["merge", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flame runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = child.stdout.take().expect("a pipe");
    let text = text.to_owned();
    let writer = std::thread::spawn(move || {
        (0..times).for_each(|_| stdin.write_all(text.as_bytes()).expect("flame reads"));
    });
    // When the first byte comes everything is read and in order, and the rest does not fit into the pipe: it waits.
    let mut first = [0];
    stdout.read_exact(&mut first).expect("output");
    writer.join().expect("it writes");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("flame is still there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("output");
    assert!(rest.len() > 200_000, "more than a pipe holds");
    assert!(child.wait().expect("it ends").success());
    let number = line.and_then(|line| line.split_whitespace().next());
    let kib = number.expect("a size").parse();
    kib.expect("a number")
}

#[test]
fn memory_follows_the_different_stacks_and_not_the_length() {
    for (what, text) in [("folded", folded()), ("perf", perf())] {
        let times = 10_000_000 / text.len();
        let short = peak_kib(&text, times);
        let long = peak_kib(&text, 10 * times);
        eprintln!("{what}: {short} KiB for 10 MB, {long} KiB for 100 MB");
        assert!(long <= short + 1024, "{what}: {short} and {long} KiB");
        assert!(long <= 24 << 10, "{what}: {long} KiB");
    }
}
