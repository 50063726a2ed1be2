//! Chains through the dynamic linker, at a function's first instruction, of wakers, and of threads that gdb looked at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::c_program::{self, BURN, run};
use crate::chains::{Case, Chains, Stack, cases, compile, hold_to, report, stacks_of};
use crate::kernel::alone;
use crate::symbols::{self, profile_workload};
use crate::workload::{Workload, number};

/// The stub in the procedure linkage table has the name of the function, or none.
const LOADS: &str = "
    cpu: START > main > plt_storm > library_nothing
    cpu: START > main > plt_storm
    perhaps: START > main > plt_storm > *+0x*|*@plt
    START > main > calls_library > library_entry > library_call > library_leaf
    START > main > opens > .. > constructor > constructor_leaf
    young: _init*|constructor*@other.so
";
/// Bound at the first call, and at the start, before the tools are there.
const LAZY: &str = "asleep: START > main > binds > _dl_runtime_resolve*|ld*+0x* > .. > resolver";
const NOW: &str = "perhaps: START > main > binds > ..";

/// `libchains.so`, and a copy for dlopen.
fn libraries(dir: &Path, flags: &[&str]) -> PathBuf {
    let flags = [&["-O2", "-shared", "-fPIC"], flags].concat();
    compile("gcc", dir, "libchains.so", "library.c", &flags);
    compile("gcc", dir, "other.so", "library.c", &flags)
}

fn with_library(dir: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let place = dir.to_str().expect("plain");
    let (search, find) = (format!("-L{place}"), format!("-Wl,-rpath,{place}"));
    let flags = [flags, &["-O2", &search, "-lchains", &find]].concat();
    compile("gcc", dir, name, source, &flags)
}

#[test]
fn the_dynamic_linker_is_seen_through() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let other = libraries(dir.path(), &[]);
    let variants: [(&str, &[&str], &str); 4] = [
        ("lazy", &["-Wl,-z,lazy"], LAZY),
        ("now", &["-Wl,-z,now"], NOW),
        (
            "lazy-cet",
            &["-Wl,-z,lazy", "-fcf-protection=full", "-Wl,-z,ibtplt"],
            LAZY,
        ),
        ("lazy-lld", &["-Wl,-z,lazy", "-fuse-ld=lld"], LAZY),
    ];
    let case = |(what, flags, binds): (&str, &[&str], &str)| {
        let program = with_library(dir.path(), what, "loads.c", flags);
        let mut case = Case::new(what, &program, &format!("{LOADS}\n{binds}"));
        case.command.arg(&other);
        case
    };
    let cases = cases(&variants, case);
    hold_to(cases, &["--no-inline"]);
}

#[test]
fn a_function_has_its_caller_at_its_first_instruction() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile("gcc", dir.path(), "calls", "calls.c", &["-O2"]);
    let chains = [
        ("nested_3", "START > main > nested_1 > nested_2 > nested_3"),
        (
            "aligned_frame",
            "START > main > aligned_twice > aligned_frame",
        ),
        ("large_frame", "START > main > large_frame"),
        ("thread_leaf", "THREAD > thread_begin > thread_leaf"),
    ];
    for (function, chain) in chains {
        let event = format!("uprobe:{}:{function}", program.to_str().expect("plain"));
        let (mut workload, tgid) = Workload::spawn("calls", Command::new(&program));
        let args = ["-j", "-p", &tgid.to_string(), "-e", &event];
        let found = report("profile", &args, || {
            workload.go();
            workload.results();
        });
        workload.finish();
        Chains::new(chain).check(&stacks_of(&found, tgid), "cpu: ", function);
    }
}

#[test]
fn a_handler_has_its_own_name_before_it_has_begun() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let flags = ["-O2", "-falign-functions=1"];
    let program = compile("gcc", dir.path(), "stepped", "stepped.c", &flags);
    let (mut workload, tgid) = Workload::spawn("stepped", Command::new(&program));
    let found = report("offcputime", &["-j", "-p", &tgid.to_string()], || {
        workload.go();
        workload.results();
    });
    workload.finish();
    let chains = "
        START > main > child > raises > __restore_rt* > handler
        perhaps: START > main > child > ..
    ";
    Chains::new(chains).check(&stacks_of(&found, tgid), "asleep: ", "stepped");
}

#[test]
fn nothing_unknown_is_called_complete() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile("gcc", dir.path(), "unknown", "unknown.c", &["-O2"]);
    let (mut workload, tgid) = Workload::spawn("unknown", Command::new(&program));
    let args = ["-j", "-F", "997", "-p", &tgid.to_string()];
    let found = report("profile", &args, || {
        workload.go();
        workload.results();
    });
    workload.finish();
    let stacks = stacks_of(&found, tgid);
    let made: Vec<&Stack> = stacks
        .iter()
        .filter(|stack| stack.frames.len() == 1)
        .collect();
    assert!(
        made.iter().map(|stack| stack.count).sum::<u64>() > 50,
        "{stacks:#?}"
    );
    assert!(
        made.iter().all(|stack| stack.end == "no-table"),
        "{made:#?}"
    );
}

/// Their tables are not read, and code without frame pointers may have left the 0 of the outermost frame in the register.
#[test]
fn no_stack_of_a_32_bit_program_is_called_complete() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let flags = ["-O2", "-m32", "-fomit-frame-pointer"];
    let program = c_program::compile(dir.path(), "narrow", BURN, &flags);
    let (workload, tgid) = symbols::start(&program, &["300"]);
    let (found, _) = profile_workload(workload, tgid);
    let stacks = stacks_of(&found, tgid);
    assert!(
        !stacks.is_empty() && stacks.iter().all(|stack| stack.end != "root"),
        "{stacks:#?}"
    );
}

#[test]
fn wakers_have_whole_stacks_too() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for flags in [&["-O2"][..], &["-O2", "-static"]] {
        let program = compile("gcc", dir.path(), "waker", "waker.c", flags);
        let (mut workload, tgid) = Workload::spawn("waker", Command::new(&program));
        let found = report(
            "offcputime",
            &["-j", "--waker", "-p", &tgid.to_string()],
            || {
                workload.go();
                workload.results();
            },
        );
        workload.finish();
        let wakers: Vec<Stack> = found["stacks"]
            .as_array()
            .expect("stacks")
            .iter()
            .filter(|stack| stack["reason"] == "pipe" && stack["tid"] != tgid)
            .map(|stack| Stack::new(&stack["waker"], number(stack, "count")))
            .collect();
        let chains = Chains::new("START > main > wakes > writes");
        let (whole, all) = chains.check(&wakers, "asleep: ", "wakers");
        // On a busy machine the writer may be faster than the reader is asleep.
        assert!(whole == all && (12..=23).contains(&all), "{whole} of {all}");
    }
}

/// An address in a file that was linked at 0, as all here are: where its first mapping begins does not count.
fn in_file(maps: &str, address: u64) -> u64 {
    let mappings = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((
            number(start)?,
            number(end)?,
            rest.split_whitespace().nth(4)?,
        ))
    });
    let mappings: Vec<_> = mappings.collect();
    let holds = |(start, end, _): &&(u64, u64, &str)| (*start..*end).contains(&address);
    let (.., file) = mappings.iter().find(holds).expect("code is mapped");
    let (start, ..) = mappings
        .iter()
        .find(|(.., path)| path == file)
        .expect("it is");
    address - start
}

/// What gdb finds, leaf first: addresses in their files of frames that are not inlined.
fn gdb_addresses(dir: &Path, tgid: u32) -> Vec<u64> {
    let script = "
gdb.execute('set backtrace past-main on')
gdb.execute('set backtrace past-entry on')
f = gdb.newest_frame()
while f is not None:
    if f.type() != gdb.INLINE_FRAME:
        print('at %x' % f.pc())
    f = f.older()
";
    let file = dir.join("frames.py");
    fs::write(&file, script).expect("a file");
    let said = run(Command::new("gdb")
        .args(["-batch", "-nx", "-p", &tgid.to_string(), "-x"])
        .arg(file)
        .env("DEBUGINFOD_URLS", ""));
    let lines = said.lines().filter_map(|line| line.strip_prefix("at "));
    let maps = fs::read_to_string(format!("/proc/{tgid}/maps")).expect("a process");
    lines
        .map(|address| u64::from_str_radix(address, 16).expect("hexadecimal"))
        .map(|address| in_file(&maps, address))
        .collect()
}

fn wait_until_asleep(tgid: u32) {
    let give_up = Instant::now() + Duration::from_secs(10);
    let calls = format!("/proc/{tgid}/syscall");
    // In read(2) from stdin.
    while !fs::read_to_string(&calls).is_ok_and(|call| call.starts_with("0 0x0 ")) {
        assert!(Instant::now() < give_up, "{tgid} never waits");
        std::thread::yield_now();
    }
}

/// Addresses of the one stack that a thread slept in, leaf first, and its names.
fn slept_at(report: &Value, tgid: u32) -> (Vec<u64>, Stack) {
    let stacks = report["stacks"].as_array().expect("stacks").iter();
    let mut own = stacks.filter(|stack| stack["pid"] == tgid && stack["reason"] == "pipe");
    let (stack, more) = (own.next().expect("a wait"), own.next());
    assert!(more.is_none(), "{stack} {more:?}");
    let frames = stack["user"].as_array().expect("frames").iter().rev();
    let address = |frame: &Value| {
        let text = frame["address"].as_str().expect("an address");
        u64::from_str_radix(&text[2..], 16).expect("hexadecimal")
    };
    (frames.map(address).collect(), Stack::new(stack, 1))
}

/// Addresses are those of the calls; gdb's those behind them, but where a signal came.
fn assert_equal(found: &[u64], gdb: &[u64], what: &Stack) {
    let equal = |(ours, theirs): (&u64, &u64)| ours == theirs || ours + 1 == *theirs;
    assert!(
        found.len() == gdb.len() && found.iter().zip(gdb).all(equal),
        "{found:x?}\n{gdb:x?} by gdb\n{what:?}"
    );
    assert_eq!(what.end, "root", "{what:?}");
}

#[test]
fn gdb_finds_the_same_frames() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let other = libraries(dir.path(), &[]);
    let program = with_library(dir.path(), "parked", "parked.c", &["-Wl,-z,lazy"]);
    let modes = ["sort", "fault", "open", "bind", "exit"];
    let (mut workloads, mut parked) = (Vec::new(), Vec::new());
    for mode in modes {
        let mut command = Command::new(&program);
        command.arg(mode).arg(&other);
        let (workload, tgid) = Workload::spawn(mode, command);
        wait_until_asleep(tgid);
        workloads.push(workload);
        parked.push((mode, tgid, gdb_addresses(dir.path(), tgid)));
    }
    let tgids: Vec<String> = parked.iter().map(|(_, tgid, _)| tgid.to_string()).collect();
    let tgids = tgids.join(",");
    let args = ["-j", "--no-inline", "-p", &tgids];
    // Still asleep at the end: walked from outside. Then awake again: walked in the kernel.
    let outside = report("offcputime", &args, || ());
    let inside = report("offcputime", &args, || {
        for mut workload in workloads {
            workload.go();
            workload.finish();
        }
    });
    for (mode, tgid, gdb) in &parked {
        assert!(gdb.len() > 5, "{mode}: {gdb:x?}");
        for report in [&outside, &inside] {
            let (found, stack) = slept_at(report, *tgid);
            assert_equal(&found, gdb, &stack);
        }
    }
}
