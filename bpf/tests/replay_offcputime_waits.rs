//! All that offcputime says of a wait besides its length: who ended it, and which file it was for; and clocks that go backwards.

#[expect(dead_code, reason = "it has more for other tests of machines")]
mod host;
#[expect(dead_code, reason = "it has more for stacks")]
#[path = "host/taken_rows.rs"]
mod taken_rows;

use std::collections::HashMap;

use bpf::offcputime::types::offcputime_key;
use host::machine::{Machine, play};
use oracle::{Event, Kind};
use taken_rows::{Absence, absences, add, told};

/// The type of a thread's descriptor 0, by host/offcputime.c, which gives it.
fn file_type(machine: &Machine, tid: u32) -> u64 {
    machine.host.ask::<u32>("host_file_told", (tid,)).into()
}

fn is_kernel_thread(tid: u32) -> bool {
    tid % 4 == 3
}

/// Keys are thread, who woke it, whether it is the kernel's, the file's type.
type Rows = taken_rows::Rows<4>;

fn key(told: &offcputime_key) -> [u64; 4] {
    let is_kernel = told.call.syscall == -1;
    let file_type = told.call.file_type.into();
    [told.tid.into(), told.waker, is_kernel.into(), file_type]
}

fn truth(machine: &Machine) -> Rows {
    let mut rows = Rows::new();
    for Absence {
        tid,
        since_ns,
        end_ns,
        waker,
        ..
    } in absences(machine)
    {
        let is_kernel = is_kernel_thread(tid);
        let key = [
            u64::from(tid),
            waker.map_or(0, |waker| u64::from(waker) + 1),
            u64::from(is_kernel),
            if is_kernel {
                0
            } else {
                file_type(machine, tid)
            },
        ];
        add(&mut rows, key, [1, end_ns - since_ns]);
    }
    rows
}

#[test]
fn wakers_and_files_of_waits_are_the_machines() {
    let object = host::compile("offcputime");
    for seed in 0..40 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.host.tell("host_ask_whom_and_what", ());
        machine.tells_wakers = true;
        machine.steps(10_000);
        let (told, truth) = (told(&machine, key), truth(&machine));
        let first = told.iter().zip(&truth).find(|(one, other)| one != other);
        assert!(told == truth, "seed {seed}: {first:?}");
    }
}

/// A target's doing, and since when: this, being off its CPU, being on a queue.
#[derive(Clone, Copy)]
enum Phase {
    Running(u64),
    Queued(u64, u64, u64),
    Asleep(u64, u64),
}

struct Marks<'a> {
    machine: &'a Machine,
    begun: HashMap<u32, u64>,
    phases: HashMap<u32, Phase>,
}

impl Marks<'_> {
    /// Times that end with this event and began behind it.
    fn see(&mut self, event: &Event) -> usize {
        let now = event.ns;
        let ended: Vec<u64> = match event.kind {
            Kind::Wakeup { tid, .. } => match self.phase(tid) {
                Some(Phase::Asleep(since, off)) => {
                    self.phases.insert(tid, Phase::Queued(now, off, now));
                    vec![since]
                }
                _ => Vec::new(),
            },
            Kind::Switch {
                prev,
                next,
                runnable,
                ..
            } => {
                let mut ended = self.leaves(prev, now, runnable);
                ended.extend(self.comes(next, now));
                ended
            }
            _ => Vec::new(),
        };
        ended.into_iter().filter(|since| now < *since).count()
    }

    fn phase(&self, tid: u32) -> Option<Phase> {
        let begun = *self.begun.get(&tid)?;
        let first = Phase::Asleep(begun, begun);
        Some(self.phases.get(&tid).copied().unwrap_or(first))
    }

    fn leaves(&mut self, tid: u32, now: u64, runnable: bool) -> Vec<u64> {
        let Some(phase) = self.phase(tid) else {
            return Vec::new();
        };
        let next = match runnable {
            true => Phase::Queued(now, now, now),
            false => Phase::Asleep(now, now),
        };
        self.phases.insert(tid, next);
        let (Phase::Running(since) | Phase::Queued(since, ..) | Phase::Asleep(since, _)) = phase;
        let is_dead = self.machine.left[&(tid, now)].state & 0x80 > 0;
        let life = is_dead.then(|| self.begun[&tid]);
        [since].into_iter().chain(life).collect()
    }

    fn comes(&mut self, tid: u32, now: u64) -> Vec<u64> {
        let Some(phase) = self.phase(tid) else {
            return Vec::new();
        };
        self.phases.insert(tid, Phase::Running(now));
        match phase {
            Phase::Running(since) => vec![since],
            Phase::Asleep(since, off) => vec![since, off],
            Phase::Queued(since, off, queued) => vec![since, off, queued],
        }
    }
}

#[test]
fn clock_that_goes_backwards_is_told() {
    play("offcputime", |machine, seed| {
        machine.now -= 1_000_000_000;
        let back = machine.events.len();
        machine.steps(100);
        let lives = machine.lives().map(|life| (life.tid, life.begin_ns));
        let mut marks = Marks {
            begun: lives.collect(),
            machine,
            phases: HashMap::new(),
        };
        let (before, after) = machine.events.split_at(back);
        let early: usize = before.iter().map(|event| marks.see(event)).sum();
        let late: usize = after.iter().map(|event| marks.see(event)).sum();
        let [.., negative] = machine.host.read::<[u64; 6]>("losses");
        assert_eq!((early, negative), (0, late as u64), "seed {seed}");
    });
}
