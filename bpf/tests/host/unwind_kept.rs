//! Stacks that were walked: their ids, records in the ring and losses; the owners of scratches; the processes of tables.

use std::collections::{BTreeSet, HashMap, HashSet};

use fastrand::Rng;

use crate::host::machine::Task;
use crate::memory::Memory;
use crate::stack::{FP, NO_TABLE, ROOT};
use crate::unwinder::{MOST_DEPTH, Process, Unwinder};

const KTHREAD: u32 = 0x0020_0000;
/// `enum stack_kind`.
pub(crate) const USER: u8 = 1;
const KERNEL: u8 = 2;
/// `BPF_RB_NO_WAKEUP`, `BPF_RB_FORCE_WAKEUP`.
const SLEEPS: u64 = 1;
const WAKES: u64 = 2;
/// Bytes of a record in front of its addresses.
pub(crate) const HEADER: u64 = 24;
/// More unread bytes of the ring wake the reader.
pub(crate) const HIGH_WATER: u64 = 2 << 20;
const EFAULT: i64 = 14;

impl Unwinder {
    pub(crate) fn ring(&self, is_full: bool, unread: u64) {
        self.host.tell("host_ring", (is_full, unread));
    }

    /// Ring full, table full, not walked, cut.
    pub(crate) fn lost(&self) -> [u64; 4] {
        self.host.told::<[u64; 4]>("host_lost", ())
    }

    fn kernel_stack(&self, slot: u32, addresses: &[u64], bytes: i64) -> u64 {
        self.host
            .ask::<u64>("host_kernel_stack", (slot, addresses.as_ptr(), bytes))
    }
}

/// The flag of a record: the reader is woken, or not.
pub(crate) fn wakes(urgent: bool, unread: u64) -> u64 {
    if urgent || unread > HIGH_WATER {
        WAKES
    } else {
        SLEEPS
    }
}

/// Kind, end, process's address space, addresses.
type Content = (u8, u8, u64, Vec<u64>);

struct Kept<'u> {
    unwinder: &'u Unwinder,
    rng: Rng,
    /// Ids that have been sent, by content.
    sent: HashMap<Content, u64>,
    ids: HashSet<u64>,
    lost: [u64; 4],
    is_full: bool,
    ring_is_full: bool,
    unread: u64,
    tasks: [Task; 2],
    memory: Memory,
    now: u64,
}

impl Kept<'_> {
    fn step(&mut self) {
        self.now += 1;
        if self.rng.u32(0..10) == 0 {
            self.ring_is_full = self.rng.u32(0..3) == 0;
            self.unread = [0, HIGH_WATER, HIGH_WATER + 1][self.rng.usize(0..3)];
            self.unwinder.ring(self.ring_is_full, self.unread);
        }
        self.unwinder
            .set(self.now, self.rng.u32(0..8), self.tasks[0]);
        if self.rng.bool() {
            self.kernel()
        } else {
            self.user()
        }
    }

    fn kernel(&mut self) {
        let depth = [1, 2, 3, 126, MOST_DEPTH][self.rng.usize(0..5)];
        let mut addresses = vec![0xffff_8000; depth];
        addresses[depth - 1] = self.rng.u64(0..if self.is_full { 60 } else { 6 });
        addresses[0] = self.rng.u64(0..3);
        let length = (depth * 8) as i64;
        let bytes = [length, length, length, 0, -EFAULT, -1, -22][self.rng.usize(0..7)];
        let id = self
            .unwinder
            .kernel_stack(self.rng.u32(0..4), &addresses, bytes);
        if bytes <= 0 {
            self.lost[2] += u64::from(bytes < 0 && bytes != -EFAULT);
            assert_eq!(id, 0, "{bytes}");
            assert!(self.unwinder.take_sent().is_none());
            return;
        }
        self.lost[3] += u64::from(depth == MOST_DEPTH);
        self.told(id, (KERNEL, 0, 0, addresses), 0, false);
    }

    /// A walk by frame pointers: a leaf that keeps none, or one with a caller that is a root.
    fn user(&mut self) {
        let process = self.rng.usize(0..2);
        let ip = self.rng.u64(0x1000..0x1008);
        let has_caller = self.rng.bool();
        let bp = if has_caller { 0x8000 } else { 0 };
        let (end, addresses) = if has_caller {
            (ROOT, vec![ip, 0x1fff])
        } else {
            (NO_TABLE, vec![ip])
        };
        self.unwinder.remember(&self.memory);
        let (slot, task, tgid) = (self.rng.u32(0..4), self.tasks[process], 70 + process as u32);
        let id = self
            .unwinder
            .user_stack_from(slot, task, tgid, [ip, 0x7000, bp]);
        self.told(id, (USER, end, process as u64 + 1, addresses), tgid, false);
    }

    /// An id of its own for each content, which is told once.
    fn told(&mut self, id: u64, content: Content, tgid: u32, urgent: bool) {
        let sent = self.unwinder.take_sent();
        if let Some(known) = self.sent.get(&content) {
            assert_eq!(id, *known, "{content:?}");
            assert!(sent.is_none(), "sent twice");
            return;
        }
        if self.is_full || self.ring_is_full {
            self.lost[usize::from(self.is_full)] += 1;
            assert!(id == 0 && sent.is_none(), "{content:?}");
            return;
        }
        let (record, [bytes, flags]) = sent.expect("it is new");
        assert!(
            id > 1 && self.ids.insert(id),
            "the id {id} is another stack's, or none"
        );
        assert_eq!(
            (record.id, record.time_ns, record.tgid),
            (id, self.now, tgid)
        );
        assert_eq!(
            (record.kind, record.end, record.stack()),
            (content.0, content.1, &content.3[..])
        );
        assert_eq!(bytes, HEADER + 8 * content.3.len() as u64);
        assert_eq!(flags, wakes(urgent, self.unread));
        self.sent.insert(content, id);
    }

    /// There is no room for another.
    fn fill(&mut self) {
        self.unwinder.host.tell("host_fill", ());
        self.is_full = true;
    }
}

#[test]
fn each_stack_has_an_id_and_is_told_once() {
    let unwinder = crate::unwinder();
    unwinder.walk_by(FP);
    let tasks = [70, 71].map(|tgid| unwinder.thread(tgid, 0, true, 1, 0));
    unwinder.enter(tasks[0], &[0; 21]);
    let mut memory = Memory::default();
    memory.write_word(0x8000, 0);
    memory.write_word(0x8008, 0x2000);
    let mut kept = Kept {
        unwinder: &unwinder,
        rng: Rng::with_seed(7),
        sent: HashMap::new(),
        ids: HashSet::new(),
        lost: [0; 4],
        is_full: false,
        ring_is_full: false,
        unread: 0,
        tasks,
        memory,
        now: 1,
    };
    for step in 0..4_000 {
        kept.step();
        if step == 3_000 {
            kept.fill();
        }
        assert_eq!(unwinder.lost(), kept.lost, "step {step}");
    }
    assert!(kept.lost.iter().all(|lost| *lost > 20), "{:?}", kept.lost);
}

#[test]
fn tasks_without_memory_have_no_user_stack() {
    let unwinder = crate::unwinder();
    unwinder.walk_by(FP);
    let mut registers = [0; 21];
    registers[crate::unwinder::at::IP] = 0x1000;
    for (memory, flags, has_stack) in [
        (true, 0, true),
        (true, !KTHREAD, true),
        (true, KTHREAD, false),
        (false, 0, false),
        (false, KTHREAD, false),
    ] {
        let task = unwinder.thread(5, flags, memory, 1, 0);
        unwinder.enter(task, &registers);
        unwinder.set(1, 0, task);
        assert_eq!(
            unwinder.user_stack(0, task, 5) > 0,
            has_stack,
            "{memory}, {flags:x}"
        );
        unwinder.take_sent();
    }
}

/// Contexts nest on a CPU, and end in any order where they are preempted.
#[test]
fn no_two_contexts_have_one_scratch() {
    const SCRATCHES: usize = 4;
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(3);
    let mut claimed: [BTreeSet<u32>; 8] = Default::default();
    for _ in 0..20_000 {
        let cpu = rng.u32(0..8);
        unwinder.set(1, cpu, std::ptr::null_mut());
        let own = &mut claimed[cpu as usize];
        if rng.u32(0..5) < 2 && !own.is_empty() {
            let slot = *own
                .iter()
                .nth(rng.usize(0..own.len()))
                .expect("one of them");
            own.remove(&slot);
            unwinder.host.tell("host_release", (slot,));
            continue;
        }
        let slot = unwinder.host.ask::<i32>("host_claim", ());
        match u32::try_from(slot) {
            Ok(slot) => assert!(
                own.insert(slot) && own.len() <= SCRATCHES,
                "{slot} of {own:?}"
            ),
            Err(_) => assert_eq!(own.len(), SCRATCHES, "a scratch besides {own:?} is free"),
        }
    }
}

#[test]
fn stacks_that_are_left_out_are_counted() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(5);
    let mut truth = 0;
    for _ in 0..1_000 {
        let is_short = rng.bool();
        let mut is_left_out = false;
        let count = unwinder
            .host
            .ask::<u64>("host_leaves_out", (is_short, &mut is_left_out));
        truth += u64::from(is_short);
        assert_eq!((is_left_out, count), (is_short, truth));
    }
}

/// A child begins with its parent's mappings, and an exec with none.
#[test]
fn mappings_are_inherited_and_forgotten() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(9);
    // Nobody in the tool's namespace has the number 0.
    let tasks: Vec<(u32, Task)> = [0, 1, 2, 3, 3, 4, 4]
        .map(|tgid| (tgid, unwinder.thread(tgid, 0, true, 1, 0)))
        .into();
    let mut truth: HashMap<u32, Process> = HashMap::new();
    for step in 0..3_000 {
        let (tgid, task) = tasks[rng.usize(0..tasks.len())];
        let (child_tgid, child) = tasks[rng.usize(0..tasks.len())];
        match rng.u32(0..4) {
            0 if tgid > 0 => {
                let process = Process {
                    start_stack: rng.u64(..),
                    mappings_at: rng.u32(..),
                    mappings: rng.u32(..),
                    generation: step,
                    python: 0,
                };
                unwinder.process(tgid, Some(&process));
                truth.insert(tgid, process);
            }
            1 => {
                unwinder.host.run("unwind_exec", &[task as u64]);
                truth.remove(&tgid);
            }
            _ => {
                let fork = [task as u64, child as u64];
                unwinder.host.run("unwind_fork", &fork);
                if let Some(process) = truth.get(&tgid).copied()
                    && child_tgid > 0
                {
                    truth.insert(child_tgid, process);
                }
            }
        }
        for tgid in 0..5 {
            assert_eq!(
                unwinder.process_of(tgid),
                truth.get(&tgid).copied(),
                "step {step}, {tgid}"
            );
        }
    }
}
