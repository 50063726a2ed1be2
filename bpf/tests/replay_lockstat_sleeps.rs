//! lockstat's waits that last as long as their thread sleeps, on random orders of events of which some are hidden, against what happened.

#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;

use std::ffi::c_void;

use fastrand::Rng;

use host::Host;
use host::leaving::INTERRUPTIBLE;

/// Sums of a half: waits, their ns, those on run queues, open ones; then ends that nobody saw, of the whole run.
type Sums = [u64; 5];

struct World {
    host: Host,
    rng: Rng,
    now: u64,
    idle: *mut c_void,
    waiter: *mut c_void,
    giver: *mut c_void,
}

impl World {
    fn new(host: Host, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let now = rng.u64(1..1 << 40);
        host.tell("host_begin", (now, true));
        let [idle, waiter, giver] = [0_u32, 1, 2].map(|tid| {
            let task: *mut c_void = host.ask("host_thread", (tid, tid));
            // Each is found on a CPU.
            host.tell("host_state", (task, false, true));
            host.tell("host_seed", (task,));
            task
        });
        Self {
            host,
            rng,
            now,
            idle,
            waiter,
            giver,
        }
    }

    /// Some time later; `current` has the CPU.
    fn pass(&mut self, current: *mut c_void) {
        self.now += self.rng.u64(0..5_000);
        self.host.tell("host_set", (self.now, 0_u32, current));
    }

    fn leave(&mut self, state: u32) {
        self.pass(self.waiter);
        self.host.tell("host_leaves", (self.waiter, state == 0));
        let tasks = [self.waiter, self.idle];
        self.host.switch(state == 0, tasks, Some(state));
    }

    fn arrive(&mut self) {
        self.pass(self.idle);
        self.host.switch(false, [self.idle, self.waiter], Some(0));
    }

    /// One sleep, of which its wakeup and its end may be hidden, and the thread's way to the next one.
    fn sleep(&mut self, sums: &mut Sums) {
        let (is_woken, is_seen) = (self.rng.u32(0..4) > 0, self.rng.u32(0..4) > 0);
        self.leave(INTERRUPTIBLE);
        let begin_ns = self.now;
        let mut woken_ns = None;
        if is_woken {
            self.pass(self.giver);
            self.host.run("sched_waking", &[self.waiter as u64]);
            woken_ns = Some(self.now);
        }
        if is_seen {
            self.arrive();
            sums[0] += 1;
            sums[1] += self.now - begin_ns;
            sums[2] += woken_ns.map_or(0, |ns| self.now - ns);
            return;
        }
        // The wait was over when it was woken.
        sums[4] += 1;
        if let Some(ns) = woken_ns {
            sums[0] += 1;
            sums[1] += ns - begin_ns;
        }
        if self.rng.bool() {
            self.leave(0);
            self.arrive();
        }
    }

    /// An interval ends while it sleeps.
    fn turn(&mut self, sums: &mut Sums, seed: u64) {
        self.leave(INTERRUPTIBLE);
        let begin_ns = self.now;
        self.pass(self.idle);
        let edge_ns = self.now;
        let half = self.host.ask::<u32>("host_turn", (edge_ns, false));
        self.pass(self.idle);
        self.host.tell("host_close", (self.waiter,));
        sums[0] += 1;
        sums[1] += edge_ns - begin_ns;
        sums[3] += 1;
        let found = self.host.told::<Sums>("host_sleeps", (half,));
        assert_eq!(found, *sums, "seed {seed}");
        self.arrive();
        *sums = [0, self.now - edge_ns, 0, 0, sums[4]];
    }
}

#[test]
fn sleeps_with_hidden_ends_are_counted_or_said_to_be_lost() {
    let object = host::compile("lockstat_sleeps");
    for seed in 0..100 {
        let mut world = World::new(Host::load(&object), seed);
        let mut sums = Sums::default();
        // Once for each half: nobody empties them.
        for _ in 0..2 {
            for _ in 0..1_000 {
                world.sleep(&mut sums);
            }
            world.turn(&mut sums, seed);
        }
    }
}
