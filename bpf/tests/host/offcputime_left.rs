//! Threads that stop being targets while they live: offcputime accounts for their time until then, and for the wait that it loses.

use oracle::Kind;

use crate::asked::{Off, assert_as_asked, offs};
use crate::host::machine::{Life, Machine, Task, play};

/// `struct host_account` of host/offcputime.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Account {
    oncpu_ns: u64,
    runqueue_ns: u64,
    blocked_ns: u64,
    unseen_ns: u64,
    lifetime_ns: u64,
    unreported: u64,
    unreported_ns: u64,
}

impl Account {
    fn told(machine: &Machine) -> Self {
        let mut account = Self::default();
        // SAFETY: the type of host/offcputime.c.
        unsafe {
            type Told = unsafe extern "C" fn(*mut Account);
            machine.host.function::<Told>("host_account")(&raw mut account);
        }
        account
    }

    /// The last phase of a thread ends with its being a target.
    fn leave(&mut self, machine: &Machine, life: Life, end_ns: u64) {
        self.lifetime_ns += end_ns - life.begin_ns;
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
            self.oncpu_ns += end_ns - came.expect("it runs").ns;
            return;
        };
        // The sums have the blocked time before its wakeup already.
        if queued_ns > 0 {
            self.runqueue_ns += queued_ns;
        } else {
            self.blocked_ns += blocked_ns;
        }
        self.unreported += 1;
        self.unreported_ns += blocked_ns + queued_ns;
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
        // SAFETY: the type of host/offcputime.c.
        unsafe {
            machine
                .host
                .function::<unsafe extern "C" fn(u64)>("host_end")(end_ns)
        };
        machine.now += 5_000;
    }
    machine.leave_to_user_space();
    for (_, task) in living {
        // SAFETY: the type of host/offcputime.c; the task lives.
        unsafe {
            machine
                .host
                .function::<unsafe extern "C" fn(Task)>("host_leave")(task)
        };
    }
    assert_eq!(Account::told(machine), truth, "seed {seed}");
}

/// No switch to a thread is hidden where threads tell that they leave the scheduler.
fn assert_on_exit(machine: &mut Machine, seed: u64) {
    // SAFETY: the types of host/offcputime.c.
    unsafe {
        machine
            .host
            .function::<unsafe extern "C" fn()>("host_walk_on_exit")();
        type Leave = unsafe extern "C" fn(bool);
        machine.leave_scheduler = Some(*machine.host.function::<Leave>("host_leave_scheduler"));
    }
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
