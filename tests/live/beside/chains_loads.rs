//! Chains through the dynamic linker, at a function's first instruction, of wakers, and of threads that gdb looked at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::beside::chains::{Case, Chains, Stack, cases, compile, hold_to, stacks_of};
use crate::beside::symbols::profile_workload;
use crate::c_program::{BURN, run};
use crate::kernel::{is_in_call, until};
use crate::prelude::*;

/// The stub in the procedure linkage table has the name of the function, or none.
const LOADS: &str = "
    cpu: START > main > plt_storm > library_nothing
    cpu: START > main > plt_storm
    perhaps: START > main > plt_storm > *+0x*|*@plt
    START > main > calls_library > library_entry > library_call > library_leaf
    START > main > opens > .. > constructor > constructor_leaf
    young: _init*|constructor*@other.so
";
/// Bound at the first call, and at the start, before the tools are there. The resolver and what it resolves have one address.
const LAZY: &str =
    "asleep: START > main > binds > _dl_runtime_resolve*|ld*+0x* > .. > resolver|resolved";
const NOW: &str = "perhaps: START > main > binds > ..";

/// `libchains.so`, and a copy for dlopen.
fn libraries(dir: &Path) -> PathBuf {
    let flags = "-O2 -shared -fPIC";
    compile("gcc", dir, "libchains.so", "library.c", flags);
    compile("gcc", dir, "other.so", "library.c", flags)
}

fn with_library(dir: &Path, name: &str, source: &str, flags: &str) -> PathBuf {
    let place = dir.display();
    let flags = format!("{flags} -O2 -L{place} -lchains -Wl,-rpath,{place}");
    compile("gcc", dir, name, source, flags)
}

#[test]
fn the_dynamic_linker_is_seen_through() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let other = libraries(dir.path());
    let variants: [(&str, &str, &str); 4] = [
        ("lazy", "-Wl,-z,lazy", LAZY),
        ("now", "-Wl,-z,now", NOW),
        (
            "lazy-cet",
            "-Wl,-z,lazy -fcf-protection=full -Wl,-z,ibtplt",
            LAZY,
        ),
        ("lazy-lld", "-Wl,-z,lazy -fuse-ld=lld", LAZY),
    ];
    let case = |(what, flags, binds): (&str, &str, &str)| {
        let program = with_library(dir.path(), what, "loads.c", flags);
        let mut case = Case::new(what, &program, &format!("{LOADS}\n{binds}"));
        case.command.arg(&other);
        case
    };
    let cases = cases(&variants, case);
    hold_to(cases, "--no-inline");
}

#[test]
fn a_function_has_its_caller_at_its_first_instruction() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile("gcc", dir.path(), "calls", "calls.c", "-O2");
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
        let event = format!("-e uprobe:{}:{function}", program.display());
        let found = stacks_under("profile", &event, &program);
        Chains::new(chain).check(&found, "cpu: ", function);
    }
}

/// Findings of a tool about a program's work.
fn stacks_under(tool: &str, options: &str, program: &Path) -> Vec<Stack> {
    let workload = Workload::spawn("chains", Command::new(program));
    let tgid = workload.pid();
    let (report, _) = traced(tool, options, workload);
    stacks_of(&report, tgid)
}

#[test]
fn a_handler_has_its_own_name_before_it_has_begun() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let flags = "-O2 -falign-functions=1";
    let program = compile("gcc", dir.path(), "stepped", "stepped.c", flags);
    let found = stacks_under("offcputime", "", &program);
    let chains = "
        START > main > child > raises > SIGNAL > handler
        perhaps: START > main > child > ..
    ";
    Chains::new(chains).check(&found, "asleep: ", "stepped");
}

#[test]
fn nothing_unknown_is_called_complete() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile("gcc", dir.path(), "unknown", "unknown.c", "-O2");
    let stacks = stacks_under("profile", "-F 997", &program);
    let made = stacks.iter().filter(|stack| stack.frames.len() == 1);
    assert!(
        made.clone().all(|stack| stack.end == "no-table"),
        "{stacks:#?}"
    );
    let count: u64 = made.map(|stack| stack.count).sum();
    assert!(count > 50, "{stacks:#?}");
}

/// Their tables are not read, and code without frame pointers may have left the 0 of the outermost frame in the register.
#[test]
fn no_stack_of_a_32_bit_program_is_called_complete() {
    let _machine = Machine::beside();
    let workload = Program::c("narrow", BURN, "-O2 -m32 -fomit-frame-pointer").started("300");
    let tgid = workload.pid();
    let (found, _) = profile_workload(workload);
    let stacks = stacks_of(&found, tgid);
    assert!(!stacks.is_empty());
    assert!(
        stacks.iter().all(|stack| stack.end != "root"),
        "{stacks:#?}"
    );
}

#[test]
fn wakers_have_whole_stacks_too() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    for flags in ["-O2", "-O2 -static"] {
        let program = compile("gcc", dir.path(), "waker", "waker.c", flags);
        let workload = Workload::spawn("waker", Command::new(&program));
        let tgid = workload.pid();
        let (found, _) = traced("offcputime", "--waker", workload);
        let woken = |stack: &&Value| stack["reason"] == "pipe" && stack["tid"] != tgid;
        let wakers = list(&found, "stacks").iter().filter(woken);
        let wakers = wakers.map(|stack| Stack::new(&stack["waker"], number(stack, "count")));
        let wakers: Vec<Stack> = wakers.collect();
        let chains = Chains::new("START > main > wakes > writes");
        let (whole, _) = chains.check(&wakers, "asleep: ", "wakers");
        let all: u64 = wakers.iter().map(|stack| stack.count).sum();
        // Switches may be hidden from the tool.
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
    let task = PathBuf::from(format!("/proc/{tgid}"));
    // In read(2) from stdin.
    until("it waits", || is_in_call(&task, "0 0x0 "));
}

/// Addresses of the one stack that a thread slept in, leaf first, and its names.
fn slept_at(report: &Value, tgid: u32) -> (Vec<u64>, Stack) {
    let stacks = list(report, "stacks").iter();
    let mut own = stacks.filter(|stack| stack["pid"] == tgid && stack["reason"] == "pipe");
    let (stack, more) = (own.next().expect("a wait"), own.next());
    assert!(more.is_none(), "{stack} {more:?}");
    let frames = list(stack, "user").iter().rev();
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
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let other = libraries(dir.path());
    let program = with_library(dir.path(), "parked", "parked.c", "-Wl,-z,lazy");
    let modes = ["sort", "fault", "open", "bind", "exit"];
    let (mut workloads, mut parked) = (Vec::new(), Vec::new());
    for mode in modes {
        let mut command = Command::new(&program);
        command.arg(mode).arg(&other);
        let workload = Workload::spawn(mode, command);
        let tgid = workload.pid();
        wait_until_asleep(tgid);
        workloads.push(workload);
        parked.push((mode, tgid, gdb_addresses(dir.path(), tgid)));
    }
    let tgids: Vec<String> = parked.iter().map(|(_, tgid, _)| tgid.to_string()).collect();
    let args = format!("-j --no-inline -p {}", tgids.join(","));
    // Still asleep at the end: walked from outside. Then awake again: walked in the kernel.
    let outside = Tool::attached("offcputime", &args).report();
    let (inside, ()) = during("offcputime", &args, || {
        for mut workload in workloads {
            workload.go();
            workload.finish();
        }
    });
    let inside = inside.report();
    for (mode, tgid, gdb) in &parked {
        assert!(gdb.len() > 5, "{mode}: {gdb:x?}");
        for report in [&outside, &inside] {
            let (found, stack) = slept_at(report, *tgid);
            assert_equal(&found, gdb, &stack);
        }
    }
}
