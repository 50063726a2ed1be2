use super::super::lock::{Holder, Told};
use super::super::thread::{Phase, Thread};
use super::*;
use crate::lockstat::now::graph::Releaser;

const LOCK: Identity = Identity::Private {
    space: 1,
    address: 0x1000,
};

/// One look at sleeping threads, by their switches so far.
fn look(switches: &[u64]) -> Threads {
    let mut threads = Threads::default();
    for (tid, switches) in (10..).zip(switches) {
        let mut thread = Thread::made_up("python3");
        thread.task.tid = tid;
        thread.identity = (tid.into(), 1);
        thread.switches = *switches;
        thread.phase = Phase::Asleep;
        threads.push(thread);
    }
    threads
}

/// These threads wait for the lock.
fn waits(waiters: &[usize]) -> Vec<Wait> {
    let wait = |waiter: &usize| Wait {
        waiter: *waiter,
        kind: Waited::Python,
        lock: LOCK,
        name: String::new(),
        holder: Holder::Unrecorded,
        timed: false,
        private: true,
        is_over: false,
        told: Told::default(),
    };
    waiters.iter().map(wait).collect()
}

fn held_by(thread: usize) -> HashMap<Identity, Claim> {
    let claim = Claim {
        thread,
        is_owner: false,
        is_only: true,
    };
    HashMap::from([(LOCK, claim)])
}

#[test]
fn waits_that_ended_before_their_stacks_were_read_are_dropped_and_counted() {
    let before = look(&[1, 1, 1]);
    let (mut waits, mut judged) = (waits(&[0, 1]), Judged::default());
    judged.drop_ended(&mut waits, &before, &look(&[1, 2, 1]));
    let left: Vec<usize> = waits.iter().map(|wait| wait.waiter).collect();
    assert_eq!((left, judged.passing), (vec![0], 1));
}

#[test]
fn a_wait_that_ended_while_frames_were_read_is_shown_without_a_holder_and_is_in_no_deadlock() {
    let before = look(&[1, 1, 1]);
    let (mut waits, mut judged) = (waits(&[0, 1]), Judged::default());
    judged.name_holders(
        &mut waits,
        &before,
        (&held_by(2), &HashSet::new()),
        &look(&[1, 2, 2]),
    );
    assert_eq!((judged.shown, judged.moved), ((2, 1), 1));
    let holders: Vec<Holder> = waits.iter().map(|wait| wait.holder).collect();
    assert_eq!(holders, [Holder::Thread(2), Holder::Unrecorded]);
    let releasers = waits.iter().map(|wait| wait.edge(&before).releaser);
    let releasers: Vec<Releaser> = releasers.collect();
    assert_eq!(releasers, [Releaser::Thread(2), Releaser::Unknown]);
    assert!(judged.holders.is_empty(), "it has run since");
}

#[test]
fn the_holder_of_a_wait_that_lasts_has_a_stack_if_it_sleeps() {
    let before = look(&[1, 1, 1]);
    let (mut waits, mut judged) = (waits(&[0]), Judged::default());
    judged.name_holders(
        &mut waits,
        &before,
        (&held_by(2), &HashSet::new()),
        &look(&[1, 1, 1]),
    );
    assert_eq!((judged.shown, judged.moved), ((1, 1), 0));
    assert_eq!(judged.holders, [2]);
    assert!(!waits[0].is_over);
}

#[test]
fn who_got_the_lock_while_frames_were_read_is_not_who_the_others_waited_for() {
    let before = look(&[1, 1, 1]);
    let (mut waits, mut judged) = (waits(&[0, 1]), Judged::default());
    judged.name_holders(
        &mut waits,
        &before,
        (&held_by(1), &HashSet::new()),
        &look(&[1, 2, 1]),
    );
    let holders: Vec<Holder> = waits.iter().map(|wait| wait.holder).collect();
    assert_eq!(holders, [Holder::Unrecorded; 2]);
}

#[test]
fn a_process_with_waits_that_were_too_short_stays_restless_whoever_stands_still() {
    let before = look(&[1, 1, 1]);
    let mut judged = Judged {
        moved: 1,
        ..Judged::default()
    };
    judged.count_moved(&HashSet::from([0]), &before, &look(&[1, 2, 1]));
    assert_eq!(judged.moved, 1);
    judged.count_moved(&HashSet::from([0, 1]), &before, &look(&[1, 2, 1]));
    assert_eq!(judged.moved, 2);
}
