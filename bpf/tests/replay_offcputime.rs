//! offcputime's programs on random orders of events, with hidden switches, against the model that live tests hold the tool to.

#[path = "host/offcputime_asked.rs"]
mod asked;
#[path = "host/entries.rs"]
mod entries;
#[expect(dead_code, reason = "it has more for other tools")]
mod host;
#[path = "host/offcputime_left.rs"]
mod left;
#[path = "host/no_state.rs"]
mod no_state;
#[path = "host/one_window.rs"]
mod one_window;
#[path = "host/offcputime_processes.rs"]
mod processes;
#[path = "host/offcputime_one_window.rs"]
mod same_in_one;
#[path = "host/offcputime_totals.rs"]
mod totals;
#[path = "host/window.rs"]
mod window;
#[path = "host/offcputime_windows.rs"]
mod windows;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use asked::{Open, RUNNABLE};
use host::machine::{Life, Machine, Thread, play};
use no_state::play_without_state;
use oracle::{Bracket, Kind, Logs, Span, offcpu, run_queue};
use totals::{Losses, Totals};
use window::play_window;

/// Of a thread: times off the CPU that are over, and that the tool can know. `sched_exit_tp` is not played.
struct Truth {
    off: Bracket,
    /// What of it was on a run queue.
    queued_ns: u64,
    /// Times whose end no switch showed, or whose wakeup was not seen.
    out_of_order: u64,
}

impl Truth {
    fn of(logs: &Logs, life: Life, end_ns: u64) -> Self {
        let (tid, edges) = (life.tid, life.begin_ns..end_ns);
        let absences = offcpu::absences(logs, tid, &edges).expect("the same log");
        let waits = run_queue::waits(logs, tid).expect("the same log");
        let (hidden, seen): (Vec<&Span>, Vec<&Span>) =
            absences.iter().partition(|span| span.is_hidden);
        let over = seen.iter().filter(|span| span.pair.early.end_ns < end_ns);
        let off: Bracket = over.map(|span| span.pair).collect();
        let queued: Bracket = waits
            .iter()
            .filter(|span| !span.is_hidden)
            .map(|span| span.pair)
            .collect();
        Self {
            queued_ns: queued.least_ns,
            out_of_order: hidden.len() as u64 + off.count - queued.count,
            off,
        }
    }
}

/// What the model says, and what the programs say.
fn assert_the_same(machine: &mut Machine, seed: u64) {
    machine.wake_all();
    let mut out_of_order = 0;
    let end_ns = machine.now + 1;
    for thread in machine.lives() {
        let truth = Truth::of(
            &machine.logs(thread.begin_ns..=thread.end_ns),
            thread,
            end_ns,
        );
        let told = Off::told(machine, thread.tid, false);
        assert!(
            truth.off.least_ns == truth.off.most_ns && truth.off.holds(told.count, told.ns),
            "seed {seed}, thread {}: {told:?}; {:?}",
            thread.tid,
            truth.off
        );
        let queued_ns = told.queued_ns;
        assert_eq!(
            queued_ns, truth.queued_ns,
            "seed {seed}, thread {}",
            thread.tid
        );
        out_of_order += truth.out_of_order;
    }
    let lost = Losses::told(&machine.host);
    let told = (lost.out_of_order, lost.unreported);
    assert_eq!(told, (out_of_order, 0), "seed {seed}");
    assert_exits_are_counted(machine, seed);
    assert_phases_add_up(machine, seed);
}

/// Every moment of a target is in one phase, and those on a CPU are from a switch to it until the one away from it.
fn assert_phases_add_up(machine: &Machine, seed: u64) {
    let told = Totals::told(&machine.host);
    let accounted = |thread: &Thread| machine.host.ask::<u64>("host_accounted", (thread.task,));
    let living_ns: u64 = machine.alive().map(accounted).sum();
    let exited = machine.exited.iter();
    let exited_ns: u64 = exited.map(|life| life.end_ns - life.begin_ns).sum();
    assert_eq!(told.oncpu_ns, model_oncpu_ns(machine), "seed {seed}");
    assert_eq!(told.all_ns(), exited_ns + living_ns, "seed {seed}");
    assert_eq!(Losses::told(&machine.host).negative, 0, "seed {seed}");
}

fn model_oncpu_ns(machine: &Machine) -> u64 {
    let targets: HashSet<u32> = machine.lives().map(|life| life.tid).collect();
    let (mut since, mut oncpu_ns) = (HashMap::new(), 0);
    for event in machine.logs(0..=machine.now).before {
        let Kind::Switch { prev, next, .. } = event.kind else {
            continue;
        };
        oncpu_ns += since.remove(&prev).map_or(0, |since| event.ns - since);
        if targets.contains(&next) {
            since.insert(next, event.ns);
        }
    }
    oncpu_ns
}

fn assert_exits_are_counted(machine: &Machine, seed: u64) {
    let lifetimes: Vec<u64> = machine
        .exited
        .iter()
        .map(|life| life.end_ns - life.begin_ns)
        .collect();
    assert_exits(machine, &lifetimes, seed);
}

/// Threads that have exited, and their time in the window.
fn assert_exits(machine: &Machine, lifetimes: &[u64], seed: u64) {
    let told = Totals::told(&machine.host);
    let truth = (lifetimes.len() as u64, lifetimes.iter().sum());
    let told = (told.threads_exited, told.lifetime_ns);
    assert_eq!(told, truth, "seed {seed}");
}

#[test]
fn times_off_the_cpu_are_the_models() {
    play("offcputime", assert_the_same);
}

#[test]
fn kernels_that_tell_no_state_are_read() {
    play_without_state("offcputime", assert_the_same);
}

/// Times of one thread off the CPU, as a tool can know them: how many, ns, ns of these on a run queue, and how many for nothing else.
#[derive(Debug, Default, PartialEq, Eq)]
struct Off {
    count: u64,
    ns: u64,
    queued_ns: u64,
    ready: u64,
}

impl Off {
    fn add(&mut self, span: &Range<u64>, queued_since_ns: u64) {
        self.count += 1;
        self.ns += span.end - span.start;
        self.queued_ns += span.end - queued_since_ns;
    }

    fn told(machine: &Machine, tid: u32, is_open: bool) -> Self {
        let [count, ns, queued_ns, ready] = machine.host.told("host_off", (tid, is_open));
        Self {
            count,
            ns,
            queued_ns,
            ready,
        }
    }
}

/// Times of one thread that a window knows.
#[derive(Debug, Default)]
struct Known {
    over: Off,
    /// At the window's end.
    open: Off,
    out_of_order: u64,
}

impl Known {
    /// Nothing from before the window is known: what the first event in it implies has been so since it opened.
    fn of(logs: &Logs, life: Life, window: &Range<u64>, now: u64) -> Self {
        let begin_ns = life.begin_ns.max(window.start);
        let edges = begin_ns..life.end_ns.min(now) + 2;
        let mut known = Self::default();
        let absences = offcpu::absences(logs, life.tid, &edges).expect("the same log");
        for (at, span) in absences.into_iter().enumerate() {
            let Span {
                pair,
                was_runnable,
                is_hidden,
            } = span;
            let (from, to) = (pair.early.begin_ns, pair.early.end_at_most_ns);
            if from >= window.end || from == life.end_ns && life.end_ns < now {
                continue;
            }
            let is_first = from == window.start && at == 0;
            let wakeup = wakeup_of(logs, life.tid, from..to);
            // The first event says that it runs.
            if is_first && is_hidden && !matches!(wakeup, Some((_, false))) {
                continue;
            }
            if is_hidden && to <= now {
                known.out_of_order += 1;
                continue;
            }
            let waked = wakeup.map(|(ns, _)| ns);
            let queued = if was_runnable {
                Some(from)
            } else {
                waked.or(is_first.then_some(from))
            };
            known.out_of_order += u64::from(queued.is_none() && to <= now);
            let end_ns = to.min(window.end);
            let sums = if to < window.end {
                &mut known.over
            } else {
                &mut known.open
            };
            sums.add(&(from..end_ns), queued.unwrap_or(end_ns).min(end_ns));
            // One that is new in the window has never waited for anything else.
            let is_new = from == life.begin_ns;
            let was_ready = was_runnable || is_first && waked.is_none();
            sums.ready += u64::from(is_new || was_ready);
        }
        known
    }
}

/// The first wakeup that is seen in that time, and whether the thread was running.
fn wakeup_of(logs: &Logs, tid: u32, time: Range<u64>) -> Option<(u64, bool)> {
    let first = logs.before.partition_point(|event| event.ns < time.start);
    let mut events = logs.before[first..]
        .iter()
        .take_while(|event| event.ns < time.end);
    events.find_map(|event| match event.kind {
        Kind::Wakeup {
            tid: woken, runs, ..
        } if woken == tid => Some((event.ns, runs)),
        _ => None,
    })
}

/// Told of a thread that lives when the window has ended.
fn closed(machine: &Machine, thread: &Thread) -> Option<Open> {
    Open::of(machine, "host_close", thread.task)
}

/// A thread that has exited is not taken for one that lives as long as it is there.
fn assert_silent(machine: &Machine, dead: &Thread) {
    let told = closed(machine, dead);
    assert!(told.is_none(), "thread {}: {told:?}", dead.tid);
}

fn assert_window(machine: &Machine, window: Range<u64>, seed: u64) {
    let logs = machine.logs_to_the_end(window.start);
    let living: HashMap<u32, &Thread> =
        machine.alive().map(|thread| (thread.tid, thread)).collect();
    let (mut out_of_order, mut phases_ns, mut lifetimes_ns) = (0, 0, 0);
    let mut exited = Vec::new();
    for life in machine.lives().filter(|life| life.end_ns >= window.start) {
        let closed = living
            .get(&life.tid)
            .and_then(|thread| closed(machine, thread));
        let over = Off::told(machine, life.tid, false);
        let mut open = Off::told(machine, life.tid, true);
        let case = format!("seed {seed}, thread {}, {window:?}", life.tid);
        if life.begin_ns >= window.end {
            assert!(closed.is_none(), "{case}: {closed:?}");
            assert_eq!((over, open), Default::default(), "{case}");
            continue;
        }
        let truth = Known::of(&logs, life, &window, machine.now);
        let life_ns = life.end_ns.min(window.end) - life.begin_ns.max(window.start);
        lifetimes_ns += life_ns;
        match closed {
            Some(closed) => {
                assert_eq!(closed.lifetime_ns, life_ns, "{case}");
                phases_ns += closed.phase_ns;
                let off_ns = closed.blocked_ns + closed.runqueue_ns;
                open.count += u64::from(off_ns > 0);
                open.ready += u64::from(off_ns > 0 && closed.wait_flags & RUNNABLE != 0);
                open.ns += off_ns;
                open.queued_ns += closed.runqueue_ns;
            }
            None => {
                assert!(!living.contains_key(&life.tid), "{case}: nothing");
                exited.push(life_ns);
            }
        }
        assert_eq!((over, open), (truth.over, truth.open), "{case}");
        out_of_order += truth.out_of_order;
    }
    let lost = Losses::told(&machine.host);
    let told = (lost.out_of_order, lost.negative, lost.unreported);
    assert_eq!(told, (out_of_order, 0, 0), "seed {seed}");
    let all_ns = Totals::told(&machine.host).all_ns();
    assert_eq!(all_ns + phases_ns, lifetimes_ns, "seed {seed}");
    assert_exits(machine, &exited, seed);
}

#[test]
fn window_amid_events_is_the_models() {
    let begin = |machine: &mut Machine| machine.see_dead = Some(assert_silent);
    play_window("offcputime", begin, |_| (), assert_window);
}
