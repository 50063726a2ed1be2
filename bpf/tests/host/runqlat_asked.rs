//! runqlat's options: groups, causes and slow waits, against what its man page says of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use bpf::runqlat::types::{culprit, group_id, group_key};
use fastrand::Rng;
use oracle::{Event, Kind};

use crate::host::buckets::bucket;
use crate::host::machine::{Machine, play};

/// `enum group_by` of runqlat.bpf.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum GroupBy {
    Machine,
    Process,
    Thread,
    Cpu,
    Cgroup,
}

const GROUPINGS: [GroupBy; 5] = [
    GroupBy::Machine,
    GroupBy::Process,
    GroupBy::Thread,
    GroupBy::Cpu,
    GroupBy::Cgroup,
];

/// `HIST_BUCKETS`: 16 in every power of two below 2^48, and one each below 16.
pub(crate) const BUCKETS: u32 = 45 * 16;

/// Waits of the very length that is asked for are many.
const TICK_NS: u64 = 500_000;

/// `host_give` of runqlat_threads.h.
pub(crate) fn process_of(tid: u32) -> u32 {
    1_000_000 + tid % 5
}

fn cgroup_of(tid: u32) -> u32 {
    2_000_000 + tid % 3
}

/// `host_call` of runqlat_threads.h.
fn name(kind: u8, number: u32) -> [u8; 16] {
    let mut name = [0; 16];
    name[0] = kind;
    for (at, letter) in name[1..8].iter_mut().enumerate() {
        *letter = b'a' + (number >> (4 * at)) as u8 % 16;
    }
    name
}

/// Options that the user gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) group_by: GroupBy,
    /// `--preempt`
    pub(crate) is_preempted_only: bool,
    /// `--slower`; 0: not given.
    pub(crate) slower_ns: u64,
}

impl Asked {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self {
            group_by: *rng.choice(&GROUPINGS).expect("several"),
            is_preempted_only: rng.bool(),
            slower_ns: if rng.bool() {
                rng.u64(1..80) * TICK_NS
            } else {
                0
            },
        }
    }

    pub(crate) fn tell(self, machine: &Machine) {
        let causes = if self.is_preempted_only { 4_u32 } else { 2 | 4 };
        machine
            .host
            .tell("host_ask", (self.group_by as u32, causes, self.slower_ns));
    }

    fn takes(self, wait: &Wait) -> bool {
        wait.is_preempted || !self.is_preempted_only
    }

    fn group_of(self, wait: &Wait) -> u32 {
        match self.group_by {
            GroupBy::Machine => 0,
            GroupBy::Process => process_of(wait.tid),
            GroupBy::Thread => wait.tid,
            GroupBy::Cpu => wait.cpu,
            GroupBy::Cgroup => cgroup_of(wait.tid),
        }
    }
}

/// A wait for a CPU that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) tid: u32,
    pub(crate) ns: u64,
    pub(crate) end_ns: u64,
    cpu: u32,
    is_preempted: bool,
    /// Task that had the CPU until then.
    prev: u32,
}

/// Waits begin with a wakeup, or with having to leave a CPU, and end with a switch to the thread. Of one whose end is hidden it is
/// seen that it has left a CPU: it is none.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Beginning, and whether the thread had to leave.
    pub(crate) since: HashMap<u32, (u64, bool)>,
}

impl Waiting {
    /// The wait that ends with this event.
    pub(crate) fn see(&mut self, event: &Event) -> Option<Wait> {
        match event.kind {
            Kind::Wakeup {
                tid, runs: false, ..
            } => {
                self.since.entry(tid).or_insert((event.ns, false));
                None
            }
            Kind::Switch {
                prev,
                next,
                runnable,
                ..
            } => {
                self.since.remove(&prev);
                if runnable {
                    self.since.insert(prev, (event.ns, true));
                }
                let (begin_ns, is_preempted) = self.since.remove(&next)?;
                Some(Wait {
                    tid: next,
                    ns: event.ns - begin_ns,
                    end_ns: event.ns,
                    cpu: event.cpu,
                    is_preempted,
                    prev,
                })
            }
            _ => None,
        }
    }
}

pub(crate) fn waits(events: &[Event], tids: &HashSet<u32>) -> Vec<Wait> {
    let mut waiting = Waiting::default();
    let ended = events.iter().filter_map(|event| waiting.see(event));
    ended.filter(|wait| tids.contains(&wait.tid)).collect()
}

pub(crate) fn group(id: u64, epoch: u32, bucket: u32) -> group_key {
    let id = group_id { id };
    group_key { id, epoch, bucket }
}

/// `struct sum` of groups.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Sum {
    count: u64,
    total_ns: u64,
    max_ns: u64,
    pub(crate) comm: [u8; 16],
}

/// Sums of waits, and their number in each bucket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) sum: Sum,
    pub(crate) buckets: BTreeMap<u32, u64>,
}

impl Counted {
    pub(crate) fn add(&mut self, ns: u64) {
        self.add_to_sum(ns);
        *self.buckets.entry(bucket(ns)).or_default() += 1;
    }

    pub(crate) fn add_to_sum(&mut self, ns: u64) {
        self.sum.count += 1;
        self.sum.total_ns += ns;
        self.sum.max_ns = self.sum.max_ns.max(ns);
    }

    pub(crate) fn whole(machine: &Machine, half: u32) -> Self {
        // Buckets are behind a sum.
        let words = machine
            .host
            .sums::<_, { 5 + BUCKETS as usize }>("wholes", &half);
        let in_bucket = |bucket| words[5 + bucket as usize];
        Self::told(machine.host.told("host_whole", (half,)), in_bucket)
    }

    pub(crate) fn group(machine: &Machine, id: u32, half: u32) -> Self {
        let (host, id) = (&machine.host, u64::from(id));
        let in_bucket = |bucket| host.entry("buckets", &group(id, half, bucket)).unwrap_or(0);
        Self::told(host.told("host_group", (id, half)), in_bucket)
    }

    fn told(sum: Sum, in_bucket: impl Fn(u32) -> u64) -> Self {
        let buckets = (0..BUCKETS).map(|bucket| (bucket, in_bucket(bucket)));
        let buckets = buckets.filter(|(_, count)| *count > 0).collect();
        Self { sum, buckets }
    }
}

/// `struct slow_wait` of runqlat.bpf.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Slow {
    time_ns: u64,
    wait_ns: u64,
    cpu: u32,
    cause: u32,
    tgid: u32,
    tid: u32,
    prev_tgid: u32,
    prev_tid: u32,
    prev_idle: u32,
    pad: u32,
    comm: [u8; 16],
    prev_comm: [u8; 16],
}

impl Slow {
    fn of(wait: &Wait) -> Self {
        Self {
            time_ns: wait.end_ns,
            wait_ns: wait.ns,
            cpu: wait.cpu,
            cause: if wait.is_preempted { 2 } else { 1 },
            tgid: process_of(wait.tid),
            tid: wait.tid,
            prev_tgid: process_of(wait.prev),
            prev_tid: wait.prev,
            prev_idle: u32::from(wait.prev == 0),
            pad: 0,
            comm: name(b't', wait.tid),
            prev_comm: name(b't', wait.prev),
        }
    }

    /// All that were sent, in order.
    pub(crate) fn told(machine: &Machine) -> Vec<Self> {
        let mut told = Vec::new();
        let mut slow = Self::default();
        while machine.host.ask::<bool>("host_take_slow", (&mut slow,)) {
            told.push(slow);
        }
        told
    }
}

/// `struct runqlat_losses` of runqlat.bpf.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Losses {
    slow_ring_full: u64,
    pub(crate) negative: u64,
    pub(crate) unseen: u64,
}

pub(crate) fn losses(machine: &Machine) -> Losses {
    machine.host.read("losses")
}

/// Reads the first half.
pub(crate) fn culprit_of(machine: &Machine, tid: u32) -> culprit {
    let told = machine.host.entry("culprits", &[tid, 0, 0, 0]);
    told.unwrap_or_default()
}

fn assert_counted(machine: &Machine, asked: Asked, half: u32, waits: &[Wait], case: &str) {
    let mut groups: BTreeMap<u32, Counted> = BTreeMap::new();
    for wait in waits.iter().filter(|wait| asked.takes(wait)) {
        groups.entry(asked.group_of(wait)).or_default().add(wait.ns);
    }
    let mut whole = Counted::default();
    if asked.group_by == GroupBy::Machine {
        whole = groups.remove(&0).unwrap_or_default();
    }
    assert_eq!(Counted::whole(machine, half), whole, "{case}");
    for (id, mut truth) in groups {
        let mut told = Counted::group(machine, id, half);
        match asked.group_by {
            GroupBy::Process => truth.sum.comm = name(b'p', id),
            GroupBy::Thread => truth.sum.comm = name(b't', id),
            // Nobody is told the name of whose wait made the group.
            _ => told.sum.comm = [0; 16],
        }
        assert_eq!(told, truth, "{case}, group {id}");
    }
}

pub(crate) fn call(machine: &Machine, name: &str) {
    machine.host.tell(name, ())
}

/// All events until now are counted by machine, in one half; the next ones as is asked, in the other one.
fn assert_as_asked(machine: &mut Machine, seed: u64) {
    let until_ns = machine.now;
    let before = Asked {
        group_by: GroupBy::Machine,
        is_preempted_only: false,
        slower_ns: 0,
    };
    let mut rng = Rng::with_seed(seed);
    let asked = Asked::random(&mut rng);
    asked.tell(machine);
    machine.tick_ns = TICK_NS;
    machine.host.write("epoch", 1_u32);
    machine.steps(2_000);
    let full_ns = machine.now;
    call(machine, "host_fill_slow_waits");
    machine.steps(200);
    let case = format!("seed {seed}, {asked:?}");
    let tids: HashSet<u32> = machine.lives().map(|life| life.tid).collect();
    let waits = waits(&machine.logs(0..=machine.now).before, &tids);
    let (first, second) = waits.split_at(waits.partition_point(|wait| wait.end_ns <= until_ns));
    assert_counted(machine, before, 0, first, &case);
    assert_counted(machine, asked, 1, second, &case);
    let is_slow =
        |wait: &&Wait| asked.slower_ns > 0 && wait.ns >= asked.slower_ns && asked.takes(wait);
    let (sent, lost): (Vec<&Wait>, Vec<&Wait>) = second
        .iter()
        .filter(is_slow)
        .partition(|wait| wait.end_ns <= full_ns);
    let sent: Vec<Slow> = sent.into_iter().map(Slow::of).collect();
    assert_eq!(Slow::told(machine), sent, "{case}");
    let told = losses(machine);
    assert_eq!(
        (told.slow_ring_full, told.negative),
        (lost.len() as u64, 0),
        "{case}"
    );
}

#[test]
fn groups_causes_and_slow_waits_are_as_asked() {
    play("runqlat", assert_as_asked);
}
