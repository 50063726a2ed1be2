//! When to stop: the probes' share of what the target may spend.

use std::collections::{BTreeSet, VecDeque};

use profile::units;

/// Judged over the last so many ns: long enough that a burst is not everything, short enough to be done within a second.
const SPAN_NS: u64 = 200_000_000;

/// Why the probes were taken away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stopped {
    /// Since the beginning.
    pub(crate) after_ns: u64,
    /// Of the target's time, in per cent.
    pub(crate) share: f64,
    /// Traps a second.
    pub(crate) rate: u64,
}

impl Stopped {
    pub(crate) fn describe(&self, limit: f64) -> String {
        format!(
            "probes taken away after {}: {} traps/s took {:.0}% of the target's time, and {limit}% is the limit (--hold-limit)",
            units::duration(self.after_ns),
            units::count(self.rate),
            self.share,
        )
    }
}

#[derive(Clone, Copy)]
struct Observation {
    at_ns: u64,
    traps: u64,
    cpu_ns: u64,
}

/// Watches the rate of traps.
pub(crate) struct Guard {
    limit: f64,
    trap_ns: u64,
    seen: VecDeque<Observation>,
}

impl Guard {
    /// `limit`: per cent; `trap_ns`: what one trap costs.
    pub(crate) fn new(limit: f64, trap_ns: u64) -> Self {
        let start = Observation {
            at_ns: 0,
            traps: 0,
            cpu_ns: 0,
        };
        Self {
            limit,
            trap_ns,
            seen: VecDeque::from([start]),
        }
    }

    /// Totals since the beginning. A target that sleeps most of the time may have its share of one whole CPU: traps delay it
    /// no more than that, however few they are among its own work.
    pub(crate) fn observe(&mut self, at_ns: u64, traps: u64, cpu_ns: u64) -> Option<Stopped> {
        let now = Observation {
            at_ns,
            traps,
            cpu_ns,
        };
        self.seen.push_back(now);
        while self.seen.len() > 2 && at_ns - self.seen[1].at_ns >= SPAN_NS {
            self.seen.pop_front();
        }
        let before = self.seen[0];
        let elapsed_ns = at_ns - before.at_ns;
        if elapsed_ns < SPAN_NS {
            return None;
        }
        let traps = traps - before.traps;
        let budget_ns = elapsed_ns.max(cpu_ns.saturating_sub(before.cpu_ns));
        let share = 100.0 * (traps * self.trap_ns) as f64 / budget_ns as f64;
        let rate = u128::from(traps) * 1_000_000_000 / u128::from(elapsed_ns);
        (share > self.limit).then(|| Stopped {
            after_ns: at_ns,
            share: share.min(100.0),
            rate: u64::try_from(rate).unwrap_or(u64::MAX),
        })
    }
}

/// CPU time that processes took since a beginning; of one that has gone, what it had when it was last seen.
pub(crate) struct Spent(Vec<Clock>);

struct Clock {
    pid: u32,
    start_ns: u64,
    last_ns: u64,
}

impl Spent {
    /// From now on.
    pub(crate) fn since_now(pids: &[u32]) -> Self {
        Self::since(pids, process_cpu_ns)
    }

    fn since(pids: &[u32], read: impl Fn(u32) -> Option<u64>) -> Self {
        let pids: BTreeSet<u32> = pids.iter().copied().collect();
        let clock = |pid| {
            let start_ns = read(pid)?;
            Some(Clock {
                pid,
                start_ns,
                last_ns: start_ns,
            })
        };
        Self(pids.into_iter().filter_map(clock).collect())
    }

    /// Reads the clocks; whether a process is left.
    pub(crate) fn look(&mut self) -> bool {
        self.look_by(process_cpu_ns)
    }

    fn look_by(&mut self, read: impl Fn(u32) -> Option<u64>) -> bool {
        let mut is_left = false;
        for clock in &mut self.0 {
            if let Some(now_ns) = read(clock.pid) {
                clock.last_ns = clock.last_ns.max(now_ns);
                is_left = true;
            }
        }
        is_left
    }

    /// As of the last look, ns.
    pub(crate) fn ns(&self) -> u64 {
        let clocks = self.0.iter();
        clocks.map(|clock| clock.last_ns - clock.start_ns).sum()
    }
}

fn process_cpu_ns(pid: u32) -> Option<u64> {
    // include/linux/posix-timers.h: a process's clock is its inverted ID, three bits up; 2 is CPUCLOCK_SCHED.
    let clock = (!libc::clockid_t::try_from(pid).ok()?).checked_mul(8)? | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, ns) = (time.tv_sec, time.tv_nsec);
    (status == 0).then_some(u64::try_from(seconds).ok()? * 1_000_000_000 + u64::try_from(ns).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_tight_loop_is_released_after_one_span() {
        let mut guard = Guard::new(5.0, 10_000);
        // 100 % of a CPU in traps.
        assert_eq!(guard.observe(50 * MS, 5_000, 50 * MS), None);
        assert_eq!(guard.observe(199 * MS, 19_900, 199 * MS), None);
        let stopped = guard.observe(250 * MS, 25_000, 250 * MS).unwrap();
        assert_eq!(
            (stopped.after_ns, stopped.rate, stopped.share.round()),
            (250 * MS, 100_000, 100.0)
        );
    }

    #[test]
    fn few_traps_are_no_harm_even_to_a_sleeper() {
        let mut guard = Guard::new(5.0, 10_000);
        for step in 1..100 {
            // 1,000 traps a second: 1 % of a CPU, and most of what the target does.
            let at = step * 50 * MS;
            assert_eq!(guard.observe(at, step * 50, step * MS / 2), None);
        }
        // Of 8 CPUs that it uses 5 % are 0.4.
        let mut guard = Guard::new(5.0, 10_000);
        assert_eq!(guard.observe(1_000 * MS, 39_000, 8_000 * MS), None);
        assert!(guard.observe(2_000 * MS, 100_000, 16_000 * MS).is_some());
    }

    #[test]
    fn a_late_storm_is_not_diluted_by_the_peace_before() {
        let mut guard = Guard::new(5.0, 10_000);
        for step in 1..2_000 {
            assert_eq!(guard.observe(step * 50 * MS, 0, step * 50 * MS), None);
        }
        let at = 2_000 * 50 * MS;
        // 50 ms of storm in a span of 200 ms.
        assert!(guard.observe(at, 5_000, at).is_some());
    }

    #[test]
    fn own_cpu_time_grows() {
        let mut own = Spent::since_now(&[std::process::id()]);
        let mut x = 0_u64;
        while own.look() && own.ns() < MS {
            x = std::hint::black_box(x + 1);
        }
        assert!(own.look() && own.ns() >= MS);
        assert!(!Spent::since_now(&[u32::MAX >> 1]).look());
    }

    #[test]
    fn a_process_that_has_gone_keeps_its_time_and_takes_nothing_from_others() {
        // The first one had ten minutes before, of which nothing counts.
        let mut spent = Spent::since(&[1, 2, 2], |pid| {
            Some(if pid == 1 { 600_000 * MS } else { 0 })
        });
        assert_eq!(spent.ns(), 0);
        assert!(spent.look_by(|pid| Some(if pid == 1 { 600_100 * MS } else { 50 * MS })));
        assert_eq!(spent.ns(), 150 * MS);
        assert!(spent.look_by(|pid| (pid == 2).then_some(80 * MS)));
        assert_eq!(spent.ns(), 180 * MS);
        // Somebody else has its number.
        assert!(spent.look_by(|pid| Some(if pid == 1 { MS } else { 90 * MS })));
        assert_eq!(spent.ns(), 190 * MS);
        assert!(!spent.look_by(|_| None));
        assert_eq!(spent.ns(), 190 * MS);
    }
}
