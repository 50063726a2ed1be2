//! Tells waits for work from waits for others, where the function alone does not say.
//!
//! A thread waits for work at its home, where it comes back to between all else that it does: where it has the fewest frames of its
//! program. It waits for others where it is further in. Where it waits in other calls (poll, recv, …) the BPF side has seen how far out
//! that is (`outer_wait.bpf.h`); a server with more requests than it can serve never waits there. Where those who wait also release each
//! other, home says nothing: they may pass a resource on, or work. Where they take turns, it is a resource. A thread that hardly did
//! anything else than wait in one place has nothing to do either, nor has one whose waits end by themselves. It has something to do where
//! work comes within 100 us: two threads pass it to and fro.

use std::collections::{HashMap, HashSet};

use crate::lockstat::futex::{Class, Role};
use crate::lockstat::row::{For, LockRow, SURE, Waiter};

/// Share of the interval that makes a wait its thread's habit.
const HABIT: f64 = 0.9;
/// Share of a thread's waiting below which a place says nothing of where the thread comes back to.
const SELDOM: f64 = 0.01;
/// Mean length of waits in which a thread has work again at once, ns.
const BRISK_NS: u64 = 100_000;

/// Depth in its program at which a thread waits, where its stack is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Depth {
    /// Frames up to the program's last function, from the root on.
    pub(super) own: usize,
    /// All frames.
    pub(super) all: usize,
}

/// Share of the waiting that those who wait in the same place end.
const AMONG_THEMSELVES: f64 = 0.5;

/// A row to be judged: what its function says, and how deep each of its waiters is.
pub(super) struct Seen<'a> {
    pub(super) row: &'a LockRow,
    pub(super) class: Class,
    pub(super) role: Role,
    /// One for each of the row's waiters, in their order.
    pub(super) depths: Vec<Option<Depth>>,
}

impl Seen<'_> {
    /// Its waits may be for work, as far as their function says.
    fn may_be_idle(&self) -> bool {
        let is_guess = self.row.confidence < SURE && self.role == Role::Unsaid;
        self.role == Role::Work || !self.class.is_lock() && self.role == Role::Unsaid || is_guess
    }
}

type Thread = (u32, u32);

/// Fewest frames of a thread's waits that may be for work, and of those that are not.
#[derive(Clone, Copy, Default)]
struct Outermost {
    idle: Option<usize>,
    busy: Option<usize>,
}

/// Tells of each row what its waits are for, in order. `window_ns`: length of the interval.
pub(super) fn judge(rows: &[Seen<'_>], window_ns: u64) -> Vec<For> {
    let outermost = outermost(rows);
    let of_row = |seen: &Seen<'_>| match seen.role {
        Role::Work => For::Work,
        // Nobody may come to one of them.
        Role::Trouble if seen.class == Class::Barrier && seen.row.total_ns > 0 => {
            match of_shape(seen, &outermost, window_ns) {
                For::Work => For::Work,
                _ => For::Others,
            }
        }
        Role::Trouble => For::Others,
        Role::Unsaid if !seen.may_be_idle() || seen.row.in_turns => For::Others,
        Role::Unsaid => of_shape(seen, &outermost, window_ns),
    };
    rows.iter().map(of_row).collect()
}

/// Waits of a thread for one lock at one depth, whoever ended them and whatever led there.
#[derive(Clone, Copy, Default)]
struct Place {
    ns: u64,
    count: u64,
    depth: Option<Depth>,
    /// Frames inside of where the thread waits for work in other calls, and the time of the waits that say so.
    inside: (u64, u64),
}

impl Place {
    /// Looks whether the function of the program that waits is inside of that.
    fn is_inside(&self) -> bool {
        let of_libraries = self.depth.map(|depth| depth.all.saturating_sub(depth.own));
        of_libraries.is_some_and(|frames| self.inside.1 as usize > frames)
    }
}

impl Seen<'_> {
    fn places(&self) -> HashMap<(Thread, Option<usize>), Place> {
        let mut places: HashMap<_, Place> = HashMap::new();
        for (waiter, depth) in self.row.waiters.iter().zip(&self.depths) {
            let own = depth.map(|depth| depth.own);
            let place = places.entry((thread(waiter), own)).or_default();
            place.ns += waiter.total_ns;
            place.count += waiter.count;
            place.depth = place.depth.max(*depth);
            place.inside = place.inside.max((waiter.total_ns, waiter.inside));
        }
        places
    }
}

fn outermost(rows: &[Seen<'_>]) -> HashMap<Thread, Outermost> {
    let mut per_thread: HashMap<Thread, u64> = HashMap::new();
    for waiter in rows.iter().flat_map(|seen| &seen.row.waiters) {
        *per_thread.entry(thread(waiter)).or_default() += waiter.total_ns;
    }
    let mut outermost: HashMap<Thread, Outermost> = HashMap::new();
    for seen in rows {
        for ((thread, own), place) in seen.places() {
            let says = place.ns as f64 >= SELDOM * per_thread[&thread] as f64;
            let Some(own) = own.filter(|_| says) else {
                continue;
            };
            let outermost = outermost.entry(thread).or_default();
            let least = match seen.may_be_idle() {
                true => &mut outermost.idle,
                false => &mut outermost.busy,
            };
            *least = Some(least.map_or(own, |least| least.min(own)));
        }
    }
    outermost
}

/// By most of the time that was waited.
fn of_shape(seen: &Seen<'_>, outermost: &HashMap<Thread, Outermost>, window_ns: u64) -> For {
    let mut sums = [0; 3];
    let is_shared = release_each_other(seen.row);
    for ((thread, _), place) in seen.places() {
        let outermost = outermost.get(&thread).copied().unwrap_or_default();
        let what = of_place(seen, place, outermost, window_ns, is_shared);
        sums[what as usize] += place.ns;
    }
    // Those who wait for work are no trouble to the others there.
    let [work, others, unclear] = sums;
    // Waiters that found no room.
    let unclear = unclear + seen.row.total_ns.saturating_sub(work + others + unclear);
    if others > 0 && others >= unclear && others >= work / 10 {
        For::Others
    } else if unclear > work {
        For::Unclear
    } else {
        For::Work
    }
}

/// `is_shared`: those who wait there release each other.
fn of_place(
    seen: &Seen<'_>,
    place: Place,
    outermost: Outermost,
    window_ns: u64,
    is_shared: bool,
) -> For {
    let row = seen.row;
    let is_habit = place.ns as f64 >= HABIT * window_ns as f64;
    if seen.class == Class::Barrier {
        // Nobody came to it.
        return match is_habit && place.count <= 1 && row.last.is_empty() {
            true => For::Work,
            false => For::Others,
        };
    }
    let own = place.depth.map(|depth| depth.own);
    let is_below = |own: usize| outermost.busy.is_some_and(|busy| busy < own);
    // A wait further out is little beside the place that it is always in.
    if place.is_inside() || own.is_some_and(is_below) && !is_habit {
        return For::Others;
    }
    if ends_by_itself(row) {
        return For::Work;
    }
    let is_brisk = place.count > 0 && place.ns / place.count < BRISK_NS;
    let is_home = own.is_some() && own == outermost.idle;
    match (is_home || is_habit) && !is_brisk && !is_shared {
        true => For::Work,
        false => For::Unclear,
    }
}

/// Looks whether no wait was ended by another thread.
fn ends_by_itself(row: &LockRow) -> bool {
    row.timed_out > 0 && row.timed_out.saturating_add(row.open) >= row.contentions
}

/// Looks whether those who wait there are those who release others from there.
pub(super) fn release_each_other(row: &LockRow) -> bool {
    let waiters: HashSet<Thread> = row.waiters.iter().map(thread).collect();
    let (mut theirs, mut all) = (0, 0);
    for holder in &row.holders {
        let waits = waiters.contains(&(holder.task.tgid, holder.task.tid));
        theirs += if waits { holder.caused_ns } else { 0 };
        all += holder.caused_ns;
    }
    theirs > 0 && theirs as f64 >= AMONG_THEMSELVES * all as f64
}

fn thread(waiter: &Waiter) -> Thread {
    (waiter.task.tgid, waiter.task.tid)
}

#[cfg(test)]
#[path = "idle_tests.rs"]
mod tests;
