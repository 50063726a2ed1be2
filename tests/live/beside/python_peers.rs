//! Python's functions by another's account: py-spy's, which finds them in the process's memory by code and tables of its own.

use std::collections::BTreeMap;
use std::process::Command;

use crate::beside::interpreters::{interpreters, source};
use crate::beside::lockstat_newer::newer;
use crate::beside::symbols::{name, stacks};
use crate::c_program::run;
use crate::kernel::until;
use crate::prelude::*;

/// Threads of `asleep.py`: one for each way to call, a pool's, and the first.
const THREADS: usize = 15;

/// A function, its file and the line that it is in.
type Place = (String, String, u64);

/// Functions of each thread, leaf first, by py-spy.
fn theirs(pid: u32) -> BTreeMap<u64, Vec<Place>> {
    let program = &newer("py-spy")[0];
    let text = run(Command::new(program).args(["dump", "--json", "--pid", &pid.to_string()]));
    let threads: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let place = |frame: &Value| {
        let file = text_of(frame, "filename");
        (text_of(frame, "name"), file, number(frame, "line"))
    };
    let of = |thread: &Value| {
        let frames = list(thread, "frames").iter();
        (number(thread, "os_thread_id"), frames.map(place).collect())
    };
    threads.iter().map(of).collect()
}

/// The same by offcputime, where names begin with the module's.
fn ours(pid: u32) -> BTreeMap<u64, Vec<Place>> {
    let report = Tool::run("offcputime", format!("-j --strict -p {pid} 0.3"))
        .ok()
        .report();
    let place = |frame: &Value| {
        let file = text_of(frame, "file");
        (name(frame).to_owned(), file, number(frame, "line"))
    };
    let of = |stack: &Value| {
        let frames = list(stack, "user").iter().rev();
        let functions = frames.filter(|frame| frame["kind"] == "jit");
        (number(stack, "tid"), functions.map(place).collect())
    };
    stacks(&report).iter().map(of).collect()
}

fn text_of(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// Functions in which its threads stay, without their classes.
const LAST: [&str; 5] = ["nap", "select", "wait", "_worker", "by_lock"];

/// Waits until each thread is where it stays.
fn settled(pid: u32) -> BTreeMap<u64, Vec<Place>> {
    let mut found = BTreeMap::new();
    until("all threads are asleep for good", || {
        found = theirs(pid);
        let is_last = |places: &Vec<Place>| {
            let name = places.first().and_then(|place| place.0.rsplit('.').next());
            name.is_some_and(|name| LAST.contains(&name))
        };
        found.len() == THREADS && found.values().all(is_last)
    });
    found
}

#[test]
fn functions_files_and_lines_are_those_that_py_spy_finds() {
    let _machine = Machine::beside();
    for python in interpreters() {
        let mut command = Command::new(&python);
        command.arg("-I").arg(source("asleep.py"));
        let workload = Workload::spawn("python", command);
        let theirs = settled(workload.pid());
        let ours = ours(workload.pid());
        assert_eq!(ours.len(), THREADS, "{python}");
        for (tid, theirs) in &theirs {
            let ours = &ours[tid];
            let is_same = |(own, other): (&Place, &Place)| {
                let is_named = own.0 == other.0 || own.0.ends_with(&format!(".{}", other.0));
                is_named && (&own.1, own.2) == (&other.1, other.2)
            };
            let are_same = ours.len() == theirs.len() && ours.iter().zip(theirs).all(is_same);
            assert!(are_same, "{python}, thread {tid}: {ours:#?}, {theirs:#?}");
        }
    }
}

/// Samples by the chain of functions that they met, root first; chains that hardly any met are left out.
fn shares(samples: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for (chain, count) in samples {
        *counts.entry(chain).or_default() += count;
    }
    let all: u64 = counts.values().sum();
    let shares = counts.into_iter();
    let shares = shares.map(|(chain, count)| (chain, count as f64 / all as f64));
    shares.filter(|(_, share)| *share >= 0.02).collect()
}

/// A folded line's frames and its count.
fn folded(line: &str) -> (Vec<&str>, u64) {
    let (frames, count) = line.rsplit_once(' ').expect("a count");
    (
        frames.split(';').collect(),
        count.parse().expect("a number"),
    )
}

/// Functions have their class in front, and sometimes not: `Worker.long (shares.py:33)`.
fn sampled_by_py_spy(pid: u32) -> BTreeMap<String, f64> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let args =
        format!("record --format raw --function --rate 101 --duration 8 --pid {pid} --output");
    let mut command = Command::new(&newer("py-spy")[0]);
    run(command.args(args.split(' ')).arg(file.path()));
    let text = std::fs::read_to_string(file.path()).expect("what it wrote");
    shares(text.lines().map(|line| {
        let (frames, count) = folded(line);
        let names = frames.iter().map(|frame| frame.split(" (").next());
        let names = names.map(Option::unwrap_or_default).map(last_part);
        (names.collect::<Vec<_>>().join(";"), count)
    }))
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// Ours has the module in front, and what is below and between: the interpreter's own and the kernel's.
fn sampled_by_us(pid: u32) -> BTreeMap<String, f64> {
    let text = Tool::run("profile", format!("-f -F 99 -p {pid} 8"))
        .ok()
        .stdout;
    shares(text.lines().map(|line| {
        let (frames, count) = folded(line);
        let names = frames.iter().filter(|frame| frame.starts_with("shares."));
        let names = names.map(|frame| last_part(frame));
        (names.collect::<Vec<_>>().join(";"), count)
    }))
}

/// Functions behind files and before lines; the weight of a line is time on a CPU, us.
fn sampled_by_austin(pid: u32) -> BTreeMap<String, f64> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let args = format!("--sleepless --interval 10ms --exposure 8 --pid {pid} --output");
    let mut command = Command::new(&newer("austin")[0]);
    run(command.args(args.split(' ')).arg(file.path()));
    let text = std::fs::read_to_string(file.path()).expect("what it wrote");
    let lines = text.lines().filter(|line| line.starts_with('P'));
    shares(lines.map(|line| {
        let (frames, us) = folded(line);
        let names = frames.iter().filter(|frame| frame.contains("shares.py:"));
        let names = names.filter_map(|frame| frame.rsplit(':').nth(1).map(last_part));
        (names.collect::<Vec<_>>().join(";"), us)
    }))
}

/// The share of each chain is the program's, and that of another sampler.
fn assert_shares(peer: &str, sampled: fn(u32) -> BTreeMap<String, f64>) {
    let _machine = Machine::alone();
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-I").arg(source("shares.py"));
    let mut workload = Workload::spawn("python", command);
    workload.go();
    let theirs = sampled(workload.pid());
    let ours = sampled_by_us(workload.pid());
    assert!(ours.keys().eq(theirs.keys()), "{ours:#?}, {theirs:#?}");
    // Some 800 samples each: three standard errors of one, and of the difference of both, at most.
    for (name, ms) in [("short", 11.0), ("middle", 23.0), ("long", 37.0)] {
        let (chain, found) = ours
            .iter()
            .find(|(chain, _)| chain.contains(name))
            .expect("it");
        let off = found - ms / (11.0 + 23.0 + 37.0);
        assert_within(chain, off, -0.053..=0.053, "the program's share");
    }
    for ((chain, ours), theirs) in ours.iter().zip(theirs.values()) {
        assert_within(
            chain,
            ours - theirs,
            -0.075..=0.075,
            format!("{peer}'s share"),
        );
    }
}

#[test]
#[ignore = "statistical: make truth"]
fn shares_of_chains_are_those_that_py_spy_samples() {
    assert_shares("py-spy", sampled_by_py_spy);
}

#[test]
#[ignore = "statistical: make truth"]
fn shares_of_chains_are_those_that_austin_samples() {
    assert_shares("Austin", sampled_by_austin);
}
