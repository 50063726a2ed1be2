//! runqlat's programs on random orders of events, with hidden switches, against the model that live tests hold the tool to.

#[path = "host/runqlat_asked.rs"]
mod asked;
#[path = "host/entries.rs"]
mod entries;
#[path = "host/runqlat_full.rs"]
mod full;
#[expect(dead_code, reason = "it has more for other tools")]
mod host;
#[path = "host/runqlat_inside.rs"]
mod inside;
#[path = "host/no_state.rs"]
mod no_state;
#[path = "host/one_window.rs"]
mod one_window;
#[path = "host/population.rs"]
mod population;
#[path = "host/runqlat_quotas.rs"]
mod quotas;
#[path = "host/runqlat_one_window.rs"]
mod same_in_one;
#[path = "host/runqlat_shapes.rs"]
mod shapes;
#[path = "host/targets.rs"]
mod targets;
#[path = "host/tasks.rs"]
mod tasks;
#[path = "host/window.rs"]
mod window;
#[path = "host/runqlat_windows.rs"]
mod windows;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use asked::{culprit_of, group, losses, process_of};
use fastrand::Rng;
use host::buckets::bucket;
use host::machine::{Life, Machine, State, THREADS, Thread, play};
use no_state::play_without_state;
use oracle::{Bracket, Kind, Logs, Span, behind, run_queue};
use window::play_window;

/// What the model says, and what the programs say.
fn assert_the_same(machine: &mut Machine, seed: u64) {
    machine.wake_all();
    let logs = machine.logs(0..=machine.now);
    let tids: Vec<u32> = machine.lives().map(|life| life.tid).collect();
    let spans = machine.lives().flat_map(|life| {
        run_queue::waits(&machine.logs(life.begin_ns..=life.end_ns), life.tid)
            .expect("the same log")
    });
    let (hidden, seen): (Vec<_>, Vec<_>) = spans.partition(|span| span.is_hidden);
    let truth: Bracket = seen.iter().map(|span| span.pair).collect();
    let [count, sum_ns] = machine.host.sums("wholes", &0_u32);
    let unseen = losses(machine).unseen;
    assert!(
        truth.least_ns == truth.most_ns && truth.holds(count, sum_ns),
        "seed {seed}: {count} waits, {sum_ns} ns; {truth:?}"
    );
    assert_eq!(unseen, hidden.len() as u64, "seed {seed}");
    let culprits = behind::culprits(&logs, &tids).expect("the same log");
    // 0 stands for turns that are too long ago.
    for tid in 0..=machine.last_tid {
        let truth = culprits.get(&tid).copied().unwrap_or_default();
        let told = culprit_of(machine, tid);
        assert!(
            truth.holds(told.waits, told.caused_ns),
            "seed {seed}, thread {tid}: {told:?}; {truth:?}"
        );
        let is_named = tid > 0 && truth.count > 0;
        assert_eq!(told.tgid, if is_named { process_of(tid) } else { 0 });
    }
}

/// A thread that has exited waits for nothing, as long as it is there.
fn assert_waits_not(machine: &Machine, thread: &Thread) {
    assert_eq!(waiting_ns(machine, thread), 0, "thread {}", thread.tid);
}

#[test]
fn waits_and_whom_they_were_behind_are_the_models() {
    play("runqlat", assert_the_same);
}

#[test]
fn kernels_that_tell_no_state_are_read() {
    play_without_state("runqlat", assert_the_same);
}

/// Waits of a thread that the tool can know, whether it lives or not.
fn waits_in(logs: &Logs, life: Life) -> Vec<Span> {
    run_queue::waits(logs, life.tid).expect("the same log")
}

fn length_ns(span: &Span) -> u64 {
    span.pair.early.end_ns - span.pair.early.begin_ns
}

/// What a thread's waits in the window come to: those that began and ended in it.
fn assert_counted(machine: &Machine, tid: u32, lengths: &[u64], seed: u64) {
    let (mut count, mut sum_ns, mut max_ns) = (0, 0, 0);
    let counted = (tid, &mut count, &mut sum_ns, &mut max_ns);
    machine.host.tell("host_thread_counted", counted);
    let truth = (
        lengths.len() as u64,
        lengths.iter().sum(),
        lengths.iter().copied().max().unwrap_or(0),
    );
    assert_eq!((count, sum_ns, max_ns), truth, "seed {seed}, thread {tid}");
    let mut buckets: BTreeMap<u32, u64> = BTreeMap::new();
    for length in lengths {
        *buckets.entry(bucket(*length)).or_default() += 1;
    }
    for (bucket, count) in buckets {
        let counted = machine.host.entry("buckets", &group(tid.into(), 0, bucket));
        assert_eq!(
            counted,
            Some(count),
            "seed {seed}, thread {tid}, bucket {bucket}"
        );
    }
}

/// For how long it had waited when the window closed, as the tool says later.
pub(crate) fn waiting_ns(machine: &Machine, thread: &Thread) -> u64 {
    machine.leave_to_user_space();
    machine.host.ask::<u64>("host_waiting", (thread.task,))
}

/// The window has ended.
pub(crate) fn ask_sleepers(machine: &Machine) {
    machine.leave_to_user_space();
    for thread in machine.alive() {
        machine.host.tell("host_ask_sleeper", (thread.task,));
    }
}

/// Targets that were there before the window and of which nothing was seen in it before they were switched in.
fn under_way(logs: &Logs, tids: &HashSet<u32>, before_ns: u64) -> u64 {
    let mut unseen = tids.clone();
    let mut under_way = 0;
    for event in logs.before.iter().filter(|event| event.ns < before_ns) {
        match event.kind {
            Kind::Wakeup {
                tid, runs: false, ..
            } => {
                unseen.remove(&tid);
            }
            Kind::Switch {
                prev,
                next,
                runnable,
                ..
            } => {
                if runnable {
                    unseen.remove(&prev);
                }
                under_way += u64::from(unseen.remove(&next));
            }
            _ => {}
        }
    }
    under_way
}

/// Targets that were there before the window, are ready, and of which nothing has been seen since it opened: they never ran. Gives
/// their number.
fn assert_never_ran(machine: &Machine, opens_ns: u64, seed: u64) -> usize {
    let logs = machine.logs(opens_ns..=machine.now);
    let moved = logs.before.iter().flat_map(|event| match event.kind {
        Kind::Wakeup {
            tid, runs: false, ..
        } => vec![tid],
        Kind::Switch { prev, next, .. } => vec![prev, next],
        _ => Vec::new(),
    });
    let moved: HashSet<u32> = moved.collect();
    machine.leave_to_user_space();
    let old = machine.lives().filter(|life| life.tid <= THREADS);
    let targets: HashSet<u32> = old.map(|life| life.tid).collect();
    let old = machine.alive();
    let old = old.filter(|thread| targets.contains(&thread.tid));
    let never_ran = old.filter(|thread| {
        let is_ready = thread.state == State::Queued && !moved.contains(&thread.tid);
        let told = machine.host.ask::<u32>("host_never_ran", (thread.task,)) != 0;
        assert_eq!(told, is_ready, "seed {seed}, thread {}", thread.tid);
        told
    });
    never_ran.count()
}

fn assert_window(machine: &Machine, window: Range<u64>, seed: u64) {
    let logs = machine.logs_to_the_end(window.start);
    let (mut wakeups, mut unseen) = (0, 0);
    for life in machine.lives() {
        let waits = waits_in(&logs, life);
        let began: Vec<&Span> = waits
            .iter()
            .filter(|span| span.begins_in(&window))
            .collect();
        wakeups += began.iter().filter(|span| !span.was_runnable).count() as u64;
        let (hidden, seen): (Vec<&Span>, Vec<&Span>) =
            began.into_iter().partition(|span| span.is_hidden);
        let is_over = |span: &&Span| span.pair.early.end_at_most_ns < window.end;
        unseen += hidden.len() as u64;
        let (over, open): (Vec<&Span>, Vec<&Span>) = seen.into_iter().partition(is_over);
        let lengths: Vec<u64> = over.into_iter().map(length_ns).collect();
        assert_counted(machine, life.tid, &lengths, seed);
        let open_ns = open
            .first()
            .map_or(0, |span| window.end - span.pair.early.begin_ns);
        let thread = machine.alive().find(|thread| thread.tid == life.tid);
        if let Some(thread) = thread {
            assert_eq!(
                waiting_ns(machine, thread),
                open_ns,
                "seed {seed}, thread {}",
                life.tid
            );
        }
    }
    let switches = logs.before.iter().filter(|event| event.ns < window.end);
    let switches = switches
        .filter(|event| matches!(event.kind, Kind::Switch { .. }))
        .count() as u64;
    let old = machine.lives().filter(|life| life.tid <= THREADS);
    let under_way = under_way(&logs, &old.map(|life| life.tid).collect(), window.end);
    let told = machine.host.sums::<_, 3>("totals", &0_u32);
    assert_eq!(told, [wakeups, switches, under_way], "seed {seed}");
    ask_sleepers(machine);
    assert_eq!(losses(machine).unseen, unseen, "seed {seed}");
    assert_never_ran(machine, window.start, seed);
}

/// A window so short that not everybody has a turn, told late.
#[test]
fn threads_that_never_ran_are_those_of_which_nothing_was_seen() {
    let object = host::compile("runqlat");
    let mut count = 0;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut machine = Machine::new(&object, seed, 0);
        // All are queued when it opens, or some sleep.
        machine.steps(rng.u32(0..100));
        if rng.bool() {
            machine.wake_all();
        }
        machine.now += 1;
        let opens_ns = machine.now;
        for thread in machine.alive() {
            machine.host.tell("host_found", (thread.task,));
        }
        machine.host.tell("host_opens", (opens_ns,));
        machine.steps(rng.u32(0..40));
        machine.now += 1;
        machine.host.tell("host_end", (machine.now,));
        machine.steps(rng.u32(0..40));
        count += assert_never_ran(&machine, opens_ns, seed);
    }
    assert!(count >= 40, "{count} in 200 windows");
}

#[test]
fn window_amid_events_is_the_models() {
    let by_thread = |machine: &mut Machine| {
        machine.see_dead = Some(assert_waits_not);
        machine.host.tell("host_by_thread", ())
    };
    let wake_all = |machine: &mut Machine| {
        // Those that exit after the window may have waited when it closed.
        machine.see_dead = None;
        machine.wake_all();
    };
    play_window("runqlat", by_thread, wake_all, assert_window);
}
