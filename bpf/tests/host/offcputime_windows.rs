//! offcputime's collection in windows: a wait that began before one keeps the stacks and the flags that were told then.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::ptr;

use fastrand::Rng;
use oracle::{Event, Kind, offcpu};

use crate::asked::{KERNEL_THREAD, Open, RUNNABLE, Row, THROTTLED, of_thread, said};
use crate::host;
use crate::host::machine::{BEGIN_NS, Machine, State, Thread, play};
use crate::totals::Losses;
use crate::{Off, wakeup_of};

/// By thread, flags, and whether user space knows the stacks.
type Rows = HashMap<(u32, u8, bool), Row>;

/// `PHASE_RUNNING`
const RUNNING: u8 = 1;

/// Word of a thread that is off its CPU and was not followed there.
fn says(machine: &Machine, thread: &Thread) -> u8 {
    match machine.departures.0.get(&thread.tid) {
        Some((_, last)) => said(thread.tid, *last, thread.state == State::Queued),
        None => RUNNABLE | of_thread(thread.tid),
    }
}

/// Closes the window, and tells by thread how often it had left a CPU when its stacks were told.
fn close(machine: &Machine) -> HashMap<u32, usize> {
    machine.host.tell("host_end", (machine.now,));
    let mut told = HashMap::new();
    for thread in machine.alive() {
        if Open::told(machine, thread.task).phase != RUNNING {
            told.insert(thread.tid, machine.times_left(thread.tid));
        }
    }
    told
}

/// Every row of a thread, those that user space knows included.
fn rows(machine: &Machine) -> Rows {
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

/// Number for each seed.
const WINDOWS: u32 = 100;

/// A thread that has exited waits for nothing, as long as it is there.
fn assert_waits_not(machine: &Machine, thread: &Thread) {
    assert!(Open::of(machine, "host_open", thread.task).is_none());
}

/// All that happened until now was in the first window of several.
fn assert_windows(machine: &mut Machine, seed: u64) {
    machine.see_dead = Some(assert_waits_not);
    let mut rng = Rng::with_seed(seed);
    machine.now += 1;
    let mut described = close(machine);
    let mut truth = rows(machine);
    for window in 0..WINDOWS {
        let under_way = pass_on(
            machine,
            &described,
            &format!("seed {seed}, window {window}"),
        );
        machine.now += 1;
        let begin_ns = machine.now;
        machine.host.tell("host_begin_next", (begin_ns,));
        machine.steps(rng.u32(0..100));
        add_window(machine, begin_ns, &under_way, &mut truth);
        machine.now += 1;
        described = close(machine);
    }
    assert_eq!(rows(machine), truth, "seed {seed}");
}

/// No program is attached for a time; then the next window asks whose waits are new since the last one closed. Gives the words of
/// those that wait.
fn pass_on(machine: &mut Machine, described: &HashMap<u32, usize>, case: &str) -> HashMap<u32, u8> {
    machine.is_detached = true;
    machine.steps(50);
    machine.is_detached = false;
    let mut under_way = HashMap::new();
    for thread in machine.alive() {
        let case = format!("{case}, thread {}", thread.tid);
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
    under_way
}

/// Adds to the rows what a window that began then, with these waits under way, and ends now counts.
fn add_window(machine: &Machine, begin_ns: u64, under_way: &HashMap<u32, u8>, truth: &mut Rows) {
    let end_ns = machine.now + 1;
    let logs = machine.logs(begin_ns..=machine.now);
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
                // Its wait before was over when the window began.
                _ if is_first && queued == from => {
                    RUNNABLE | under_way[&life.tid] & (KERNEL_THREAD | THROTTLED)
                }
                _ if is_first => under_way[&life.tid] & !RUNNABLE,
                Some(way) => said(life.tid, *way, way.stays),
                None => RUNNABLE | of_thread(life.tid),
            };
            let row = truth.entry((life.tid, flags, is_first)).or_default();
            row.add(queued - from, to - queued);
        }
    }
}

/// `TASK_DEAD`
const DEAD: u32 = 0x80;

/// All events were before the window: a thread has done in it what it does at its end.
#[test]
fn window_without_events_is_of_one_phase() {
    let object = host::compile("offcputime");
    for seed in 0..100 {
        let mut machine = Machine::new(&object, seed, 1_000_000_000_000);
        machine.steps(2_000);
        let length_ns = 1_000_000;
        machine.now = BEGIN_NS + 1_000_000_000_000 + length_ns;
        machine.host.tell("host_end", (machine.now,));
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
        machine.host.tell("host_end", (machine.now,));

        machine.host.tell("host_sleeps", (thread.task, DEAD));
        assert!(Open::of(&machine, "host_close", thread.task).is_none());
    }
}

/// 10,000 windows for all seeds together.
#[test]
fn each_window_knows_the_waits_under_way() {
    play("offcputime", assert_windows);
}

/// A thread's switches that were seen: whether it came to a CPU.
fn switches_of(log: &[Event], tid: u32) -> Vec<bool> {
    let switches = log.iter().filter_map(|event| match event.kind {
        Kind::Switch { next, .. } if next == tid => Some(true),
        Kind::Switch { prev, .. } if prev == tid => Some(false),
        _ => None,
    });
    switches.collect()
}

/// Late events that close no wait tell who has run since the end: other stacks, and another call, are not taken for those of the wait
/// that was open, and what was told of it before holds.
#[test]
fn threads_that_run_on_after_the_end_are_known() {
    let object = host::compile("offcputime");
    let mut ran_on = [0; 2];
    for seed in 0..100 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.steps(500);
        machine.now += 1;
        machine.host.tell("host_end_within_budget", (machine.now,));
        let end_ns = machine.now;
        let at_end: HashMap<u32, State> = machine
            .alive()
            .map(|thread| (thread.tid, thread.state))
            .collect();
        let odd = machine.alive().filter(|thread| thread.tid % 2 == 1);
        let told: HashMap<u32, bool> = odd
            .map(|thread| {
                (
                    thread.tid,
                    Open::of(&machine, "host_stacks", thread.task).is_some(),
                )
            })
            .collect();
        machine.steps(100);
        let late = machine.logs(end_ns..=machine.now).before;
        for thread in machine.alive() {
            let case = format!("seed {seed}, thread {}", thread.tid);
            let stacks = Open::of(&machine, "host_stacks", thread.task);
            let Some(open) = Open::of(&machine, "host_close", thread.task) else {
                assert!(stacks.is_none(), "{case}");
                continue;
            };
            let was_off = at_end
                .get(&thread.tid)
                .is_some_and(|state| *state != State::Running);
            if open.phase == RUNNING {
                assert!(stacks.is_none(), "{case}");
                continue;
            }
            if !was_off {
                continue;
            }
            let switched_in = switches_of(&late, thread.tid);
            let has_run = switched_in.contains(&true);
            let runs = thread.state == State::Running;
            assert_eq!(open.ran_on != 0, has_run || runs, "{case}");
            if has_run {
                // Else it had run before that was seen.
                let was_told = switched_in[0] && told.get(&thread.tid).copied().unwrap_or(false);
                assert!(stacks.is_none(), "{case}");
                assert_eq!((open.is_known != 0, open.depth), (was_told, 0), "{case}");
                ran_on[usize::from(was_told)] += 1;
            }
        }
    }
    assert!(ran_on.iter().all(|count| *count > 20), "{ran_on:?}");
}

/// The kernel calls an iterator once more when there is no task left.
#[test]
fn iterators_end_without_a_task() {
    let machine = Machine::new(&host::compile("offcputime"), 1, 0);
    machine.host.tell("host_seed", (ptr::null_mut::<c_void>(),));
    machine.host.tell("host_end", (machine.now + 1,));
    for name in ["host_open", "host_stacks", "host_close"] {
        assert!(
            Open::of(&machine, name, ptr::null_mut()).is_none(),
            "{name}"
        );
    }
}

/// A phase is as long as it is inside the window.
fn assert_closed_at(machine: &Machine, end_ns: u64, case: &str) {
    let lives = machine.lives().map(|life| (life.tid, life.begin_ns));
    let begun: HashMap<u32, u64> = lives.filter(|(_, begin_ns)| *begin_ns < end_ns).collect();
    for thread in machine.alive() {
        let Some(begin_ns) = begun.get(&thread.tid) else {
            continue;
        };
        let told = Open::told(machine, thread.task);
        assert_eq!(told.lifetime_ns, end_ns - begin_ns, "{case}");
        assert!(told.phase_ns <= told.lifetime_ns, "{case}, {told:?}");
        assert!(told.runqueue_ns <= told.lifetime_ns, "{case}, {told:?}");
        let left = machine.left.keys().filter(|(tid, _)| *tid == thread.tid);
        let from_ns = left.map(|(_, ns)| *ns).max();
        if let Some(from_ns) = from_ns.filter(|_| thread.state != State::Running) {
            let off_ns = told.blocked_ns + told.runqueue_ns;
            assert_eq!(off_ns, end_ns.saturating_sub(from_ns), "{case}, {told:?}");
        }
    }
}

/// Events of the moment between a window's end and the word of it have counted; what is open then ends with the window all the same.
fn assert_word_is_late(machine: &mut Machine, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    machine.now += 1;
    let end_ns = machine.now;
    machine.steps(rng.u32(1..60));
    let word = machine.events.len();
    machine.host.tell("host_end", (end_ns,));
    assert_closed_at(machine, end_ns, &format!("seed {seed}"));
    machine.steps(60);
    for life in machine.lives().filter(|life| life.begin_ns < end_ns) {
        let mut off_since = Some(life.begin_ns);
        let mut is_first = true;
        let mut truth = (0, 0);
        for (at, event) in machine.events.iter().enumerate() {
            let Kind::Switch { prev, next, .. } = event.kind else {
                continue;
            };
            if prev != life.tid && next != life.tid {
                continue;
            }
            if at < word {
                off_since = (prev == life.tid).then_some(event.ns);
            } else if std::mem::take(&mut is_first) && next == life.tid {
                let since_ns = off_since.map(|ns| (1, end_ns.saturating_sub(ns)));
                truth = since_ns.unwrap_or_default();
            }
        }
        let told = Off::told(machine, life.tid, true);
        assert_eq!(
            (told.count, told.ns),
            truth,
            "seed {seed}, thread {}",
            life.tid
        );
    }
    let negative = Losses::told(&machine.host).negative;
    assert_eq!(negative, 0, "seed {seed}");
}

#[test]
fn open_waits_end_with_the_window_though_it_is_told_late() {
    let object = host::compile("offcputime");
    for seed in 0..100 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.steps(300);
        assert_word_is_late(&mut machine, seed);
    }
}

#[test]
fn waits_that_end_in_a_later_window_are_not_open() {
    let object = host::compile("offcputime");
    for seed in 0..100 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.steps(300);
        assert_word_is_late(&mut machine, seed);
        let open = |machine: &Machine| -> HashMap<u32, u64> {
            let rows = |tid| (tid, Off::told(machine, tid, true).count);
            machine.lives().map(|life| rows(life.tid)).collect()
        };
        let before = open(&machine);
        assert!(before.values().sum::<u64>() > 0, "seed {seed}");
        machine.host.tell("host_begin_next", (machine.now,));
        machine.steps(300);
        let after = open(&machine);
        for (tid, rows) in before {
            assert_eq!(after[&tid], rows, "seed {seed}, thread {tid}");
        }
    }
}
