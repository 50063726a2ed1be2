//! Pieces of work of made-up waits.

use super::*;

use hist::bucket;
use host::waits::Wait;

use crate::offcputime::on_cpu::Ran;

const MS: u64 = 1_000_000;

fn spot(user: u64) -> Spot {
    Spot {
        tgid: 1,
        wait: Wait::default().into(),
        user,
        kernel: 9,
        endpoint: 0,
    }
}

/// One thread's waits: at home, number 0, or in another place; from when to when, and how long in the run queue.
struct One {
    work: Work,
    number: u32,
    comm: Arc<str>,
}

impl One {
    fn new() -> Self {
        let mut work = Work::default();
        let home = Home {
            tgid: 1,
            kind: "epoll",
            place: None,
        };
        assert_eq!(work.home(home), Some(0));
        Self {
            work,
            number: 7,
            comm: "a".into(),
        }
    }

    fn wait(&mut self, user: u64, (off_ms, end_ms): (u64, u64), runqueue_ms: u64) {
        let told = Told {
            row: 0,
            number: self.number,
            off_ns: off_ms * MS,
            end_ns: end_ms * MS,
            runqueue_ns: runqueue_ms * MS,
        };
        self.number += 1;
        let at = Where {
            tid: 1,
            comm: &self.comm,
            spot: spot(user),
            home: (user == 0).then_some(0),
        };
        self.work.add(&told, &at);
    }
}

#[test]
fn a_piece_begins_where_its_thread_is_woken_and_has_all_of_its_waits() {
    let mut one = One::new();
    one.wait(0, (0, 10), 2);
    one.wait(5, (11, 21), 1);
    one.wait(6, (21, 22), 0);
    one.wait(5, (23, 33), 0);
    one.wait(0, (40, 100), 0);
    one.work.cut(0, 100 * MS);
    let found = one.work.finish(0);
    assert_eq!((found.cut(), found.broken, found.homeless), (0, 0, 0));
    let [(_, pieces)] = &found.homes[..] else {
        panic!("one home: {found:?}");
    };
    let [cycle] = &pieces.longest[..] else {
        panic!("one piece: {found:?}");
    };
    assert_eq!((cycle.begin_ns, cycle.ns), (8 * MS, 32 * MS));
    let time = |blocked, runqueue| Time {
        blocked_ns: blocked * MS,
        runqueue_ns: runqueue * MS,
    };
    let steps = [
        (spot(0), time(0, 2)),
        (spot(5), time(19, 1)),
        (spot(6), time(1, 0)),
    ];
    assert_eq!(cycle.steps, steps);
    let length = &pieces.lengths[&bucket(32 * MS)];
    assert_eq!((length.count, length.ns), (1, 32 * MS));
    assert_eq!(length.waits[&spot(5)], time(19, 1));
}

#[test]
fn pieces_without_a_begin_or_an_end_are_cut() {
    // Its first is not whole; the last one goes on.
    let mut one = One::new();
    one.wait(5, (0, 10), 0);
    one.wait(0, (11, 20), 0);
    one.wait(0, (21, 30), 0);
    one.work.cut(0, 100 * MS);
    // It waits at home from the beginning to the end.
    one.wait(0, (200, 300), 0);
    one.work.cut(200 * MS, 300 * MS);
    // It never came home.
    one.wait(5, (400, 500), 0);
    one.work.cut(400 * MS, 500 * MS);
    let found = one.work.finish(0);
    assert_eq!((found.cut(), found.broken), (2, 0));
    assert_eq!(found.homes[0].1.histogram.count(), 1);
}

#[test]
fn a_piece_with_a_wait_that_was_lost_is_none() {
    let mut one = One::new();
    one.wait(0, (0, 10), 0);
    one.number += 1;
    one.wait(5, (20, 30), 0);
    one.wait(0, (31, 40), 0);
    one.wait(0, (41, 100), 0);
    one.work.cut(0, 100 * MS);
    let found = one.work.finish(0);
    assert_eq!((found.cut(), found.broken), (0, 1));
    assert_eq!(found.homes[0].1.histogram.count(), 1);
}

#[test]
fn the_longest_are_kept() {
    let mut one = One::new();
    let mut at = 0;
    for ms in [3, 9, 1, 7, 5, 8, 2] {
        one.wait(0, (at, at + 10), 0);
        at += 10 + ms;
    }
    one.wait(0, (at, at + 10), 0);
    one.work.cut(0, (at + 10) * MS);
    let found = one.work.finish(0);
    let longest: Vec<u64> = found.homes[0]
        .1
        .longest
        .iter()
        .map(|it| it.ns / MS)
        .collect();
    assert_eq!(longest, [9, 8, 7, 5, 3]);
    assert_eq!(found.homes[0].1.histogram.max(), 9 * MS);
}

impl One {
    /// A begin or an end.
    fn mark(&mut self, number: u32, ms: u64, is_end: bool) {
        self.mark_as(number, ms, (is_end, false));
    }

    fn mark_as(&mut self, number: u32, ms: u64, (is_end, is_other): (bool, bool)) {
        let mark = Mark {
            tgid: 1,
            tid: 1,
            comm: *b"a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            time_ns: ms * MS,
            number,
            waits: self.number - 1,
            is_end,
            is_other,
        };
        self.work.mark(&mark, 0);
    }

    /// Begins and lengths of all pieces in ms, the longest first; those that were cut, and those of which something was lost.
    fn told(mut self) -> (Vec<(u64, u64)>, u64, u64) {
        self.work.cut(0, 1000 * MS);
        let found = self.work.finish(0);
        let longest = &found.homes[0].1.longest;
        let told = longest
            .iter()
            .map(|cycle| (cycle.begin_ns / MS, cycle.ns / MS));
        (told.collect(), found.cut(), found.broken)
    }
}

const BEGIN: bool = false;
const END: bool = true;

#[test]
fn a_piece_between_two_calls_has_the_waits_between_them() {
    let mut one = One::new();
    one.wait(5, (1, 2), 0);
    one.mark(1, 10, BEGIN);
    one.wait(5, (11, 21), 1);
    one.wait(5, (23, 24), 0);
    one.mark(2, 30, END);
    one.wait(5, (31, 41), 0);
    one.work.cut(0, 1000 * MS);
    let found = one.work.finish(0);
    assert_eq!((found.cut(), found.broken), (0, 0));
    let [cycle] = &found.homes[0].1.longest[..] else {
        panic!("one piece: {found:?}");
    };
    assert_eq!((cycle.begin_ns, cycle.ns), (10 * MS, 20 * MS));
    let time = Time {
        blocked_ns: 10 * MS,
        runqueue_ns: MS,
    };
    assert_eq!(cycle.steps, [(spot(5), time)]);
}

#[test]
fn a_piece_that_does_not_end_is_cut_where_the_next_begins_or_another_ends() {
    let mut one = One::new();
    one.mark(1, 10, BEGIN);
    one.mark(2, 20, BEGIN);
    one.mark(3, 25, END);
    one.mark(4, 26, END);
    one.mark(5, 30, BEGIN);
    one.mark_as(6, 40, (END, true));
    assert_eq!(one.told(), (vec![(20, 5)], 2, 0));
}

#[test]
fn pieces_that_an_edge_cuts_are_counted() {
    let mut one = One::new();
    one.mark(4, 10, END);
    one.mark(5, 20, BEGIN);
    one.mark(6, 30, END);
    one.mark(7, 40, BEGIN);
    assert_eq!(one.told(), (vec![(20, 10)], 2, 0));
    // A thread that ends in its work, and another one that has its ID then.
    let mut one = One::new();
    one.mark(1, 20, BEGIN);
    one.number = 1;
    one.wait(5, (25, 26), 1);
    one.mark(1, 30, BEGIN);
    one.mark(2, 35, END);
    assert_eq!(one.told(), (vec![(30, 5)], 1, 0));
}

#[test]
fn a_piece_is_given_up_where_a_mark_or_a_wait_of_it_was_lost() {
    let mut one = One::new();
    one.mark(1, 10, BEGIN);
    one.mark(3, 20, END);
    one.mark(4, 21, BEGIN);
    one.number += 1;
    one.mark(5, 22, END);
    assert_eq!(one.told(), (Vec::new(), 0, 2));
}

/// Its thread lost its CPU when it had looked at the clock, and before it had told the mark.
#[test]
fn a_wait_at_a_mark_is_in_the_piece_after_it() {
    for is_overtaken in [false, true] {
        let mut one = One::new();
        let late = u32::from(is_overtaken);
        one.mark(1, 10, BEGIN);
        one.wait(5, (21, 23), 2);
        one.number -= late;
        one.mark(2, 20, END);
        one.number += late;
        one.wait(6, (31, 34), 3);
        one.number -= late;
        one.mark(3, 30, BEGIN);
        one.number += late;
        one.mark(4, 35, END);
        one.work.cut(0, 1000 * MS);
        let found = one.work.finish(0);
        assert_eq!((found.cut(), found.broken), (0, 0));
        let steps = |cycle: &Cycle| cycle.steps.iter().map(|(_, time)| time.ns() / MS).sum();
        let told = found.homes[0].1.longest.iter();
        let told: Vec<(u64, u64)> = told.map(|cycle| (cycle.ns / MS, steps(cycle))).collect();
        assert_eq!(told, [(10, 0), (5, 3)], "{is_overtaken}");
    }
}

#[test]
fn a_piece_has_the_samples_that_were_taken_while_the_thread_was_at_it() {
    let mut one = One::new();
    for (ms, user) in [(5, 1), (25, 2), (26, 2), (35, 3), (45, 4), (95, 5)] {
        let ran = Ran {
            tgid: 1,
            user,
            kernel: 0,
        };
        let time_ns = ms * MS;
        one.work.sample(OnCpu {
            tid: 1,
            time_ns,
            ran,
        });
    }
    one.wait(0, (10, 20), 0);
    one.wait(0, (40, 50), 0);
    // It is at work since.
    one.work.forget_samples(90 * MS);
    one.wait(0, (99, 100), 0);
    let found = one.work.finish(0);
    let lengths = &found.homes[0].1.lengths;
    let samples = |ns: u64| {
        let samples = lengths[&bucket(ns)].samples.iter();
        samples
            .map(|(ran, count)| (ran.user, *count))
            .collect::<Vec<_>>()
    };
    assert_eq!(samples(20 * MS), [(2, 2), (3, 1)]);
    assert_eq!(samples(49 * MS), [(5, 1)]);
}
