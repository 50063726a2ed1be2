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
