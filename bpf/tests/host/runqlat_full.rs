//! runqlat's tables without room: what is not in them is counted as lost, and no more than that.

use std::collections::{BTreeMap, HashMap, HashSet};

use oracle::{Bracket, Kind, behind};

use crate::asked::{Asked, Counted, GroupBy, Waiting, call, losses, waits};
use crate::host::buckets::bucket;
use crate::host::machine::{Machine, play};

/// Waits that each task has caused until now.
fn caused(machine: &Machine) -> BTreeMap<u32, Bracket> {
    let tids: Vec<u32> = machine.lives().map(|life| life.tid).collect();
    behind::culprits(&machine.logs(0..=machine.now), &tids).expect("the same log")
}

fn more(than: &BTreeMap<u32, Bracket>, all: &BTreeMap<u32, Bracket>) -> HashMap<u32, u64> {
    let count = |of: &BTreeMap<u32, Bracket>, tid| of.get(tid).map_or(0, |bracket| bracket.count);
    let more = all
        .keys()
        .map(|tid| (*tid, count(all, tid) - count(than, tid)));
    more.filter(|(_, count)| *count > 0).collect()
}

/// Threads and their waits' buckets that have a row before there is no room keep theirs.
fn assert_lost(machine: &mut Machine, seed: u64) {
    let asked = Asked {
        group_by: GroupBy::Thread,
        is_preempted_only: false,
        slower_ns: 0,
    };
    asked.tell(machine);
    machine.host.write("epoch", 1_u32);
    let (first_ns, at_first) = (machine.now, caused(machine));
    machine.steps(60);
    let (full_ns, at_full) = (machine.now, caused(machine));
    call(machine, "host_fill");
    machine.steps(300);
    let tids: HashSet<u32> = machine.lives().map(|life| life.tid).collect();
    let mut groups: HashMap<u32, Counted> = HashMap::new();
    let (mut groups_full, mut buckets_full) = (0, 0);
    for wait in waits(&machine.logs(0..=machine.now).before, &tids) {
        if wait.end_ns <= first_ns {
            continue;
        }
        if wait.end_ns <= full_ns {
            groups.entry(wait.tid).or_default().add(wait.ns);
            continue;
        }
        match groups.get_mut(&wait.tid) {
            None => groups_full += 1,
            Some(group) if group.buckets.contains_key(&bucket(wait.ns)) => group.add(wait.ns),
            Some(group) => {
                group.add_to_sum(wait.ns);
                buckets_full += 1;
            }
        }
    }
    let known = more(&at_first, &at_full);
    let late = more(&at_full, &caused(machine)).into_iter();
    let culprits_full: u64 = late
        .filter(|(tid, _)| !known.contains_key(tid))
        .map(|(_, count)| count)
        .sum();
    for (tid, truth) in groups {
        let mut told = Counted::group(machine, tid, 1);
        told.sum.comm = [0; 16];
        assert_eq!(told, truth, "seed {seed}, thread {tid}");
    }
    let told = ["groups_full", "buckets_full", "culprits_full"];
    let told = told.map(|name| machine.host.read::<u64>(name));
    assert_eq!(
        told,
        [groups_full, buckets_full, culprits_full],
        "seed {seed}"
    );
}

/// Waits that would have been shorter than nothing are counted, and have no length.
fn assert_negative(machine: &mut Machine, seed: u64) {
    machine.wake_all();
    let mut waiting = Waiting::default();
    for event in &machine.events {
        waiting.see(event);
    }
    machine.host.write("epoch", 1_u32);
    machine.now -= 1_000_000_000;
    let first = machine.events.len();
    machine.steps(100);
    let targets: HashSet<u32> = machine.lives().map(|life| life.tid).collect();
    let (mut negative, mut counted) = (0, Counted::default());
    for event in &machine.events[first..] {
        if let Kind::Switch { next, .. } = event.kind
            && waiting
                .since
                .get(&next)
                .is_some_and(|(since_ns, _)| event.ns < *since_ns)
        {
            waiting.since.remove(&next);
            negative += u64::from(targets.contains(&next));
        }
        if let Some(wait) = waiting
            .see(event)
            .filter(|wait| targets.contains(&wait.tid))
        {
            counted.add(wait.ns);
        }
    }
    assert_eq!(losses(machine).negative, negative, "seed {seed}");
    assert_eq!(Counted::whole(machine, 1), counted, "seed {seed}");
}

#[test]
fn clock_that_goes_backwards_is_told() {
    play("runqlat", assert_negative);
}

#[test]
fn what_finds_no_room_is_counted_as_lost() {
    play("runqlat", assert_lost);
}
