use super::*;
use crate::lockstat::meanwhile::Meanwhile;
use crate::lockstat::row::tests::{row, waiter};
use crate::lockstat::row::{Arrival, Holder, HolderKind};
use crate::lockstat::turns::take_turns;
use crate::made_up::task;

const MS: u64 = 1_000_000;
const WINDOW_NS: u64 = 1_000 * MS;

/// Waits of some threads: each its number, its depth in the program, its time and its number of waits.
fn waits(class: Class, role: Role, threads: &[(u32, usize, u64, u64)]) -> (Class, Role, LockRow) {
    let mut lock = row(threads.iter().map(|(_, _, ns, _)| ns).sum());
    lock.class = class.word();
    lock.contentions = threads.iter().map(|(_, _, _, count)| count).sum();
    let waiters = threads.iter().map(|&(tid, depth, ns, count)| Waiter {
        count,
        // Stacks are called by their depths.
        user: depth as u64,
        ..waiter(task("app", 1, tid), ns)
    });
    lock.waiters = waiters.collect();
    (class, role, lock)
}

/// Two frames of the C library are at each leaf.
fn judged(rows: &[(Class, Role, LockRow)]) -> Vec<For> {
    let depth = |waiter: &Waiter| Depth {
        own: waiter.user as usize,
        all: waiter.user as usize + 2,
    };
    let seen = rows.iter().map(|(class, role, row)| Seen {
        row,
        class: *class,
        role: *role,
        depths: row.waiters.iter().map(|it| Some(depth(it))).collect(),
    });
    judge(&seen.collect::<Vec<_>>(), WINDOW_NS)
}

#[test]
fn a_function_that_says_what_it_waits_for_is_believed() {
    let all = [(1, 3, 999 * MS, 1)];
    let rows = [
        waits(Class::Mutex, Role::Trouble, &all),
        waits(Class::Named, Role::Trouble, &all),
        waits(Class::Park, Role::Work, &[(2, 9, MS, 5)]),
        // The kernel's word, without a name.
        waits(Class::Pi, Role::Unsaid, &all),
    ];
    assert_eq!(
        judged(&rows),
        [For::Others, For::Others, For::Work, For::Others]
    );
}

#[test]
fn a_worker_waits_for_work_at_home_and_for_others_below() {
    let rows = [
        waits(Class::Cond, Role::Unsaid, &[(1, 3, 700 * MS, 20)]),
        waits(Class::Cond, Role::Unsaid, &[(1, 7, 100 * MS, 20)]),
        waits(Class::Mutex, Role::Trouble, &[(1, 8, 100 * MS, 20)]),
    ];
    assert_eq!(judged(&rows), [For::Work, For::Unclear, For::Others]);
    // A lock further out is taken while there is work.
    let rows = [
        waits(Class::Cond, Role::Unsaid, &[(1, 7, 700 * MS, 20)]),
        waits(Class::Mutex, Role::Trouble, &[(1, 3, 100 * MS, 20)]),
    ];
    assert_eq!(judged(&rows), [For::Others, For::Others]);
    // Once at the start is no coming back.
    let rows = [
        waits(Class::Cond, Role::Unsaid, &[(1, 7, 700 * MS, 20)]),
        waits(Class::Mutex, Role::Trouble, &[(1, 3, MS, 1)]),
    ];
    assert_eq!(judged(&rows), [For::Work, For::Others]);
}

#[test]
fn a_server_that_polls_further_out_waits_for_others() {
    let mut pool = waits(Class::Cond, Role::Unsaid, &[(1, 5, 950 * MS, 20)]);
    assert_eq!(judged(&[pool.clone()]), [For::Work]);
    // The two of the C library, and the function that calls them, which the next one was without.
    pool.2.waiters[0].inside = 2;
    assert_eq!(
        judged(&[pool.clone()]),
        [For::Work],
        "it polls in the same function"
    );
    pool.2.waiters[0].inside = 3;
    assert_eq!(judged(&[pool]), [For::Others]);
}

/// A worker's entries differ by whoever wakes it.
#[test]
fn a_place_is_one_however_many_entries_it_has() {
    let entries: Vec<_> = (0..200).map(|_| (1, 3, 5 * MS - 1, 1)).collect();
    let rows = [
        waits(Class::Cond, Role::Unsaid, &entries),
        waits(Class::Cond, Role::Unsaid, &[(1, 7, MS, 1)]),
    ];
    assert_eq!(judged(&rows), [For::Work, For::Unclear]);
    // The entry of the longest time says if they lie inside.
    let mut moved = waits(
        Class::Cond,
        Role::Unsaid,
        &[(1, 5, 2 * MS, 1), (1, 5, MS, 1)],
    );
    moved.2.waiters[1].inside = 9;
    assert_eq!(judged(&[moved.clone()]), [For::Work]);
    moved.2.waiters[0].inside = 9;
    assert_eq!(judged(&[moved]), [For::Others]);
}

#[test]
fn nobody_can_tell_of_those_that_were_not_seen() {
    let mut unseen = waits(Class::Cond, Role::Unsaid, &[(1, 3, 10 * MS, 9)]);
    unseen.2.total_ns = 21 * MS;
    assert_eq!(judged(&[unseen]), [For::Unclear]);
    assert_eq!(
        judged(&[waits(Class::Sem, Role::Unsaid, &[])]),
        [For::Work],
        "none at all"
    );
}

fn releaser(tid: u32, waits: u64, caused_ns: u64) -> Holder {
    Holder {
        task: task("app", 1, tid),
        kind: HolderKind::Waker,
        waits,
        caused_ns,
        on_cpu: 0,
        runnable: 0,
        blocked: 0,
        meanwhile: Meanwhile([caused_ns, 0, 0, 0, 0, 0]),
        stack: 0,
    }
}

/// Their home is there, too.
#[test]
fn those_who_release_others_as_often_as_they_wait_take_turns() {
    let threads = [(1, 3, 900 * MS, 20), (2, 3, 950 * MS, 20), (3, 3, MS, 1)];
    let turns = |releases: &[(u32, u64)], held_ms: u64| {
        let mut turns = waits(Class::Sem, Role::Unsaid, &threads).2;
        let each_ns = held_ms * MS / releases.len() as u64;
        let releases = releases.iter();
        turns.holders = releases
            .map(|(tid, n)| releaser(*tid, *n, each_ns))
            .collect();
        take_turns(&turns, 1_000 * MS)
    };
    assert!(turns(&[(1, 11), (2, 30)], 990));
    assert!(!turns(&[(1, 9), (2, 31)], 990));
    assert!(!turns(&[(2, 20)], 990), "of one alone");
    assert!(
        !turns(&[(1, 20), (2, 20), (9, 20)], 990),
        "work from elsewhere"
    );
    assert!(!turns(&[(1, 20), (2, 20)], 1_400), "both have work at once");
    assert!(!turns(&[(1, 20), (2, 20)], 450), "nobody has, at times");
    let mut row = waits(Class::Sem, Role::Unsaid, &threads);
    assert_eq!(judged(&[row.clone()]), [For::Work]);
    row.2.in_turns = true;
    assert_eq!(judged(&[row]), [For::Others]);
}

#[test]
fn those_who_release_each_other_may_share_something() {
    let threads = [(1, 3, 400 * MS, 20), (2, 3, 950 * MS, 20)];
    let mut pool = waits(Class::Sem, Role::Unsaid, &threads);
    let holder = |tid, caused_ns| releaser(tid, 20, caused_ns);
    pool.2.holders = vec![holder(2, 500 * MS), holder(9, 500 * MS)];
    assert_eq!(judged(&[pool.clone()]), [For::Unclear]);
    pool.2.holders = vec![holder(2, 500 * MS), holder(9, 501 * MS)];
    assert_eq!(judged(&[pool]), [For::Work]);
}

#[test]
fn threads_that_pass_work_to_and_fro_are_not_idle() {
    let rows = [waits(Class::Cond, Role::Unsaid, &[(1, 3, 50 * MS, 600)])];
    assert_eq!(judged(&rows), [For::Unclear]);
    let rows = [waits(Class::Cond, Role::Unsaid, &[(1, 3, 50 * MS, 400)])];
    assert_eq!(judged(&rows), [For::Work]);
}

#[test]
fn a_barrier_that_nobody_comes_to_is_left() {
    let rows = [
        waits(Class::Barrier, Role::Unsaid, &[(1, 0, 1_000 * MS, 1)]),
        waits(
            Class::Barrier,
            Role::Unsaid,
            &[(2, 0, 950 * MS, 20), (3, 0, 10 * MS, 20)],
        ),
    ];
    assert_eq!(judged(&rows), [For::Work, For::Others]);
    let by_rule = rows.map(|(class, _, row)| (class, Role::Trouble, row));
    assert_eq!(judged(&by_rule), [For::Work, For::Others]);
    // Somebody came to it once, near the interval's end.
    let mut reached = waits(Class::Barrier, Role::Trouble, &[(1, 0, 930 * MS, 1)]);
    reached.2.last.push(Arrival {
        task: task("app", 1, 9),
        times: 1,
        caused_ns: 930 * MS,
        caller: None,
        waker: 0,
    });
    assert_eq!(judged(&[reached]), [For::Others]);
}

#[test]
fn a_short_wait_further_out_leaves_a_habit_what_it_is() {
    let rows = [
        waits(Class::Cond, Role::Unsaid, &[(1, 5, 950 * MS, 3)]),
        waits(Class::Mutex, Role::Trouble, &[(1, 2, 15 * MS, 5)]),
    ];
    assert_eq!(judged(&rows), [For::Work, For::Others]);
}

#[test]
fn a_guess_is_no_lock_where_its_thread_is_at_home() {
    let mut guess = waits(Class::Rwlock, Role::Unsaid, &[(1, 2, 900 * MS, 1)]);
    guess.2.confidence = 50;
    assert_eq!(judged(&[guess.clone()]), [For::Work]);
    guess.2.waiters[0].inside = 9;
    assert_eq!(judged(&[guess]), [For::Others]);
}

#[test]
fn waits_that_end_by_themselves_are_for_nobody() {
    let mut timed = waits(Class::Unknown, Role::Unsaid, &[(1, 6, 300 * MS, 3)]);
    let outer = waits(Class::Cond, Role::Unsaid, &[(1, 3, 300 * MS, 3)]);
    timed.2.timed_out = 2;
    assert_eq!(judged(&[timed.clone(), outer.clone()])[0], For::Unclear);
    timed.2.open = 1;
    assert_eq!(judged(&[timed, outer])[0], For::Work);
}

#[test]
fn one_who_waits_for_others_is_not_hidden_by_many_who_do_not() {
    let mut shared = waits(
        Class::Cond,
        Role::Unsaid,
        &[
            (1, 3, 800 * MS, 9),
            (2, 3, 800 * MS, 9),
            (3, 9, 200 * MS, 9),
        ],
    );
    shared.2.waiters[2].inside = 9;
    assert_eq!(judged(&[shared.clone()]), [For::Others]);
    shared.2.waiters[2].total_ns = 100 * MS;
    assert_eq!(judged(&[shared]), [For::Work]);
}
