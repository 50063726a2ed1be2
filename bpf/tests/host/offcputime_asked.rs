//! offcputime's filters, and what threads say of their waits, against what its man page says of them.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use fastrand::Rng;
use oracle::offcpu;

use crate::host::leaving::Leaving;
use crate::host::machine::{Life, Machine, State, THREADS, Task, play};
use crate::totals::{Losses, Totals};
use crate::wakeup_of;

const TICK_NS: u64 = 500_000;

/// `enum wait_flags` of waits.bpf.h.
pub(crate) const RUNNABLE: u8 = 1;
pub(crate) const THROTTLED: u8 = 1 << 1;
const UNINTERRUPTIBLE: u8 = 1 << 2;
const NOLOAD: u8 = 1 << 3;
const BLOCK_IO: u8 = 1 << 4;
const KERNEL_LOCK: u8 = 1 << 5;
pub(crate) const KERNEL_THREAD: u8 = 1 << 6;
const STOPPED: u8 = 1 << 7;

/// Options that the user gives.
#[derive(Clone, Debug)]
struct Asked {
    /// `-m` and `-M`
    lengths_ns: RangeInclusive<u64>,
    /// `--state`
    states: Option<u32>,
}

impl Asked {
    fn random(rng: &mut Rng) -> Self {
        let least = rng.u64(0..4) * rng.u64(0..10) * TICK_NS;
        let most = match rng.bool() {
            true => least + rng.u64(0..40) * TICK_NS,
            false => u64::MAX,
        };
        let states = rng.choice([None, Some(0), Some(1), Some(2), Some(6), Some(0x400)]);
        Self {
            lengths_ns: least..=most,
            states: states.expect("some"),
        }
    }

    fn tell(&self, machine: &Machine) {
        let (least, most) = (*self.lengths_ns.start(), *self.lengths_ns.end());
        let asked = (least, most, self.states.unwrap_or(u32::MAX));
        machine.host.tell("host_ask", asked);
    }

    fn takes(&self, off: &Off) -> bool {
        let is_of_state = match (self.states, off.began) {
            (None, _) => true,
            (Some(states), Began::Left(way)) if !way.stays => way.state & states != 0,
            (Some(states), Began::Left(_) | Began::Forked) => states == 0,
            (Some(_), Began::BeforeTheWindow) => false,
        };
        is_of_state && self.lengths_ns.contains(&(off.blocked_ns + off.queued_ns))
    }
}

#[derive(Clone, Copy)]
enum Began {
    BeforeTheWindow,
    /// It has never run, and waits for nothing but a CPU.
    Forked,
    Left(Leaving),
}

/// A time off the CPU.
pub(crate) struct Off {
    tid: u32,
    began: Began,
    pub(crate) end_ns: u64,
    pub(crate) blocked_ns: u64,
    pub(crate) queued_ns: u64,
    pub(crate) is_over: bool,
}

/// Word of a thread that left its CPU like this.
pub(crate) fn said(tid: u32, way: Leaving, is_runnable: bool) -> u8 {
    let when = |is: bool, flag: u8| if is { flag } else { 0 };
    let of_wait = if is_runnable {
        RUNNABLE | when(way.is_throttled, THROTTLED)
    } else {
        when(way.state & 2 != 0, UNINTERRUPTIBLE)
            | when(way.state & 0xc != 0, STOPPED)
            | when(way.state & 0x400 != 0, NOLOAD)
            | when(way.is_io, BLOCK_IO)
            | when(way.lock_field != 0, KERNEL_LOCK)
    };
    of_wait | of_thread(tid)
}

pub(crate) fn of_thread(tid: u32) -> u8 {
    if tid % 4 == 3 { KERNEL_THREAD } else { 0 }
}

impl Off {
    fn flags(&self) -> u8 {
        match self.began {
            Began::BeforeTheWindow => of_thread(self.tid),
            Began::Forked => RUNNABLE | of_thread(self.tid),
            Began::Left(way) => said(self.tid, way, way.stays),
        }
    }
}

/// Those of a thread that the tool can know; the last one may be open at `end_ns`.
pub(crate) fn offs(machine: &Machine, life: Life, end_ns: u64) -> Vec<Off> {
    let logs = machine.logs(life.begin_ns..=life.end_ns);
    let edges = life.begin_ns..end_ns;
    let absences = offcpu::absences(&logs, life.tid, &edges).expect("the same log");
    let seen = absences.into_iter().filter(|span| !span.is_hidden);
    let offs = seen.map(|span| {
        let (begin_ns, end_ns) = (span.pair.early.begin_ns, span.pair.early.end_ns);
        let began = match machine.left.get(&(life.tid, begin_ns)) {
            Some(way) if begin_ns > life.begin_ns => Began::Left(*way),
            _ if life.tid <= THREADS => Began::BeforeTheWindow,
            _ => Began::Forked,
        };
        let woken = wakeup_of(&logs, life.tid, begin_ns..end_ns);
        let queued = if span.was_runnable {
            begin_ns
        } else {
            woken.map_or(end_ns, |(ns, _)| ns)
        };
        Off {
            tid: life.tid,
            began,
            end_ns,
            blocked_ns: queued - begin_ns,
            queued_ns: end_ns - queued,
            is_over: end_ns < edges.end,
        }
    });
    offs.collect()
}

/// `struct offcputime_value` of offcpu_rows.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Row {
    pub(crate) blocked_ns: u64,
    pub(crate) runqueue_ns: u64,
    pub(crate) count: u64,
    /// Nobody asks for lengths.
    id: u64,
    /// Nobody asks for single waits, either.
    is_told: u64,
}

impl Row {
    pub(crate) fn add(&mut self, blocked_ns: u64, queued_ns: u64) {
        self.blocked_ns += blocked_ns;
        self.runqueue_ns += queued_ns;
        self.count += 1;
    }

    pub(crate) fn told(machine: &Machine, tid: u32, flags: u8, is_known: bool) -> Self {
        machine
            .host
            .told::<Self>("host_row", (tid, flags, is_known))
    }
}

/// `struct open_phase` of offcpu_open.bpf.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Open {
    pub(crate) phase_ns: u64,
    pub(crate) lifetime_ns: u64,
    /// Sums before the phase, which only tools that keep processes apart read: on a CPU, unseen, lost.
    pub(crate) sums: [u64; 3],
    pub(crate) blocked_ns: u64,
    pub(crate) runqueue_ns: u64,
    waker: u64,
    user_stack: u64,
    ip: u64,
    sp: u64,
    bp: u64,
    lr: u64,
    thread_pointer: u64,
    /// The poll that it asks about, of which nobody here is in one, and since which switch it waits.
    polled: [u64; 3],
    tgid: u32,
    pub(crate) tid: u32,
    comm: [u8; 16],
    pub(crate) syscall: i16,
    file_type: u8,
    futex_op: u8,
    futex_value: u32,
    /// Nobody asks for files and connections.
    endpoint: u64,
    pub(crate) phase: u8,
    pub(crate) wait_flags: u8,
    wanted: u8,
    exact: u8,
    pub(crate) depth: u32,
    pub(crate) is_known: u32,
    pub(crate) ran_on: u32,
    /// Number of its wait, which only tools that put waits together read.
    number: u32,
    /// It had never run.
    is_new: u32,
}

impl Open {
    /// Place at which the walk of its user stack begins.
    pub(crate) fn registers(&self) -> [u64; 3] {
        [self.ip, self.sp, self.bp]
    }

    /// The same, with the stacks that were told of before.
    pub(crate) fn with_stacks(self, told: &Self) -> Self {
        Self {
            is_known: 0,
            sums: told.sums,
            depth: told.depth,
            ip: told.ip,
            sp: told.sp,
            bp: told.bp,
            lr: told.lr,
            thread_pointer: told.thread_pointer,
            polled: told.polled,
            exact: told.exact,
            ..self
        }
    }

    pub(crate) fn told(machine: &Machine, task: Task) -> Self {
        Self::of(machine, "host_close", task).expect("it lives")
    }

    /// `host_open`: `None` if its stacks need not be told.
    pub(crate) fn of(machine: &Machine, name: &str, task: Task) -> Option<Self> {
        let mut open = Self::default();
        machine.leave_to_user_space();
        let is_told = machine.host.ask::<bool>(name, (task, &mut open));
        is_told.then_some(open)
    }
}

/// Waits that are open at the end are told of whole; their stacks only once.
fn assert_open(machine: &Machine, asked: &Asked, offs: &HashMap<u32, Off>, case: &str) {
    for thread in machine.alive() {
        let stacks = Open::of(machine, "host_stacks", thread.task);
        let open = Open::told(machine, thread.task);
        assert_eq!((open.tid, open.tgid), (thread.tid, thread.tid), "{case}");
        let Some(off) = offs.get(&thread.tid) else {
            assert!(stacks.is_none(), "{case}");
            continue;
        };
        let is_queued = off.queued_ns > 0;
        // A thread that is back on a CPU, unseen, has other stacks by now.
        let known = u32::from(thread.state != State::Running);
        assert_eq!(u32::from(stacks.is_some()), known, "{case}");
        let told = (
            (open.blocked_ns, open.runqueue_ns),
            (open.phase, open.phase_ns),
            (open.wait_flags, open.wanted, open.is_known),
            open.syscall,
        );
        let truth = (
            (off.blocked_ns, off.queued_ns),
            if is_queued {
                (3, off.queued_ns)
            } else {
                (2, off.blocked_ns)
            },
            (off.flags(), u8::from(asked.takes(off)), known),
            if off.flags() & KERNEL_THREAD == 0 {
                0
            } else {
                -1
            },
        );
        assert_eq!(told, truth, "{case}, thread {}", thread.tid);
        let Some(stacks) = stacks else { continue };
        let again = Open::of(machine, "host_stacks", thread.task);
        assert_eq!((stacks.depth, open.depth), (2, 0), "{case}");
        assert!(again.is_none(), "{case}");
        let registers = machine.host.told::<[u64; 3]>("host_registers_of_all", ());
        let is_kernel = off.flags() & KERNEL_THREAD != 0;
        let walked = if is_kernel { [0; 3] } else { registers };
        assert_eq!(stacks.registers(), walked, "{case}");
    }
}

/// All times off the CPU that are over by now are counted; of the next ones those that are asked for.
pub(crate) fn assert_as_asked(machine: &mut Machine, seed: u64) {
    let until_ns = machine.now;
    let asked = Asked::random(&mut Rng::with_seed(seed));
    asked.tell(machine);
    machine.tick_ns = TICK_NS;
    machine.steps(3_000);
    let end_ns = machine.now + 1;
    let case = format!("seed {seed}, {asked:?}");
    let (mut filtered, mut filtered_ns) = (0, 0);
    let mut rows: HashMap<(u32, u8), Row> = HashMap::new();
    let mut open = HashMap::new();
    for life in machine.lives() {
        for off in offs(machine, life, end_ns) {
            if !off.is_over {
                open.insert(life.tid, off);
            } else if off.end_ns <= until_ns || asked.takes(&off) {
                let row = rows.entry((off.tid, off.flags())).or_default();
                row.add(off.blocked_ns, off.queued_ns);
            } else {
                filtered += 1;
                filtered_ns += off.blocked_ns + off.queued_ns;
            }
        }
    }
    for ((tid, flags), row) in rows {
        let told = Row::told(machine, tid, flags, false);
        assert_eq!(told, row, "{case}, thread {tid}, {flags:#x}");
    }
    let told = Totals::told(&machine.host);
    let told = (told.filtered, told.filtered_ns);
    assert_eq!(told, (filtered, filtered_ns), "{case}");
    machine.host.tell("host_end", (end_ns,));
    machine.now = end_ns;
    assert_open(machine, &asked, &open, &case);
}

/// Times that have no row when no room is left are counted as lost.
fn assert_lost(machine: &mut Machine, seed: u64) {
    let until_ns = machine.now;
    machine.host.tell("host_fill", ());
    machine.steps(1_000);
    let mut rows: HashMap<(u32, u8), Row> = HashMap::new();
    let (mut lost, mut lost_ns) = (0, 0);
    for life in machine.lives() {
        let offs = offs(machine, life, machine.now + 1).into_iter();
        for off in offs.filter(|off| off.is_over) {
            let key = (off.tid, off.flags());
            if off.end_ns <= until_ns || rows.contains_key(&key) {
                let row = rows.entry(key).or_default();
                row.add(off.blocked_ns, off.queued_ns);
            } else {
                lost += 1;
                lost_ns += off.blocked_ns + off.queued_ns;
            }
        }
    }
    for ((tid, flags), row) in rows {
        let told = Row::told(machine, tid, flags, false);
        assert_eq!(told, row, "seed {seed}, thread {tid}, {flags:#x}");
    }
    let told = Losses::told(&machine.host);
    let told = (told.rows_full, told.rows_full_ns);
    assert_eq!(told, (lost, lost_ns), "seed {seed}");
}

#[test]
fn what_finds_no_room_is_counted_as_lost() {
    play("offcputime", assert_lost);
}

#[test]
fn lengths_and_states_are_as_asked() {
    play("offcputime", assert_as_asked);
}
