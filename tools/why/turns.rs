//! Turns that threads take with a lock: which threads do, and where they are when they have it.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use crate::why::kinds::Spot;

/// Share of the turns with a lock that are those of threads which wait for it.
const ARE_IN_TURN: f64 = 0.9;
/// Share of the turns of one that has it like others.
const MOST_TURNS: f64 = 0.6;
/// Time in a place that threads are in when they have a lock, in parts of what it is to be: a lock that somebody waits for always is not
/// free for long, and has one holder.
const SUM_OF_TURNS: RangeInclusive<f64> = 0.75..=1.15;

/// Looks whether threads take turns with a lock: nearly all that had it wait for it, too, and nobody has it for most of the time.
pub(crate) fn are_in_turn(holders: &[(u32, u64)], waiters: &HashSet<u32>) -> bool {
    let sum =
        |all: &mut dyn Iterator<Item = &(u32, u64)>| all.map(|(_, ns)| ns).sum::<u64>() as f64;
    let all = sum(&mut holders.iter());
    let theirs = sum(&mut holders.iter().filter(|(tid, _)| waiters.contains(tid)));
    let is_one = |(_, ns): &(u32, u64)| *ns as f64 <= MOST_TURNS * all;
    !holders.is_empty() && theirs >= ARE_IN_TURN * all && holders.iter().all(is_one)
}

/// The only one of places in which their time is about what it is to be when they have the lock, ns; `None`: there are several, or some
/// with less time may be it together.
pub(crate) fn place_of<'s>(times: &HashMap<&'s Spot, u64>, expected_ns: f64) -> Option<&'s Spot> {
    let part = |ns: u64| ns as f64 / expected_ns;
    let mut fitting = times
        .iter()
        .filter(|(_, ns)| SUM_OF_TURNS.contains(&part(**ns)));
    let (Some((spot, _)), None) = (fitting.next(), fitting.next()) else {
        return None;
    };
    let least = *SUM_OF_TURNS.start();
    let less = times.values().filter(|ns| part(**ns) < least);
    (part(less.sum()) < least).then_some(*spot)
}
