//! A command and its children, as profile keeps the list of them: until a process is no more.

#[expect(dead_code, reason = "it has more for tests of machines")]
mod host;
#[expect(dead_code, reason = "it has more for runqlat's targets")]
#[path = "host/population.rs"]
mod population;
#[path = "host/tasks.rs"]
mod tasks;

use std::path::Path;

use population::{INIT, Population, Process, TOOL, Wanted};
use tasks::NAMESPACES;

/// Place of the tool's command, while it is there, behind the tool and four others.
const COMMAND: usize = 6;

/// Processes beside the tool, and its command, which has executed nothing yet.
fn family(object: &Path, seed: u64) -> Population {
    let mut all = Population::new(object, seed);
    all.is_followed = true;
    all.processes.truncate(COMMAND);
    let tool = TOOL as usize;
    if !all.is_inside {
        all.processes[tool].tasks[0].facts.inner_pid = 0;
    }
    all.fork(tool);
    let leader = all.processes[tool].leader();
    let own_tgid = leader.number(all.is_inside);
    all.host
        .tell("host_want", (own_tgid, NAMESPACES[0], leader.body));
    all.processes[COMMAND].wanted = Wanted::FromExec;
    let told = all.processes[COMMAND].leader().number(all.is_inside);
    all.host.tell("host_want_process", (told,));
    all
}

/// A thread exits, any of the process's. Inside a namespace the last one's number is gone by the time it is freed.
fn exit(all: &mut Population, process: usize) {
    let thread = all.rng.usize(..all.processes[process].tasks.len());
    all.thread_exits(process, thread);
    if all.is_inside && all.processes[process].tasks.is_empty() {
        all.processes[process].wanted = Wanted::No;
    }
}

/// A thread that has exited is freed; the leader is the last one.
fn free(all: &mut Population, at: usize) {
    let Process { tasks, exited, .. } = &mut all.processes[at];
    let is_last = tasks.is_empty() && exited.len() == 1;
    let may_go = exited
        .iter()
        .position(|task| is_last || task.facts.pid != task.facts.tgid);
    let Some(thread) = may_go else { return };
    let task = exited.remove(thread);
    all.host.run("sched_process_free", &[task.body as u64]);
    all.call("host_free_task", task.body);
    if is_last {
        all.processes.remove(at);
        let number = task.number(all.is_inside);
        assert!(!all.is_listed(number), "{number} is gone");
    }
}

fn assert_listed(all: &Population, case: &str) {
    for process in &all.processes {
        let number = process.leader().number(all.is_inside);
        let is_wanted = process.wanted != Wanted::No;
        assert_eq!(all.is_listed(number), is_wanted, "{case}, {number}");
        for task in process.tasks.iter().chain(&process.exited) {
            let is_target = all.host.ask::<bool>("host_is_target", (task.body,));
            let is_wanted = process.wanted == Wanted::Yes;
            assert_eq!(is_target, is_wanted, "{case}, {:?}", task.facts);
        }
    }
}

fn act(all: &mut Population) {
    let at = all.rng.usize(2..all.processes.len());
    let running = all.processes[at].tasks.len();
    let is_small = all.processes.len() < 9;
    match all.rng.u32(..8) {
        0 | 1 if running > 0 && is_small => all.fork(at),
        2 if (1..3).contains(&running) => all.start_thread(at),
        3 if running > 0 => all.executes(at),
        // The command is the first of its family, and goes late.
        4 if running > 0 && (at != COMMAND || all.rng.u32(..8) == 0) => exit(all, at),
        _ => free(all, at),
    }
    if all.processes.len() < 5 {
        all.fork(INIT as usize);
    }
}

#[test]
fn command_and_its_children_are_listed_as_long_as_they_are_there() {
    let object = host::compile("profile_follow");
    for seed in 0..200 {
        let mut family = family(&object, seed);
        for step in 0..300 {
            assert_listed(&family, &format!("seed {seed}, step {step}"));
            act(&mut family);
        }
    }
}
