//! Waits on futexes, as lockstat counts them: from when the thread leaves its CPU inside the call until the call returns.
//!
//! A call that does not sleep is no wait. But for priority inheritance a waiter may spin instead (992caf7f1724, Linux 5.15):
//! such a wait begins with the call. A requeue splits a wait in two.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result, ensure};

use crate::Logs;
use crate::bracket::{Interval, Pair};
use crate::event::{Call, Event, Kind};
use crate::matched::matched;

/// Success, `-EAGAIN` and `-ETIMEDOUT`.
const NOT_SLEPT: [i64; 3] = [0, -11, -110];
/// `-ERESTART_RESTARTBLOCK` of include/linux/errno.h
const RESTART_BLOCK: i64 = -516;

/// A wait of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// As both logs have it.
    pub pair: Pair,
    /// What of it passed before the thread slept.
    pub spun: Pair,
    /// The first argument of the call: of one futex its address, of several that of a list.
    pub address: u64,
}

/// All of a thread that waits for no futex when the logs begin, in order. One that is under way at the end of the tool's window
/// ends there.
///
/// # Errors
///
/// When the two logs disagree.
pub fn waits(logs: &Logs, tid: u32, end_ns: u64) -> Result<Vec<Wait>> {
    pairs(logs, tid, |events| replay(events, tid, end_ns).waits)
}

fn pairs(logs: &Logs, tid: u32, replay: impl Fn(&[Event]) -> Vec<Single>) -> Result<Vec<Wait>> {
    let both = matched(logs, replay, |wait| wait.address);
    let both = both.with_context(|| format!("waits of thread {tid} on futexes"))?;
    let waits = both.into_iter().map(|(early, late)| Wait {
        pair: Pair::of(early.whole, late.whole),
        spun: Pair::of(early.spun, late.spun),
        address: early.address,
    });
    Ok(waits.collect())
}

/// The same of a thread that, if it is there when the logs begin, sleeps on a futex then: on which, nothing tells.
///
/// # Errors
///
/// When the two logs disagree.
pub fn waits_of_sleeper(logs: &Logs, tid: u32, edges: &Range<u64>) -> Result<Vec<Wait>> {
    let asleep = Open::moved(0, edges.start);
    let replay = |events: &[Event]| replay_from(events, tid, Some(asleep), edges.end).waits;
    pairs(logs, tid, replay)
}

/// Number of the thread's calls that found no reason to sleep: the word had changed meanwhile, or the wakeup was there already.
///
/// # Errors
///
/// When the two logs disagree.
pub fn raced(logs: &Logs, tid: u32, end_ns: u64) -> Result<u64> {
    let [before, after] =
        [&logs.before, &logs.after].map(|events| replay(events, tid, end_ns).raced);
    ensure!(
        before == after,
        "the logs have {before} and {after} calls of thread {tid} that did not sleep"
    );
    Ok(before)
}

/// What one log has of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Replayed {
    waits: Vec<Single>,
    raced: u64,
}

/// A wait in one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Single {
    whole: Interval,
    spun: Interval,
    address: u64,
}

/// A wait under way, of a thread inside a call.
#[derive(Clone, Copy)]
struct Open {
    address: u64,
    begin_ns: Option<u64>,
    slept_ns: Option<u64>,
}

impl Open {
    fn of(call: &Call, now: u64) -> Option<Self> {
        Some(Self {
            address: call.first,
            begin_ns: kind(call)?.spins().then_some(now),
            slept_ns: None,
        })
    }

    fn moved(address: u64, now: u64) -> Self {
        Self {
            address,
            begin_ns: Some(now),
            slept_ns: Some(now),
        }
    }

    fn sleeps(&mut self, now: u64) {
        self.begin_ns.get_or_insert(now);
        self.slept_ns.get_or_insert(now);
    }

    fn end(&self, now: u64) -> Option<Single> {
        self.begin_ns.map(|begin_ns| Single {
            whole: Interval::seen(begin_ns, now),
            spun: Interval::seen(begin_ns, self.slept_ns.unwrap_or(now)),
            address: self.address,
        })
    }
}

fn replay(events: &[Event], tid: u32, end_ns: u64) -> Replayed {
    replay_from(events, tid, None, end_ns)
}

fn replay_from(events: &[Event], tid: u32, open: Option<Open>, end_ns: u64) -> Replayed {
    let mut thread = Thread {
        tid,
        open,
        ..Thread::default()
    };
    for event in events.iter().filter(|event| event.ns < end_ns) {
        match event.kind {
            Kind::Call { tid: caller, call } => thread.called(event.ns, caller, call),
            Kind::Return {
                tid: caller,
                result,
            } => thread.returned(event.ns, caller, result),
            Kind::Switch {
                prev,
                runnable: false,
                interruptible: true,
                ..
            } if prev == tid => {
                if let Some(open) = &mut thread.open {
                    open.sleeps(event.ns);
                }
            }
            Kind::Wakeup {
                tid: made,
                is_new: true,
                ..
            } if made == tid => thread.open = None,
            _ => {}
        }
    }
    let last = thread.open.and_then(|open| open.end(end_ns));
    thread.found.waits.extend(last);
    thread.found
}

/// The one that is looked at.
#[derive(Default)]
struct Thread {
    tid: u32,
    found: Replayed,
    open: Option<Open>,
    call: Option<Call>,
    /// What `restart_syscall(2)` would take up.
    interrupted: Option<Call>,
    /// Of other threads.
    requeues: HashMap<u32, Call>,
}

impl Thread {
    fn called(&mut self, ns: u64, caller: u32, call: Call) {
        if caller == self.tid {
            self.call = if is_restart(&call) {
                self.interrupted
            } else {
                Some(call)
            };
            self.open = self.call.and_then(|call| Open::of(&call, ns));
        } else if is_requeue(&call) {
            self.requeues.insert(caller, call);
        }
    }

    fn returned(&mut self, ns: u64, caller: u32, result: i64) {
        if caller == self.tid {
            let wait = self.open.take().map(|open| open.end(ns));
            self.found.raced += u64::from(wait == Some(None) && NOT_SLEPT.contains(&result));
            self.found.waits.extend(wait.flatten());
            self.interrupted = self.call.filter(|_| result == RESTART_BLOCK);
            return;
        }
        let requeue = self.requeues.remove(&caller).filter(|_| result > 0);
        let Some(requeue) = requeue else {
            return;
        };
        let moved = self.open.filter(|open| open.address == requeue.first);
        if let Some(before) = moved.and_then(|open| open.end(ns)) {
            self.found.waits.push(before);
            self.open = Some(Open::moved(requeue.fifth, ns));
        }
    }
}

/// What a thread may wait in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Asleep,
    PriorityInheriting,
}

impl Waiting {
    fn spins(self) -> bool {
        self == Self::PriorityInheriting
    }
}

/// The operation of `futex(2)`; `None`: another call.
fn operation(call: &Call) -> Option<u32> {
    const FUTEX: u32 = 202;
    const COMPAT_FUTEX: [u32; 2] = [240, 422];
    const OPERATION: u32 = 0x7f;
    let is_futex = if call.is_compat {
        COMPAT_FUTEX.contains(&call.number)
    } else {
        call.number == FUTEX
    };
    is_futex.then_some(call.second & OPERATION)
}

fn kind(call: &Call) -> Option<Waiting> {
    const WAITV: u32 = 449;
    const FUTEX2_WAIT: u32 = 455;
    match (call.number, operation(call)) {
        // FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI
        (WAITV | FUTEX2_WAIT, _) | (_, Some(0 | 9 | 11)) => Some(Waiting::Asleep),
        // FUTEX_LOCK_PI, FUTEX_LOCK_PI2
        (_, Some(6 | 13)) => Some(Waiting::PriorityInheriting),
        _ => None,
    }
}

fn is_restart(call: &Call) -> bool {
    call.number == if call.is_compat { 0 } else { 219 }
}

fn is_requeue(call: &Call) -> bool {
    // FUTEX_REQUEUE, FUTEX_CMP_REQUEUE
    matches!(operation(call), Some(3 | 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch;

    fn futex(ns: u64, tid: u32, operation: u32, first: u64, fifth: u64) -> Event {
        let call = Call {
            number: 202,
            is_compat: false,
            first,
            second: operation | 0x80,
            fifth,
        };
        let kind = Kind::Call { tid, call };
        Event { ns, cpu: 0, kind }
    }

    fn returns(ns: u64, tid: u32, result: i64) -> Event {
        let kind = Kind::Return { tid, result };
        Event { ns, cpu: 0, kind }
    }

    #[test]
    fn wait_begins_asleep_and_ends_with_the_call() {
        let events = [
            // Returns at once.
            futex(10, 7, 0, 0x1000, 0),
            returns(12, 7, -11),
            futex(20, 7, 0, 0x1000, 0),
            // Driven from the CPU, it is not asleep.
            switch(22, 7, 8, true),
            switch(24, 8, 7, false),
            switch(25, 7, 0, false),
            switch(40, 0, 7, false),
            returns(41, 7, 0),
            // Sleeps in no such call.
            switch(50, 7, 0, false),
            futex(60, 7, 0, 0x2000, 0),
            switch(65, 7, 0, false),
        ];
        let slept = |begin_ns, end_ns, address| Single {
            whole: Interval::seen(begin_ns, end_ns),
            spun: Interval::seen(begin_ns, begin_ns),
            address,
        };
        let expected = [slept(25, 41, 0x1000), slept(65, 100, 0x2000)];
        let found = replay(&events, 7, 100);
        assert_eq!((found.waits.as_slice(), found.raced), (&expected[..], 1));
    }

    #[test]
    fn priority_inheritance_waits_from_the_call_on() {
        let events = [
            futex(10, 7, 6, 0x1000, 0),
            switch(30, 7, 0, false),
            switch(40, 0, 7, false),
            returns(41, 7, 0),
        ];
        let expected = Single {
            whole: Interval::seen(10, 41),
            spun: Interval::seen(10, 30),
            address: 0x1000,
        };
        assert_eq!(replay(&events, 7, 100).waits, [expected]);
    }

    #[test]
    fn requeue_splits_a_wait() {
        let events = [
            futex(10, 7, 0, 0x1000, 0),
            switch(11, 7, 8, false),
            futex(20, 8, 4, 0x1000, 0x2000),
            returns(21, 8, 1),
            switch(40, 8, 7, false),
            returns(41, 7, 0),
        ];
        let found: Vec<(u64, Interval)> = replay(&events, 7, 100)
            .waits
            .iter()
            .map(|wait| (wait.address, wait.whole))
            .collect();
        let expected = [
            (0x1000, Interval::seen(11, 21)),
            (0x2000, Interval::seen(21, 41)),
        ];
        assert_eq!(found, expected);
    }
}
