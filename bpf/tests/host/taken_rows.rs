//! Rows that offcputime's programs tell, and the model's: by key, times and ns of them.

use std::collections::{BTreeMap, HashMap};

use bpf::offcputime::types::{offcputime_key, offcputime_value};
use oracle::Kind;

use crate::host::machine::{BEGIN_NS, Machine};

pub(crate) type Rows<const KEY: usize> = BTreeMap<[u64; KEY], [u64; 2]>;

pub(crate) fn add<const KEY: usize>(rows: &mut Rows<KEY>, key: [u64; KEY], [count, ns]: [u64; 2]) {
    let row = rows.entry(key).or_default();
    row[0] += count;
    row[1] += ns;
}

/// Takes the rows of the programs.
pub(crate) fn told<const KEY: usize>(
    machine: &Machine,
    key: impl Fn(&offcputime_key) -> [u64; KEY],
) -> Rows<KEY> {
    let mut rows = Rows::new();
    for (of, sum) in machine.host.take("offcpu_time", |_| true) {
        let sum: offcputime_value = sum;
        add(
            &mut rows,
            key(&of),
            [sum.count, sum.blocked_ns + sum.runqueue_ns],
        );
    }
    rows
}

/// A target's time off a CPU, from being seen to leave it to being seen on one.
pub(crate) struct Absence {
    pub(crate) tid: u32,
    pub(crate) since_ns: u64,
    pub(crate) end_ns: u64,
    /// The thread that had the CPU until then.
    pub(crate) prev: u32,
    /// Times that it has been seen to leave one.
    pub(crate) departures: usize,
    /// The thread that woke it last meanwhile. None if it could have gone on.
    pub(crate) waker: Option<u32>,
}

pub(crate) fn absences(machine: &Machine) -> Vec<Absence> {
    let lives = machine.lives().map(|life| (life.tid, life.begin_ns));
    let lives: HashMap<u32, u64> = lives.collect();
    let begun = lives.iter().map(|(tid, ns)| (*tid, (*ns, *ns > BEGIN_NS)));
    let mut open: HashMap<u32, (u64, bool)> = begun.collect();
    let mut departures: HashMap<u32, usize> = HashMap::new();
    let mut absences = Vec::new();
    for event in &machine.events {
        let Kind::Switch {
            prev,
            next,
            runnable,
            ..
        } = event.kind
        else {
            continue;
        };
        open.insert(prev, (event.ns, runnable));
        *departures.entry(prev).or_default() += 1;
        let Some((since_ns, runnable)) = open.remove(&next).filter(|_| lives.contains_key(&next))
        else {
            continue;
        };
        let wakings = machine.wakings.iter().rev();
        let waker = wakings
            .skip_while(|waking| waking.0 > event.ns)
            .take_while(|waking| waking.0 > since_ns)
            .find(|waking| waking.1 == next)
            .filter(|_| !runnable);
        absences.push(Absence {
            tid: next,
            since_ns,
            end_ns: event.ns,
            prev,
            departures: departures.get(&next).copied().unwrap_or(0),
            waker: waker.map(|waking| waking.2),
        });
    }
    absences
}
