//! One thread that the guard looks at.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};

use super::class::{self, Class, Priority};
use crate::clock::clock_ns;
use crate::procs;

/// A raised thread that has not wanted a CPU for that many looks has its own class again.
const IDLE_LOOKS: u32 = 10;
/// And one that has, after that many, until it starves again: nobody is kept from a CPU for longer.
const MOST_LOOKS: u32 = 20;

/// The thread that goes before all others but the guard; 0: none does. Two of them could have both CPUs of a small machine.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// A thread, or a process of one.
#[derive(Debug)]
pub(super) struct Watched {
    tid: libc::pid_t,
    stat: File,
    clock: libc::clockid_t,
    /// As of the last look.
    wanted_cpu: bool,
    cpu_ns: u64,
    /// How long it has wanted a CPU and had none, ns.
    starved_ns: u64,
    raised: Option<Raised>,
}

#[derive(Debug)]
struct Raised {
    before: Class,
    looks: u32,
    idle_looks: u32,
}

impl Watched {
    /// `None` where its state cannot be read.
    pub(super) fn thread(tid: libc::pid_t) -> Option<Self> {
        const THREAD: libc::clockid_t = 4;
        Self::open(tid, &format!("/proc/self/task/{tid}/stat"), THREAD)
    }

    pub(super) fn process(pid: libc::pid_t) -> Option<Self> {
        Self::open(pid, &format!("/proc/{pid}/stat"), 0)
    }

    fn open(tid: libc::pid_t, stat: &str, kind: libc::clockid_t) -> Option<Self> {
        // CPUCLOCK_SCHED of include/linux/posix-timers.h; clock_getcpuclockid(3) does not do other threads.
        const SCHED: libc::clockid_t = 2;
        let clock = (!tid << 3) | SCHED | kind;
        Some(Self {
            tid,
            stat: File::open(stat).ok()?,
            clock,
            wanted_cpu: false,
            cpu_ns: clock_ns(clock),
            starved_ns: 0,
            raised: None,
        })
    }

    pub(super) fn is(&self, tid: libc::pid_t) -> bool {
        self.tid == tid
    }

    /// Looks whether the thread got the CPU that it wanted in the last `elapsed_ns`, and raises it if it did not. Gives how long
    /// it had wanted one in vain when it got it, ns; 0: it did not wait, or still does.
    pub(super) fn look(&mut self, elapsed_ns: u64) -> u64 {
        let wants_cpu = self.wants_cpu();
        let cpu_ns = clock_ns(self.clock);
        let used_ns = cpu_ns.saturating_sub(self.cpu_ns);
        let wanted_all_along = wants_cpu && self.wanted_cpu;
        (self.wanted_cpu, self.cpu_ns) = (wants_cpu, cpu_ns);
        let is_starved = wanted_all_along && used_ns < elapsed_ns / 2;
        let mut waited_ns = 0;
        if wanted_all_along && used_ns < elapsed_ns / 100 {
            self.starved_ns += elapsed_ns;
        } else {
            waited_ns = std::mem::take(&mut self.starved_ns);
        }
        if let Some(raised) = &mut self.raised {
            raised.looks += 1;
            raised.idle_looks = if wants_cpu { 0 } else { raised.idle_looks + 1 };
            if raised.idle_looks >= IDLE_LOOKS || raised.looks >= MOST_LOOKS {
                self.lower();
            }
        } else if is_starved {
            self.raise();
        }
        waited_ns
    }

    /// Puts it into a class that gets a CPU, where that is allowed. A class of the user's own choice stays.
    pub(super) fn raise(&mut self) {
        let before = class::class_of(self.tid).ok();
        let Some(before) = before.filter(Class::can_starve) else {
            return;
        };
        let raised = self
            .raise_first()
            .or_else(|_| class::set_class(self.tid, Class::real_time(Priority::Last)));
        self.raised = raised.is_ok().then_some(Raised {
            before,
            looks: 0,
            idle_looks: 0,
        });
    }

    /// Before all others, if nobody else is.
    fn raise_first(&self) -> io::Result<()> {
        let is_first = FIRST.compare_exchange(0, self.tid, Ordering::AcqRel, Ordering::Acquire);
        is_first.map_err(|_| io::ErrorKind::ResourceBusy)?;
        class::set_class(self.tid, Class::real_time(Priority::First))
            .inspect_err(|_| self.step_back())
    }

    /// Its own class again.
    pub(super) fn lower(&mut self) {
        if let Some(raised) = self.raised.take() {
            // It may have ended.
            let _ = class::set_class(self.tid, raised.before);
            self.step_back();
        }
    }

    /// Another one may be the first.
    fn step_back(&self) {
        let _ = FIRST.compare_exchange(self.tid, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether it runs or could.
    fn wants_cpu(&self) -> bool {
        let mut text = [0; 128];
        let length = self.stat.read_at(&mut text, 0).unwrap_or(0);
        procs::is_runnable(&text[..length])
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.step_back();
    }
}

#[cfg(test)]
mod tests {
    use super::super::own_tid;
    use super::*;

    #[test]
    fn running_thread_is_not_starved() {
        let mut own = Watched::thread(own_tid()).expect("this thread");
        own.look(1);
        let began_ns = own.cpu_ns;
        while clock_ns(own.clock) < began_ns + 20_000_000 {}
        assert_eq!(own.look(20_000_000), 0);
        assert!(own.raised.is_none() && own.wanted_cpu && own.starved_ns == 0);
    }

    #[test]
    fn thread_without_a_cpu_is_starved_until_it_has_one() {
        let mut own = Watched::thread(own_tid()).expect("this thread");
        own.look(1);
        // As if a hundred seconds had passed since: it runs, and has used next to nothing of them.
        own.look(100_000_000_000);
        own.lower();
        assert_eq!(own.starved_ns, 100_000_000_000);
        let began_ns = own.cpu_ns;
        while clock_ns(own.clock) < began_ns + 20_000_000 {}
        assert_eq!(own.look(20_000_000), 100_000_000_000);
    }
}
