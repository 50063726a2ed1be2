//! Timing waits one by one, and the helper threads that end them.

use serde_json::{Map, Value};
use usekit_workloads::account::Account;
use usekit_workloads::clock;
use usekit_workloads::lateness::late_ns;
use usekit_workloads::stage::Stage;

/// How often and how long one kind waits.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: &'static str,
    pub(crate) waits: u64,
    pub(crate) period_ns: u64,
}

impl Plan {
    /// Adds the measured thread `w-KIND`: `prepare` returns the operation that waits, given its number.
    pub(crate) fn waiter<O>(self, stage: &mut Stage, prepare: impl FnOnce() -> O + Send + 'static)
    where
        O: FnMut(u64) + 'static,
    {
        stage.spawn(&format!("w-{}", self.kind), move || {
            let operation = prepare();
            move || Some(self.measure(operation))
        });
    }

    /// Adds the helper `h-KIND` that ends wait number `i` at `(i + 1)` periods after the start.
    pub(crate) fn partner<T>(self, stage: &mut Stage, prepare: impl FnOnce() -> T + Send + 'static)
    where
        T: FnMut(u64) + 'static,
    {
        stage.spawn(&format!("h-{}", self.kind), move || {
            let mut tick = prepare();
            move || {
                let start_ns = clock::mono_ns();
                for i in 0..self.waits {
                    clock::sleep_until(start_ns + (i + 1) * self.period_ns);
                    tick(i);
                }
                None
            }
        });
    }

    fn measure(self, mut operation: impl FnMut(u64)) -> Map<String, Value> {
        let bias_ns = Stopwatch::bias_ns();
        let (mut wait_ns, mut slept, mut majflt) = (0, 0, 0);
        let mut off_ns = Vec::new();
        let account = Account::open();
        for i in 0..self.waits {
            let before = usage();
            let watch = Stopwatch::start();
            operation(i);
            let (wall, off) = watch.stop();
            let after = usage();
            wait_ns += wall;
            off_ns.push(off.saturating_sub(bias_ns));
            slept += u64::from(after.ru_nvcsw > before.ru_nvcsw);
            majflt += after.ru_majflt - before.ru_majflt;
        }
        let mut fields = account.close();
        fields.insert("kind".into(), self.kind.into());
        fields.insert("waits".into(), self.waits.into());
        fields.insert("slept".into(), slept.into());
        fields.insert("wait_ns".into(), wait_ns.into());
        fields.insert("off_ns".into(), off_ns.iter().sum::<u64>().into());
        fields.insert("late_ns".into(), late_ns(off_ns).into());
        fields.insert("majflt".into(), majflt.into());
        fields
    }
}

/// Wall time and time off the CPU of one operation.
struct Stopwatch {
    mono_ns: u64,
    cpu_ns: u64,
}

impl Stopwatch {
    fn start() -> Self {
        let mono_ns = clock::mono_ns();
        Self {
            mono_ns,
            cpu_ns: clock::thread_cpu_ns(),
        }
    }

    fn stop(self) -> (u64, u64) {
        let cpu_ns = clock::thread_cpu_ns() - self.cpu_ns;
        let wall_ns = clock::mono_ns() - self.mono_ns;
        (wall_ns, wall_ns.saturating_sub(cpu_ns))
    }

    /// The time off the CPU that it shows for nothing: its own, half of it outside the CPU clock.
    fn bias_ns() -> u64 {
        let mut seen: Vec<u64> = (0..101).map(|_| Self::start().stop().1).collect();
        seen.sort_unstable();
        seen[seen.len() / 2]
    }
}

fn usage() -> libc::rusage {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    }
}
