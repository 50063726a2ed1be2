//! Threads that stop being targets while they live: offcputime accounts for their time until then, and for the wait that it loses.

use fastrand::Rng;
use oracle::Kind;

use crate::asked::{Off, assert_as_asked, offs};
use crate::host::machine::{Life, Machine, Task, Thread, play};
use crate::host::{self, Host};
use crate::totals::{Losses, Totals};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    sums: Totals,
    lost: Losses,
}

impl Account {
    fn told(machine: &Machine) -> Self {
        Self {
            sums: Totals::told(&machine.host),
            lost: Losses::told(&machine.host),
        }
    }

    /// The last phase of a thread ends with its being a target.
    fn leave(&mut self, machine: &Machine, life: Life, end_ns: u64) {
        self.sums.lifetime_ns += end_ns - life.begin_ns;
        let open = offs(machine, life, end_ns).pop().filter(|off| !off.is_over);
        let Some(Off {
            blocked_ns,
            queued_ns,
            ..
        }) = open
        else {
            let events = machine.logs(life.begin_ns..=life.end_ns).before;
            let is_its = |kind: Kind| matches!(kind, Kind::Switch { next, .. } if next == life.tid);
            let came = events.iter().rfind(|event| is_its(event.kind));
            self.sums.oncpu_ns += end_ns - came.expect("it runs").ns;
            return;
        };
        // The sums have the blocked time before its wakeup already.
        if queued_ns > 0 {
            self.sums.runqueue_ns += queued_ns;
        } else {
            self.sums.blocked_ns += blocked_ns;
        }
        self.lost.unreported += 1;
        self.lost.unreported_ns += blocked_ns + queued_ns;
    }
}

/// All targets leave: in the window, or just after its end, which is where they are taken to have left.
fn assert_left(machine: &mut Machine, seed: u64) {
    let mut truth = Account::told(machine);
    machine.now += 1;
    let end_ns = machine.now;
    let living: Vec<(u32, Task)> = machine.alive().map(|it| (it.tid, it.task)).collect();
    for life in machine
        .lives()
        .filter(|life| living.iter().any(|(tid, _)| *tid == life.tid))
    {
        truth.leave(machine, life, end_ns);
    }
    if seed % 2 == 1 {
        machine.host.tell("host_end", (end_ns,));
        machine.now += 5_000;
    }
    machine.leave_to_user_space();
    for (_, task) in living {
        machine.host.tell("host_leave", (task,));
    }
    assert_eq!(Account::told(machine), truth, "seed {seed}");
}

/// No switch to a thread is hidden where threads tell that they leave the scheduler.
fn assert_on_exit(machine: &mut Machine, seed: u64) {
    machine.host.tell("host_walk_on_exit", ());
    machine.tells_exits = true;
    assert_as_asked(machine, seed);
}

#[test]
fn times_that_end_outside_the_scheduler_are_the_same() {
    play("offcputime", assert_on_exit);
}

#[test]
fn those_that_leave_are_accounted_for() {
    play("offcputime", assert_left);
}

/// It is nobody's loss that it leaves.
fn assert_leaves_unnoticed(machine: &Machine, thread: &Thread) {
    let before = Account::told(machine);
    machine.leave_to_user_space();
    machine.host.tell("host_leave", (thread.task,));
    assert_eq!(Account::told(machine), before, "thread {}", thread.tid);
}

/// Targets that have exited are accounted for; nothing outside the window counts.
#[test]
fn targets_that_leave_outside_the_window_or_after_their_exit_change_nothing() {
    let object = host::compile("offcputime");
    for seed in 0..20 {
        let mut machine = Machine::new(&object, seed, 1_000_000_000_000);
        machine.steps(200);
        for thread in machine.alive() {
            assert_leaves_unnoticed(&machine, thread);
        }
        let mut machine = Machine::new(&object, seed, 0);
        machine.see_dead = Some(assert_leaves_unnoticed);
        machine.steps(2_000);
        machine.now += 1;
        machine.host.tell("host_end", (machine.now,));
        let last = machine.last_tid;
        while machine.last_tid == last {
            machine.step();
        }
        let born = machine.alive().find(|thread| thread.tid > last);
        assert_leaves_unnoticed(&machine, born.expect("it is new"));
    }
}

/// `struct left_out_sums` of offcputime.
#[derive(Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct LeftOut {
    waits: u64,
    ns: u64,
    of_ns: u64,
}

impl LeftOut {
    fn told(host: &Host) -> Self {
        let [waits, ns, of_ns] = host.sums("left_out", &0_u32);
        Self { waits, ns, of_ns }
    }
}

/// A long wait counts for no more than 10 ms of all.
#[test]
fn short_waits_go_without_stack_and_are_counted() {
    let object = host::compile("offcputime");
    for seed in 0..100 {
        let (host, mut rng) = (Host::load(&object), Rng::with_seed(seed));
        let (mut truth, mut least_ns) = (LeftOut::default(), 0);
        for _ in 0..1_000 {
            if rng.u32(0..100) == 0 {
                least_ns = rng.choice([0, 1, 50_000, 20_000_000]).expect("some");
                host.write::<u64>("stacks_from_ns", least_ns);
            }
            let [short, long] = [rng.u64(0..100_000), rng.u64(0..1 << 30)];
            let ns = rng.choice([least_ns, short, long]).expect("some");
            let is_short = ns < least_ns;
            let has_gone = host.ask::<bool>("host_goes_without_stack", (rng.u32(0..4), ns));
            assert_eq!(has_gone, is_short, "seed {seed}, {ns}");
            truth.of_ns += if least_ns > 0 { ns.min(10_000_000) } else { 0 };
            truth.waits += u64::from(is_short);
            truth.ns += if is_short { ns } else { 0 };
        }
        assert_eq!(LeftOut::told(&host), truth, "seed {seed}");
    }
}
