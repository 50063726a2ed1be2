//! User stacks of programs as Debian ships them are complete, and what perf finds by copying stacks is what we find.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use crate::beside::symbols::{frames, name, stacks};
use crate::call_shares::{Account, Functions, assert_agree};
use crate::elf_entry::Elves;
use crate::kernel::{schedstat, tasks, until};
use crate::perf_dwarf::{PerfFrame, Recording};
use crate::postgres::{Server, Session};
use crate::prelude::*;
use crate::real_program::{self, Real};

/// The beginnings of glibc's threads, the last one on arm64.
const THREAD_STARTS: [&str; 5] = ["clone3", "__clone3", "clone", "__clone", "thread_start"];

/// Most of perf's stacks that may end before the root: it has 16 KiB of each, and one frame of CMake's regular
/// expressions takes more. What was cut weakens the comparison, see [`Account`].
const PERF_CUT: f64 = 0.25;

/// CPU time for 2,000 samples.
const BUSY_NS: u64 = 2_000_000_000;

fn address(frame: &Value) -> Option<u64> {
    u64::from_str_radix(frame["address"].as_str()?.strip_prefix("0x")?, 16).ok()
}

fn with_user(report: &Value) -> impl Iterator<Item = &Value> {
    let all = stacks(report).iter();
    let has_user = |user: &Vec<Value>| !user.is_empty();
    all.filter(move |stack| stack["user"].as_array().is_some_and(has_user))
}

/// By its own root-most frame, not by what the walk said of itself.
fn is_rooted(stack: &Value, elves: &mut Elves) -> bool {
    let root = &frames(stack, "user")[0];
    let module = root["module"].as_str().unwrap_or_default();
    THREAD_STARTS.contains(&name(root))
        || address(root).is_some_and(|address| elves.is_entry(module, address))
}

/// At least 99 % of the user stacks, by their value, are complete: by the tool's word and by their root.
fn assert_complete(what: &str, report: &Value, elves: &mut Elves) {
    let ends = report["user_ends"].as_object().expect("ends");
    let ends: BTreeMap<&str, u64> = ends
        .iter()
        .map(|(end, n)| (end.as_str(), n.as_u64().unwrap_or(0)))
        .collect();
    let all: u64 = with_user(report).map(weight).sum();
    assert!(all > 0, "{what}: nothing was seen");
    assert_eq!(ends.values().sum::<u64>(), all, "{what}: {ends:?}");
    let claimed = ends.get("root").copied().unwrap_or(0);
    let mut cut = Vec::new();
    let mut rooted = 0;
    for stack in with_user(report) {
        let is_rooted = is_rooted(stack, elves);
        rooted += if is_rooted { weight(stack) } else { 0 };
        if stack["user_end"] != "root" || !is_rooted {
            let names = |side| {
                frames(stack, side)
                    .iter()
                    .map(name)
                    .collect::<Vec<_>>()
                    .join(";")
            };
            let (value, end) = (weight(stack), &stack["user_end"]);
            cut.push(format!(
                "{value} {end} {} | {}",
                names("user"),
                names("kernel")
            ));
        }
    }
    cut.truncate(20);
    let cut = cut.join("\n");
    eprintln!("{cut}\n{what}: {ends:?}");
    for (kind, found) in [("said to be complete", claimed), ("rooted", rooted)] {
        let what = format!("{what}, {kind}, of {all}");
        assert_within(what, found * 100, all * 99.., &cut);
    }
}

/// Names of one function in the two tools' words: local aliases, versions, the pieces that compilers make.
fn normal(name: &str) -> &str {
    let name = name.split("@@").next().unwrap_or(name);
    let name = name.strip_suffix("@plt").unwrap_or(name);
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let pieces = [".part.", ".isra.", ".constprop.", ".cold"];
    let end = pieces.iter().filter_map(|piece| name.find(piece)).min();
    &name[..end.unwrap_or(name.len())]
}

/// A place in a file: module and address.
type Place = (String, u64);

/// A function that has lost its name is the calls in it, each by its address.
fn nameless(module: &str, address: u64) -> String {
    format!("{module}+{address:#x}")
}

fn perf_account(
    recorded: &[Vec<PerfFrame>],
    elves: &mut Elves,
) -> (Account, HashMap<Place, String>) {
    let mut names = HashMap::new();
    let mut account = Account::default();
    for stack in recorded {
        let mut functions = BTreeSet::new();
        for frame in stack {
            let Some(at) = elves.address(&frame.module, frame.offset) else {
                continue;
            };
            let name = frame.name.as_deref().map(|name| normal(name).to_owned());
            let name = name.unwrap_or_else(|| nameless(&frame.module, at));
            names.insert((frame.module.clone(), at), name.clone());
            functions.insert(name);
        }
        let root = &stack[0];
        let by_name = root
            .name
            .as_deref()
            .is_some_and(|name| THREAD_STARTS.contains(&name));
        let at = elves.address(&root.module, root.offset);
        account.stacks.push(Functions {
            rooted: by_name || at.is_some_and(|at| elves.is_entry(&root.module, at)),
            weight: 1,
            names: functions,
        });
    }
    (account, names)
}

/// Ours in perf's words: an address that both saw has the name that perf gave it, and so have its other names.
///
/// Names are other tests' business. Here free and cfree are one function, and a stripped one is none.
fn own_account(report: &Value, theirs: &HashMap<Place, String>, elves: &mut Elves) -> Account {
    let place = |frame: &Value| Some((frame["module"].as_str()?.to_owned(), address(frame)?));
    let all_frames = || with_user(report).flat_map(|stack| frames(stack, "user"));
    let mut aliases = HashMap::new();
    for frame in all_frames() {
        let their = place(frame).and_then(|place| theirs.get(&place));
        if let Some(their) = their.filter(|their| !their.contains("+0x")) {
            aliases.insert(normal(name(frame)), their.as_str());
        }
    }
    let function = |frame: &Value| {
        let (own, place) = (normal(name(frame)), place(frame)?);
        let known = theirs
            .get(&place)
            .map(String::as_str)
            .or(aliases.get(own).copied());
        Some(match known {
            Some(known) => known.to_owned(),
            None if own.contains("+0x") => nameless(&place.0, place.1),
            None => own.to_owned(),
        })
    };
    let functions = with_user(report).map(|stack| Functions {
        names: frames(stack, "user").iter().filter_map(function).collect(),
        rooted: is_rooted(stack, elves),
        weight: weight(stack),
    });
    Account {
        stacks: functions.collect(),
    }
}

/// Waits until the program's threads have had so much CPU time.
fn await_work(pid: u32) {
    let spent_ns = || {
        let spent = tasks(pid);
        spent.iter().map(|task| schedstat(task)[0]).sum::<u64>()
    };
    let before_ns = spent_ns();
    until("it is busy", || spent_ns() >= before_ns + BUSY_NS);
}

fn profiled(pid: u32) -> String {
    format!("-j --no-inline -F 999 -p {pid}")
}

fn on_cpu(what: &str, pid: u32, elves: &mut Elves) {
    let (output, ()) = during("profile", profiled(pid), || await_work(pid));
    assert_complete(&format!("{what}, on CPU"), &output.report(), elves);
}

/// Findings of perf at the same time, by other samples.
fn assert_as_perf(what: &str, start: fn(&Path) -> Real) {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let real = start(dir.path());
    let mut elves = Elves::default();
    let mut recording = Recording::prepare(dir.path(), real.pid);
    let (output, ()) = during("profile", profiled(real.pid), || {
        recording.begin();
        await_work(real.pid);
        recording.order("disable");
    });
    let report = output.report();
    let recorded = recording.stacks();
    let (theirs, names) = perf_account(&recorded, &mut elves);
    assert_within("perf's samples", recorded.len(), 301.., what);
    assert_within("share of them that is cut", theirs.cut(), ..=PERF_CUT, what);
    assert_agree(what, &own_account(&report, &names, &mut elves), &theirs);
}

fn off_cpu(what: &str, pid: u32, elves: &mut Elves) {
    let args = format!("-j --no-inline -p {pid} 1");
    let report = Tool::run("offcputime", args).ok().report();
    assert!(sum(stacks(&report), "count") > 0);
    assert_complete(&format!("{what}, off CPU"), &report, elves);
}

fn both(what: &str, start: impl Fn(&Path) -> Real) {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let real = start(dir.path());
    let mut elves = Elves::default();
    off_cpu(what, real.pid, &mut elves);
    on_cpu(what, real.pid, &mut elves);
}

#[test]
fn redis_is_unwound_to_its_threads_roots() {
    both("redis-server", real_program::redis);
}

#[test]
fn python_is_unwound_to_its_threads_roots() {
    both("python3", real_program::python);
}

#[test]
fn nginx_is_unwound_to_its_root() {
    both("nginx", real_program::nginx);
}

#[test]
fn bash_is_unwound_to_its_root() {
    both("bash", real_program::bash);
}

#[test]
fn cmake_is_unwound_to_its_root() {
    both("cmake", real_program::cmake);
}

#[test]
fn postgresql_is_unwound_to_its_root() {
    let _machine = Machine::beside();
    let server = Server::start();
    let mut session = Session::new(&server);
    // Sorts and joins, and naps to be found off CPU; until the server is stopped.
    session.tell(
        "DO $$ BEGIN LOOP PERFORM pg_sleep(0.001); PERFORM count(*) FROM (SELECT md5(c.relname || a.attname) AS h \
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid ORDER BY h) AS sorted; END LOOP; END $$;",
    );
    let mut elves = Elves::default();
    off_cpu("postgres", session.backend, &mut elves);
    on_cpu("postgres", session.backend, &mut elves);
}

/// Two samplers that are not in step see the same of each program.
#[test]
#[ignore = "statistical: make truth"]
fn what_perf_finds_by_copying_stacks_is_found() {
    for (what, start) in [
        ("redis-server", real_program::redis as fn(&Path) -> Real),
        ("python3", real_program::python),
        ("nginx", real_program::nginx),
        ("bash", real_program::bash),
        ("cmake", real_program::cmake),
    ] {
        assert_as_perf(what, start);
    }
}
