//! offcputime's collection in windows: a wait that began before one keeps the stacks and the flags that were told then.

use std::collections::HashMap;
use std::path::Path;

use oracle::offcpu;

use crate::asked::{KERNEL_THREAD, Open, RUNNABLE, Row, of_thread, said};
use crate::host;
use crate::host::machine::{BEGIN_NS, Machine, State, Task, Thread, play};
use crate::wakeup_of;

/// `PHASE_RUNNING`
const RUNNING: u8 = 1;

/// Word of a thread that is off its CPU and was not followed there.
fn says(machine: &Machine, thread: &Thread) -> u8 {
    let left = machine
        .left
        .iter()
        .filter(|((tid, _), _)| *tid == thread.tid);
    match left.max_by_key(|((_, ns), _)| *ns) {
        Some((_, way)) => said(thread.tid, *way, thread.state == State::Queued),
        None => RUNNABLE | of_thread(thread.tid),
    }
}

/// Closes the first window, and tells by thread how often it had left a CPU when its stacks were told.
fn close(machine: &Machine) -> HashMap<u32, usize> {
    // SAFETY: the type of host/offcputime.c.
    unsafe {
        machine
            .host
            .function::<unsafe extern "C" fn(u64)>("host_end")(machine.now)
    };
    let mut told = HashMap::new();
    for thread in machine.alive() {
        if Open::told(machine, thread.task).phase != RUNNING {
            told.insert(thread.tid, machine.times_left(thread.tid));
        }
    }
    told
}

/// Every row of a thread, those that user space knows included.
fn rows(machine: &Machine) -> HashMap<(u32, u8, bool), Row> {
    let mut rows = HashMap::new();
    for tid in 1..=machine.last_tid {
        for flags in 0..=u8::MAX {
            for is_known in [false, true] {
                let row = Row::told(machine, tid, flags, is_known);
                if row.count > 0 {
                    rows.insert((tid, flags, is_known), row);
                }
            }
        }
    }
    rows
}

/// All that happened until now was in the first window of several.
fn assert_next_window(machine: &mut Machine, seed: u64) {
    machine.now += 1;
    let described = close(machine);
    let before = rows(machine);
    machine.is_detached = true;
    for _ in 0..200 {
        machine.step();
    }
    let mut under_way = HashMap::new();
    for thread in machine.alive() {
        let case = format!("seed {seed}, thread {}", thread.tid);
        let told = Open::of(machine, "host_open", thread.task);
        let is_off = thread.state != State::Running;
        let is_new = described.get(&thread.tid) != Some(&machine.times_left(thread.tid));
        assert_eq!(told.is_some(), is_off && is_new, "{case}");
        if !is_off {
            continue;
        }
        let flags = says(machine, thread);
        under_way.insert(thread.tid, flags);
        if let Some(told) = told {
            let syscall = if flags & KERNEL_THREAD == 0 { 0 } else { -1 };
            let truth = (thread.tid, flags, syscall, 2);
            let told = (told.tid, told.wait_flags, told.syscall, told.depth);
            assert_eq!(told, truth, "{case}");
        }
    }
    machine.is_detached = false;
    machine.now += 1;
    let begin_ns = machine.now;
    // SAFETY: the type of host/offcputime.c.
    unsafe {
        machine
            .host
            .function::<unsafe extern "C" fn(u64)>("host_begin_next")(begin_ns)
    };
    for _ in 0..2_000 {
        machine.step();
    }
    assert_rows(machine, begin_ns, &before, &under_way, seed);
}

fn assert_rows(
    machine: &Machine,
    begin_ns: u64,
    before: &HashMap<(u32, u8, bool), Row>,
    under_way: &HashMap<u32, u8>,
    seed: u64,
) {
    let end_ns = machine.now + 1;
    let logs = machine.logs(begin_ns..=machine.now);
    let mut truth = before.clone();
    for life in machine.lives().filter(|life| life.end_ns >= begin_ns) {
        let edges = life.begin_ns.max(begin_ns)..end_ns;
        for span in offcpu::absences(&logs, life.tid, &edges).expect("the same log") {
            let (from, to) = (span.pair.early.begin_ns, span.pair.early.end_ns);
            let is_exit = from == life.end_ns && from > edges.start;
            if span.is_hidden || to >= end_ns || is_exit {
                continue;
            }
            let is_first = from == edges.start && life.begin_ns < begin_ns;
            let woken = wakeup_of(&logs, life.tid, from..to).map(|(ns, _)| ns);
            let queued = match (span.was_runnable, woken) {
                (true, _) => from,
                (false, Some(woken)) => woken,
                (false, None) => {
                    if is_first {
                        from
                    } else {
                        to
                    }
                }
            };
            let flags = match machine.left.get(&(life.tid, from)) {
                _ if is_first => under_way[&life.tid],
                Some(way) => said(life.tid, *way, way.stays),
                None => RUNNABLE | of_thread(life.tid),
            };
            let row = truth.entry((life.tid, flags, is_first)).or_default();
            row.add(queued - from, to - queued);
        }
    }
    let told = rows(machine);
    for (key, row) in &truth {
        assert_eq!(told.get(key), Some(row), "seed {seed}, {key:?}");
    }
    assert_eq!(told.len(), truth.len(), "seed {seed}");
}

/// `TASK_DEAD`
const DEAD: u32 = 0x80;

/// All events were before the window: a thread has done in it what it does at its end.
#[test]
fn window_without_events_is_of_one_phase() {
    let dir = tempfile::tempdir().expect("a directory");
    let object = host::compile(dir.path(), "offcputime");
    for seed in 0..100 {
        let mut machine = Machine::new(&object, seed, 1_000_000_000_000);
        for _ in 0..2_000 {
            machine.step();
        }
        let length_ns = 1_000_000;
        machine.now = BEGIN_NS + 1_000_000_000_000 + length_ns;
        // SAFETY: the type of host/offcputime.c.
        unsafe {
            machine
                .host
                .function::<unsafe extern "C" fn(u64)>("host_end")(machine.now)
        };
        for thread in machine.alive() {
            let case = format!("seed {seed}, thread {}", thread.tid);
            let told = Open::told(&machine, thread.task);
            let (phase, flags, blocked_ns, queued_ns) = match thread.state {
                State::Running => (RUNNING, 0, 0, 0),
                State::Asleep => (2, says(&machine, thread), length_ns, 0),
                State::Queued => (3, says(&machine, thread), 0, length_ns),
            };
            let lengths = [
                told.phase_ns,
                told.lifetime_ns,
                told.blocked_ns,
                told.runqueue_ns,
            ];
            assert_eq!(
                lengths,
                [length_ns, length_ns, blocked_ns, queued_ns],
                "{case}"
            );
            assert_eq!((told.phase, told.wait_flags), (phase, flags), "{case}");
        }
        assert_dead_are_silent(&object, seed);
    }
}

/// Nothing is known of the end of a thread that has exited without an event.
fn assert_dead_are_silent(object: &Path, seed: u64) {
    let mut machine = Machine::new(object, seed, 1_000_000_000_000);
    machine.now = BEGIN_NS + 1_000_000_000_001;
    for thread in machine.alive() {
        // SAFETY: the types of host/offcputime.c and host/threads.h; the task is there.
        unsafe {
            machine
                .host
                .function::<unsafe extern "C" fn(u64)>("host_end")(machine.now);
            let sleeps = machine
                .host
                .function::<unsafe extern "C" fn(Task, u32)>("host_sleeps");
            sleeps(thread.task, DEAD);
        }
        assert!(Open::of(&machine, "host_close_whole", thread.task).is_none());
    }
}

#[test]
fn next_window_knows_the_waits_under_way() {
    play("offcputime", assert_next_window);
}
