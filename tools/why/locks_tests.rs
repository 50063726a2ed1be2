//! Locks of made-up waits.

use super::*;
use crate::lockstat::{For, Waited, example_row};
use crate::made_up::{self, frame, off_cpu, task};

fn stack() -> Arc<[Frame]> {
    [frame("lookup")].into()
}

/// A thread's three waits.
fn wait(tid: u32, ns: u64) -> Sample {
    Sample {
        user: stack(),
        count: 3,
        ..made_up::wait(task("app", 1, tid), "futex", &[ns, 0])
    }
}

fn lock(waits: &[(u32, u64)]) -> Contended {
    let mut row = example_row(100);
    (row.identity.side, row.identity.class) = (Side::User, 0);
    let waits = waits.iter().map(|(tid, ns)| Waited {
        task: task("app", 1, *tid),
        kernel: [].into(),
        user: stack(),
        count: 2,
        ns: *ns,
    });
    Contended {
        row,
        waits: waits.collect(),
    }
}

const AT: &str = "lookup";

fn seen(locks: &[Contended], scale: f64) -> Seen<'_> {
    Seen {
        locks,
        work: &[],
        scale,
    }
}

#[test]
fn locks_have_their_time_and_never_more_than_there_was() {
    let waits = [(1, 1_000), (2, 1_000), (3, 70), (4, 1_000)];
    let off = off_cpu(waits.map(|(tid, ns)| wait(tid, ns)).into(), 1);
    // Lockstat has more of thread 2 than there was; the third lock is small.
    let locks = [
        lock(&[(1, 900), (2, 1_000), (4, 990)]),
        lock(&[(2, 500), (9, 80)]),
        lock(&[(1, 10)]),
    ];
    let split = Split::of(&off, seen(&locks, 1.0));
    let place: Place = ("futex", Some(AT.into()));
    let parts = |sample: &Sample, ns| split.parts(sample, &place, ns);
    assert_eq!(parts(&off.samples[0], 1_000), [(0, 900)]);
    assert_eq!(parts(&off.samples[1], 1_000), [(0, 667), (1, 333)]);
    assert_eq!(parts(&off.samples[3], 1_000), [(0, 1_000)]);
    assert_eq!(
        parts(&off.samples[2], 70),
        [],
        "it is for none that is known"
    );
    let other: Place = ("futex", Some("elsewhere".into()));
    assert_eq!(split.parts(&off.samples[0], &other, 1_000), []);
    let seen = |number| split.lock(number, "futex").expect("a lock").lockstat_ns;
    assert_eq!([seen(0), seen(1)], [2_890, 500]);
}

#[test]
fn waits_for_a_lock_that_is_known_are_no_idleness() {
    let idle = |tid| Sample {
        idle: true,
        ..wait(tid, 1_000)
    };
    let left = |class, confidence, scale| {
        let mut off = off_cpu([1, 2, 3].map(idle).into(), 1);
        let mut lock = lock(&[(1, 900), (2, 400)]);
        (lock.row.class, lock.row.confidence) = (class, confidence);
        lock.row.what = For::Others;
        take_from_idleness(&mut off, seen(&[lock], scale));
        let idle = off.samples.iter().filter(|sample| sample.idle);
        idle.map(|sample| sample.task.tid).collect::<Vec<_>>()
    };
    assert_eq!(left("python-lock", 95, 1.0), [2, 3]);
    assert_eq!(left("mutex", 95, 2.0), [3]);
    // A pool's threads wait at a condition variable, and a guess is none.
    assert_eq!(left("cond", 100, 1.0), [1, 2, 3]);
    assert_eq!(left("mutex", 50, 1.0), [1, 2, 3]);
    // Those that it waits for its lock are told from those at the condition variable in the same function.
    let mut off = off_cpu(vec![idle(1), wait(1, 900)], 1);
    let mut lock = lock(&[(1, 900)]);
    (lock.row.class, lock.row.what) = ("mutex", For::Others);
    take_from_idleness(&mut off, seen(&[lock], 1.0));
    assert!(off.samples[0].idle);
}

#[test]
fn the_same_waits_are_all_time_though_it_differs() {
    let off = off_cpu(vec![wait(1, 1_000), wait(2, 1_000)], 1);
    let mut own = lock(&[(1, 600), (2, 600)]);
    own.waits[0].count = 3;
    let place: Place = ("futex", Some(AT.into()));
    let parts = |scale, of: usize| {
        let split = Split::of(&off, seen(std::slice::from_ref(&own), scale));
        split.parts(&off.samples[of], &place, 1_000)
    };
    assert_eq!(parts(1.0, 0), [(0, 1_000)]);
    assert_eq!(parts(1.0, 1), [(0, 600)]);
    // Counts of a part of the window are no other's.
    assert_eq!(parts(1.5, 0), [(0, 900)]);
}

#[test]
fn what_was_seen_of_a_part_of_the_time_stands_for_all_of_it() {
    let off = off_cpu(vec![wait(1, 1_000)], 1);
    let split = Split::of(&off, seen(&[lock(&[(1, 100)])], 4.0));
    let place: Place = ("futex", Some(AT.into()));
    assert_eq!(split.parts(&off.samples[0], &place, 1_000), [(0, 400)]);
}

/// lockstat has no stack of the kernel's, which tells the call, and the functions that it names by what they call have none here.
#[test]
fn waits_in_functions_without_names_are_joined_whatever_their_call() {
    let mut off = off_cpu(vec![wait(1, 1_000)], 1);
    let sample = &mut off.samples[0];
    sample.user = [frame("mariadbd+0x12")].into();
    sample.kernel = [frame("__x64_sys_futex")].into();
    sample.idle = true;
    let mut lock = lock(&[(1, 1_000)]);
    (lock.row.class, lock.row.what) = ("row-lock", For::Others);
    let mut caller = frame("[calls:thd_storage_lock_wait]");
    caller.module = Some("/usr/sbin/mariadbd".into());
    lock.waits[0].user = [caller].into();
    take_from_idleness(&mut off, seen(std::slice::from_ref(&lock), 1.0));
    assert!(!off.samples[0].idle);
    let split = Split::of(&off, seen(&[lock], 1.0));
    let place: Place = ("futex", Some("mariadbd (no symbols), futex()".into()));
    assert_eq!(split.parts(&off.samples[0], &place, 1_000), [(0, 1_000)]);
}

#[test]
fn waits_that_are_known_to_be_for_work_are_idleness() {
    let off = off_cpu(vec![wait(1, 1_000), wait(2, 1_000), wait(3, 1_000)], 1);
    let locks = [lock(&[(1, 300), (2, 990)])];
    let work = |tid, ns| Waited {
        task: task("app", 1, tid),
        kernel: [].into(),
        user: stack(),
        count: 1,
        ns,
    };
    let work = [work(1, 690), work(3, 400)];
    let seen = Seen {
        locks: &locks,
        work: &work,
        scale: 1.0,
    };
    let split = Split::of(&off, seen);
    let place: Place = ("futex", Some(AT.into()));
    let parts = |at: usize| {
        let parts = split.divide(&off.samples[at], &place, 1_000).into_iter();
        let parts = parts.map(|part| (part.spot.1, part.ns, part.count, part.is_idle));
        parts.collect::<Vec<_>>()
    };
    // Both have all time of the first thread.
    assert_eq!(parts(0), [(Some(0), 303, 0, false), (None, 697, 3, true)]);
    assert_eq!(parts(1), [(Some(0), 1_000, 3, false)]);
    assert_eq!(parts(2), [(None, 400, 0, true), (None, 600, 3, false)]);
    // A thread that seems at home where it waits for both is told apart by them.
    let mut off = off;
    off.samples.iter_mut().for_each(|sample| sample.idle = true);
    take_from_idleness(&mut off, seen);
    let idle: Vec<bool> = off.samples.iter().map(|sample| sample.idle).collect();
    assert_eq!(idle, [false, false, true]);
}
