//! A window that opens and closes amid events.

use std::ops::Range;

use fastrand::Rng;
use oracle::{Event, Kind, Logs};

use crate::host;
use crate::host::machine::{BEGIN_NS, Machine, State};

/// Plays a million events under a tool's programs, 10,000 for each seed. `begin` runs before the window opens, `end` just before
/// it closes, `check` some events later.
pub(crate) fn play_window(
    tool: &str,
    begin: impl Fn(&mut Machine),
    end: impl Fn(&mut Machine),
    check: impl Fn(&Machine, Range<u64>, u64),
) {
    let object = host::compile(tool);
    for seed in 0..100 {
        let mut rng = Rng::with_seed(seed);
        let wait_ns = rng.u64(1..2_000_000_000);
        let mut machine = Machine::new(&object, seed, wait_ns);
        begin(&mut machine);
        let told_ns = BEGIN_NS + rng.u64(0..=wait_ns);
        machine.step_past(BEGIN_NS + wait_ns, told_ns);
        machine.steps(8_000);
        end(&mut machine);
        let window = BEGIN_NS + wait_ns..machine.now + 1;
        machine.host.tell("host_end", (window.end,));
        // The first one that is too late.
        machine.now = window.end;
        machine.act();
        machine.steps(rng.u32(0..200));
        check(&machine, window, seed);
    }
}

impl Machine {
    /// Something happens at the very moment at which the window opens, of which the programs are told before.
    fn step_past(&mut self, opens_ns: u64, told_ns: u64) {
        self.opens(0);
        while self.now < opens_ns {
            self.pass();
            if self.now >= told_ns {
                self.opens(opens_ns);
            }
            if self.now < opens_ns {
                self.act();
            }
        }
        self.now = opens_ns;
        self.act();
    }

    fn opens(&self, ns: u64) {
        self.host.tell("host_opens", (ns,));
    }

    /// Programs that run next are user space's, now.
    pub(crate) fn leave_to_user_space(&self) {
        // SAFETY: its type; the idle task lives.
        unsafe { (self.calls.set)(self.now, 0, self.threads[0].task) };
    }

    /// Events from `begin_ns` on, after which every thread that waits for a CPU gets one, and every other one leaves its own.
    pub(crate) fn logs_to_the_end(&self, begin_ns: u64) -> Logs {
        let mut logs = self.logs(begin_ns..=self.now);
        let ends = self.threads.iter().filter_map(|thread| {
            let (prev, next) = match thread.state {
                State::Queued => (0, thread.tid),
                State::Running => (thread.tid, 0),
                State::Asleep => return None,
            };
            let kind = Kind::Switch {
                prev,
                next,
                runnable: false,
                interruptible: true,
            };
            Some(Event {
                ns: self.now + 1,
                cpu: 0,
                kind,
            })
        });
        let ends: Vec<Event> = ends.collect();
        logs.before.extend(&ends);
        logs.after.extend(&ends);
        logs
    }
}
