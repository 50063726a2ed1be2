//! A machine on whose CPUs events fire while threads of all kinds run, and what a profile of it is.

use std::collections::BTreeMap;
use std::ptr;

use bpf::profile::types::{profile_config, profile_key, profile_value, target_config};
use fastrand::Rng;

use crate::host::machine::Task;
use crate::host::{self, Host};
use crate::profile_asked::{self, TOOL};

const CPUS: u32 = 8;
const KTHREAD: u32 = 0x0020_0000;
const NO_EXEC: u32 = 0x40;
const KERNEL_STACK: u64 = 1;
const SAVED_STACK: u64 = 2;

struct Thread {
    task: Task,
    tid: u32,
    tgid: u32,
    is_kernel: bool,
    /// A process that the tool has forked to read files.
    is_helper: bool,
    comm: [u8; 16],
}

/// Process, thread, name and stacks; then samples and weight.
type Rows = BTreeMap<[u64; 6], [u64; 2]>;

pub(crate) struct Samples {
    pub(crate) host: Host,
    rng: Rng,
    now: u64,
    asked: profile_config,
    targets: target_config,
    keeps_moments: bool,
    threads: Vec<Thread>,
    window: (u64, u64),
    lacks: (bool, bool),
    is_full: bool,
    rows: Rows,
    /// By CPU: events, idle ones, others', samples.
    sums: Vec<[u64; 4]>,
    since_sample: Vec<u64>,
    /// Rows that found no room, scratches in use, bad weights, moments that found no room.
    losses: [u64; 4],
    moment: Option<[u64; 8]>,
}

impl Samples {
    pub(crate) fn new(host: Host, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let asked = profile_asked::config(&mut rng);
        let targets = profile_asked::targets(&mut rng);
        let keeps_moments = rng.bool();
        host.set("config", &asked);
        host.set("targets", &targets);
        host.set("keeps_moments", &u32::from(keeps_moments));
        let mut samples = Self {
            host,
            rng,
            now: 1_000,
            asked,
            targets,
            keeps_moments,
            threads: Vec::new(),
            window: (0, 0),
            lacks: (false, false),
            is_full: false,
            rows: Rows::new(),
            sums: vec![[0; 4]; CPUS as usize],
            since_sample: vec![0; CPUS as usize],
            losses: [0; 4],
            moment: None,
        };
        samples.make_threads();
        samples
    }

    /// The idle task, the tool and those that it has forked, one like them that is older, kernel threads, processes.
    fn make_threads(&mut self) {
        self.thread(0, KTHREAD, 0, None, None);
        self.thread(TOOL, 0, 400, None, None);
        self.thread(TOOL + 1, 0, 410, Some(1), None);
        self.thread(20, NO_EXEC, 500, None, Some(1));
        self.thread(21, NO_EXEC, 499, None, Some(1));
        self.thread(22, 0, 600, None, Some(1));
        self.thread(23, NO_EXEC, 600, None, Some(5));
        self.thread(30, KTHREAD, 1, None, None);
        self.thread(31, KTHREAD, 2, None, None);
        for process in 0..4 {
            let leader = self.threads.len();
            let tid = 100 + 10 * process;
            self.thread(tid, 0, 50, None, None);
            self.thread(tid + 1, 0, 60, Some(leader), None);
        }
        self.threads[3].is_helper = true;
    }

    fn thread(
        &mut self,
        tid: u32,
        flags: u32,
        start: u64,
        leader: Option<usize>,
        parent: Option<usize>,
    ) {
        let task = |at: Option<usize>| at.map_or(ptr::null_mut(), |at| self.threads[at].task);
        let mut comm = [0; 16];
        comm.fill_with(|| self.rng.lowercase() as u8);
        comm[15] = 0;
        let made = self.host.ask::<Task>(
            "host_thread",
            (tid, flags, start, task(leader), task(parent), comm.as_ptr()),
        );
        self.threads.push(Thread {
            task: made,
            tid,
            tgid: leader.map_or(tid, |at| self.threads[at].tid),
            is_kernel: flags & KTHREAD > 0,
            is_helper: false,
            comm,
        });
    }

    pub(crate) fn step(&mut self, step: u32) {
        self.pass();
        if step == 500 || step > 500 && self.rng.u32(0..40) == 0 {
            self.opens_or_ends();
        }
        if step == 2_500 && self.rng.u32(0..3) == 0 {
            self.host.tell("host_fill", ());
            self.is_full = true;
        }
        self.acts(step);
    }

    fn pass(&mut self) {
        self.now += self.rng.u64(1..1_000);
    }

    /// A run that has one window, and goes on for a while. `end_ns`: by the clock, 0 if the run is told to end. Gives when it did.
    pub(crate) fn play_one_window(&mut self, end_ns: u64) -> u64 {
        let mut told_ns = (0, 0);
        for step in 0..4_000 {
            self.pass();
            match step {
                500 => told_ns = (self.now, end_ns),
                3_500 => told_ns.1 = self.now,
                _ => {}
            }
            if told_ns != self.window {
                self.opens(told_ns);
            }
            self.acts(step);
        }
        told_ns.1
    }

    fn acts(&mut self, step: u32) {
        if self.rng.u32(0..50) == 0 {
            self.lacks = (self.rng.u32(0..4) == 0, self.rng.u32(0..4) == 0);
            self.host.tell("host_lack", (self.lacks.0, self.lacks.1));
        }
        let (cpu, at) = (self.rng.u32(0..CPUS), self.rng.usize(0..self.threads.len()));
        self.host
            .tell("host_set", (self.now, cpu, self.threads[at].task));
        match self.rng.u32(0..3) {
            0 => self.ticks(cpu, at),
            1 => self.reaches_tracepoint(cpu, at),
            _ => self.reaches_probe(cpu, at),
        }
        self.assert_moment(step);
    }

    /// A window begins now, or the one that has begun will end.
    fn opens_or_ends(&mut self) {
        match self.window {
            (start_ns, 0) if start_ns > 0 => {
                let left_ns = self.rng.u64(0..20_000);
                self.opens((start_ns, self.now + left_ns));
            }
            _ => self.opens((self.now, 0)),
        }
    }

    fn opens(&mut self, window: (u64, u64)) {
        self.window = window;
        self.host.tell("host_window", (window.0, window.1));
    }

    /// Addresses in the kernel are negative.
    fn ticks(&mut self, cpu: u32, at: usize) {
        let is_inside = self.rng.bool();
        let base = self.rng.u64(1..1 << 40) | if is_inside { 1 << 63 } else { 0 };
        let place = self.host.ask::<u64>("host_tick", (base,));
        self.fires(cpu, at, if is_inside { SAVED_STACK } else { place }, None);
    }

    fn reaches_tracepoint(&mut self, cpu: u32, at: usize) {
        let mut record = [0_u8; 16];
        self.rng.fill(&mut record);
        // Half of them have small numbers, some of these 0.
        if self.rng.bool() {
            record.fill(0);
            record[self.asked.weight_offset as usize] = self.rng.u8(0..3);
        }
        self.host.tell("host_tracepoint", (record.as_ptr(),));
        let (size, offset) = (
            self.asked.weight_size as usize,
            self.asked.weight_offset as usize,
        );
        let field = &record[offset..offset + size];
        let is_negative = field
            .last()
            .is_some_and(|top| self.asked.weight_signed > 0 && top & 0x80 > 0);
        let number = field
            .iter()
            .rev()
            .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        let weight = match size {
            0 => 1,
            _ if is_negative => 0,
            _ => number,
        };
        self.fires(cpu, at, SAVED_STACK, Some(weight));
    }

    fn reaches_probe(&mut self, cpu: u32, at: usize) {
        let mut registers = [0; 10];
        registers.fill_with(|| self.rng.u64(0..9));
        registers[7] += 1;
        self.host
            .tell("host_probe", (registers.as_ptr(), self.rng.bool()));
        let weight = match self.asked.weight_arg as usize {
            0 => 1,
            argument => registers[argument],
        };
        let place = registers[7] * 31 * 31 + registers[8] * 31 + registers[9];
        self.fires(cpu, at, place, Some(weight));
    }

    fn is_wanted(&self, thread: &Thread) -> bool {
        if thread.tid == 0 {
            return self.asked.idle > 0;
        }
        let is_own = thread.tgid == TOOL || thread.is_helper;
        let is_kind = match self.targets.mode.0 {
            _ if self.asked.everything > 0 => true,
            0 => true,
            1 => !thread.is_kernel,
            _ => thread.is_kernel,
        };
        is_kind && !is_own
    }

    /// `weight`: of an event that counts every so many times; ticks are that far apart already.
    fn fires(&mut self, cpu: u32, at: usize, place: u64, weight: Option<u64>) {
        let (start_ns, end_ns) = self.window;
        if start_ns == 0 || (end_ns > 0 && self.now >= end_ns) {
            return;
        }
        let (thread, cpu_at) = (&self.threads[at], cpu as usize);
        let is_wanted = self.is_wanted(thread);
        let sums = &mut self.sums[cpu_at];
        sums[0] += 1;
        sums[1] += u64::from(thread.tid == 0);
        sums[2] += u64::from(thread.tid != 0 && !is_wanted);
        if !is_wanted {
            return;
        }
        if let Some(weight) = weight {
            self.since_sample[cpu_at] += 1;
            if self.since_sample[cpu_at] < self.asked.every {
                return;
            }
            self.since_sample[cpu_at] = 0;
            self.losses[2] += u64::from(weight == 0);
        }
        if self.lacks.0 {
            self.losses[1] += 1;
            return;
        }
        sums[3] += 1;
        let weight = weight.map_or(1, |weight| weight.wrapping_mul(self.asked.every));
        self.is_sampled(cpu, at, place, weight);
    }

    fn is_sampled(&mut self, cpu: u32, at: usize, place: u64, weight: u64) {
        let thread = &self.threads[at];
        let [first, last] = [&thread.comm[..8], &thread.comm[8..]]
            .map(|half| u64::from_ne_bytes(half.try_into().expect("8 bytes")));
        let tid = if self.asked.by_thread > 0 {
            thread.tid
        } else {
            0
        };
        let key = [
            u64::from(thread.tgid),
            u64::from(tid),
            first,
            last,
            if self.asked.stacks.no_kernel > 0 {
                0
            } else {
                KERNEL_STACK
            },
            if self.asked.stacks.no_user > 0 {
                0
            } else {
                place
            },
        ];
        if self.keeps_moments && self.lacks.1 {
            self.losses[3] += 1;
        } else if self.keeps_moments {
            let thread = u64::from(thread.tid);
            self.moment = Some([
                self.now,
                weight,
                u64::from(cpu),
                thread,
                key[0],
                key[1],
                key[4],
                key[5],
            ]);
        }
        if self.is_full && !self.rows.contains_key(&key) {
            self.losses[0] += 1;
            return;
        }
        let row = self.rows.entry(key).or_default();
        row[0] += 1;
        row[1] = row[1].wrapping_add(weight);
    }

    fn assert_moment(&mut self, step: u32) {
        let mut told = [0; 8];
        let is_kept = self
            .host
            .ask::<bool>("host_take_moment", (told.as_mut_ptr(),));
        assert_eq!(
            is_kept.then_some(told),
            self.moment.take(),
            "step {step}, {:?}",
            self.asked
        );
    }

    pub(crate) fn assert_the_same(&self, seed: u64) {
        let what = format!("seed {seed}, {:?}, {:?}", self.asked, self.targets);
        let taken = self.host.take("counts", |_| true).into_iter();
        let rows: Rows = taken
            .map(|(key, sum): (profile_key, profile_value)| {
                let (first, last) = key.comm.split_at(8);
                let [first, last] =
                    [first, last].map(|half| u64::from_ne_bytes(half.try_into().expect("a half")));
                let task = [u64::from(key.tgid), u64::from(key.tid)];
                let place = [first, last, key.kernel_stack, key.user_stack];
                let key = [task[0], task[1], place[0], place[1], place[2], place[3]];
                (key, [sum.samples, sum.weight])
            })
            .collect();
        assert!(
            rows == self.rows,
            "{what}: {} rows, {}",
            rows.len(),
            self.rows.len()
        );
        // Samples since the last one that counted come behind.
        let sums = self.host.all::<u32, [[u64; 5]; host::CPUS]>("totals");
        let sums = sums.first().map_or([[0; 5]; host::CPUS], |(_, sums)| *sums);
        for cpu in 0..CPUS {
            assert_eq!(
                sums[cpu as usize][..4],
                self.sums[cpu as usize],
                "{what}, CPU {cpu}"
            );
        }
        let [full, busy, bad_weight] = self.host.read("losses");
        let told = [
            full,
            busy,
            bad_weight,
            self.host.read::<u64>("moments_full"),
        ];
        let claimed = self.host.read::<i32>("host_claimed");
        assert_eq!((told, claimed), (self.losses, 0), "{what}");
    }
}
