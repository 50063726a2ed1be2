//! Edges amid events, for the replay of pressure.

use crate::machine::Machine;

const INTERVALS: usize = 6;

impl Machine {
    pub(crate) fn play(&mut self) {
        self.steps(200);
        self.turn();
        // Locks are rows of a table, too.
        let is_full = !self.hash_locks && self.rng.bool();
        for interval in 0..INTERVALS {
            self.steps(800);
            if is_full && interval == INTERVALS - 1 {
                self.is_full = true;
                self.host.tell("host_fill", ());
            }
            self.steps(200);
            self.turn();
        }
        self.edge();
        self.visit_all(0);
        self.take_stacks();
        self.assert_truth();
    }

    fn edge(&mut self) {
        self.previous_edge_ns = self.edge_ns;
        self.edge_ns = self.now;
        self.half = 1 - self.half;
        self.host.tell(
            "host_edge",
            (self.previous_edge_ns, self.edge_ns, self.half),
        );
    }

    fn visit_all(&mut self, most_steps: u32) {
        let mut unvisited: Vec<usize> = (0..self.threads.len()).collect();
        self.rng.shuffle(&mut unvisited);
        for at in unvisited {
            if !self.threads[at].is_gone {
                self.is_visited(at);
            }
            self.steps(most_steps);
        }
    }

    /// An interval ends; threads go on meanwhile.
    fn turn(&mut self) {
        self.edge();
        self.visit_all(2);
        self.take_stacks();
    }

    fn steps(&mut self, most: u32) {
        for _ in 0..self.rng.u32(most / 2..=most) {
            let ns = match self.rng.u32(0..100) {
                0 => self.rng.u64(1_000_000..3_000_000),
                1..10 => self.rng.u64(0..2),
                _ => self.rng.u64(1..20_000),
            };
            self.passes(ns);
            if !self.is_clean {
                self.lacks_something();
            }
            self.step();
        }
    }
}
