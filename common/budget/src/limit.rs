//! Keeps a collection that counts exactly within its budget: it leaves out stacks first, then it ends.
//!
//! Credit in CPU time begins with what one second may cost and grows as time passes; what tracing costs is taken from it. A
//! collection ends before its credit is gone, so that in all it costs no more than its share of its length and of one second.

use anyhow::Result;
use host::clock::monotonic_ns;
use libbpf_rs::Object;

use crate::meter::{Meter, Spent, cpus_online};
use crate::next::Next;
use crate::summary::Summary;
use crate::windowed::Programs;
use crate::{Budget, allowed, check_measuring};

/// The credit at the beginning is what so much time may cost, ns.
const BEGINS_WITH_NS: u64 = 1_000_000_000;
/// The same of the most that it may save.
const SAVES_NS: u64 = 5_000_000_000;
/// The same of what is left when stacks are left out, and nothing is done that can be put off.
const LOW_NS: u64 = 500_000_000;

/// Longest time between two looks at the cost, ns.
const LONGEST_PAUSE_NS: u64 = 50_000_000;
/// The shortest, however little is left, ns: a look has its cost, too.
const SHORTEST_PAUSE_NS: u64 = 2_000_000;

/// A collection's leave to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// All that was asked for.
    Everything,
    /// All but stacks, and work that can be done after the collection.
    WithoutStacks,
    /// It is to end.
    Nothing,
}

impl Allowed {
    fn describe(self) -> &'static str {
        match self {
            Self::Everything => "everything is traced",
            Self::WithoutStacks => "no stacks",
            Self::Nothing => "it is used up",
        }
    }
}

/// The budget of one collection.
pub struct Limit<'a> {
    tool: &'static str,
    remedy: &'static str,
    verbose: bool,
    percent: f64,
    meter: &'a Meter,
    credit: Credit,
    at_begin: Spent,
    /// At the latest look.
    spent: Spent,
    began_ns: u64,
    due_ns: u64,
    allowed: Allowed,
}

impl Budget {
    /// With a budget: the limit of the collection that begins now, by `tool`, with the loaded programs of `object`. `remedy`: what
    /// makes the tool cost less.
    ///
    /// # Errors
    ///
    /// When the kernel does not measure BPF programs.
    pub fn limit<'a>(
        &self,
        (tool, remedy, verbose): (&'static str, &'static str, bool),
        meter: &'a Meter,
        object: &Object,
    ) -> Result<Option<Limit<'a>>> {
        let Some(percent) = self.max_overhead else {
            return Ok(None);
        };
        check_measuring(meter)?;
        let (now, spent) = (monotonic_ns(), meter.spent(&[all_of(object)], 0));
        Ok(Some(Limit {
            tool,
            remedy,
            verbose,
            percent,
            meter,
            credit: Credit::new(percent, cpus_online(), now),
            at_begin: spent,
            spent,
            began_ns: now,
            due_ns: now + SHORTEST_PAUSE_NS,
            allowed: Allowed::Everything,
        }))
    }
}

impl Limit<'_> {
    /// Looks at the cost, if that is due; what is allowed until it is due again.
    pub fn look(&mut self, object: &Object) -> Allowed {
        if monotonic_ns() < self.due_ns {
            return self.allowed;
        }
        let allowed = self.pay(object);
        if self.verbose && allowed != self.allowed {
            profile::say!("{}: budget: {}", self.tool, allowed.describe());
        }
        self.allowed = allowed;
        allowed
    }

    /// An interval is over. Returns whether the collection is, because of the budget: what ends by itself is not stopped.
    pub fn end_interval(&mut self, object: &Object) -> bool {
        self.pay(object);
        self.allowed == Allowed::Nothing
    }

    /// Takes what has been spent from the credit; what that leaves to do.
    fn pay(&mut self, object: &Object) -> Allowed {
        let (now, spent) = (monotonic_ns(), self.meter.spent(&[all_of(object)], 0));
        let cost = spent.since(&self.spent);
        self.spent = spent;
        let allowed = self.credit.pass(now, cost, self.allowed);
        self.due_ns = now + self.credit.pause_ns();
        allowed
    }

    /// When the next look is due, and whether the collection is to end.
    pub fn next(&self) -> Next {
        Next {
            due_ns: Some(self.due_ns),
            must_stop: self.allowed == Allowed::Nothing,
        }
    }

    /// The account of a collection that ended at `end_ns`.
    pub fn summary(&self, end_ns: u64) -> Summary {
        let elapsed_ns = end_ns.saturating_sub(self.began_ns);
        Summary {
            percent: self.percent,
            spent_ns: self.spent.since(&self.at_begin).total(),
            elapsed_ns,
            cpus: cpus_online(),
            windows: 1,
            open_ns: elapsed_ns,
            is_stopped: self.allowed == Allowed::Nothing,
            is_exact: true,
            remedy: self.remedy,
            ..Summary::default()
        }
    }
}

/// None of them is detached.
fn all_of(object: &Object) -> Programs<'_> {
    Programs { object, gated: &[] }
}

/// A token bucket of CPU time. In integers: what it has given out is what it has taken in.
#[derive(Debug)]
struct Credit {
    /// Growth in a ns, in millionths of a ns.
    rate: i128,
    /// In millionths of a ns.
    left: i128,
    at_ns: u64,
    /// What the tool itself costs of late, in millionths of the time.
    own_rate: u64,
    /// What goes on if nothing changes: the cost of events, and of the tool's own what was not over at once. In millionths of the
    /// time.
    lasting_rate: u64,
}

impl Credit {
    fn new(percent: f64, cpus: u64, at_ns: u64) -> Self {
        let rate = i128::from((allowed(percent, cpus) * 1e6).round() as u64);
        Self {
            rate,
            left: rate * i128::from(BEGINS_WITH_NS),
            at_ns,
            own_rate: 0,
            lasting_rate: 0,
        }
    }

    /// `cost` has been spent since the last time. What that leaves to do; stacks come back with what the collection began with.
    fn pass(&mut self, now_ns: u64, cost: Spent, was: Allowed) -> Allowed {
        let passed_ns = now_ns.saturating_sub(self.at_ns).max(1);
        let rate = |ns: u64| ns.saturating_mul(1_000_000) / passed_ns;
        let own_rate = rate(cost.own_ns);
        self.lasting_rate = rate(cost.events_ns) + own_rate.min(self.own_rate);
        (self.own_rate, self.at_ns) = (own_rate, now_ns);
        self.left += self.rate * i128::from(passed_ns);
        self.left = self.left.min(self.rate * i128::from(SAVES_NS));
        self.left -= 1_000_000 * i128::from(cost.total());
        // The time until the next look is paid from what is left.
        let is_used_up = self.left <= 1_000_000 * i128::from(self.cost_of(SHORTEST_PAUSE_NS));
        let enough_ns = match was {
            Allowed::Everything => LOW_NS,
            Allowed::WithoutStacks => BEGINS_WITH_NS,
            Allowed::Nothing => return Allowed::Nothing,
        };
        if is_used_up {
            Allowed::Nothing
        } else if self.left < self.rate * i128::from(enough_ns) {
            Allowed::WithoutStacks
        } else {
            Allowed::Everything
        }
    }

    /// The cost of `time_ns` if nothing changes.
    fn cost_of(&self, time_ns: u64) -> u64 {
        self.lasting_rate.saturating_mul(time_ns) / 1_000_000
    }

    /// To the next look: half the time that the credit lasts if nothing changes, within limits.
    fn pause_ns(&self) -> u64 {
        let left_ns = u64::try_from(self.left / 1_000_000).unwrap_or(0);
        let cost_ns = self.cost_of(LONGEST_PAUSE_NS).max(1);
        let lasts = u128::from(left_ns) * u128::from(LONGEST_PAUSE_NS) / u128::from(cost_ns);
        u64::try_from(lasts / 2)
            .unwrap_or(u64::MAX)
            .clamp(SHORTEST_PAUSE_NS, LONGEST_PAUSE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A load by a clock of its own: of `seconds`, what it spent and for how long it was traced, ns, and how long without stacks.
    fn traced(percent: f64, seconds: u64, load: impl Fn(u64, Allowed) -> u64) -> [u64; 3] {
        let mut credit = Credit::new(percent, 2, 0);
        let mut allowed = Allowed::Everything;
        let (mut now, mut spent_ns, mut bare_ns) = (0, 0, 0);
        let mut pause_ns = SHORTEST_PAUSE_NS;
        while now < seconds * SECOND_NS && allowed != Allowed::Nothing {
            // In millionths of the machine's time.
            let cost_ns = load(now, allowed) * pause_ns * 2 / 1_000_000;
            (now, spent_ns) = (now + pause_ns, spent_ns + cost_ns);
            bare_ns += u64::from(allowed == Allowed::WithoutStacks) * pause_ns;
            let cost = Spent {
                events_ns: cost_ns,
                own_ns: 0,
            };
            allowed = credit.pass(now, cost, allowed);
            pause_ns = credit.pause_ns();
        }
        [spent_ns, now, bare_ns]
    }

    /// `percent` of two CPUs, for so long and a second more, ns.
    fn most_ns(percent: f64, traced_ns: u64) -> u64 {
        let rate = (percent * 10_000.0).round() as u64 * 2;
        rate * (traced_ns + SECOND_NS) / 1_000_000
    }

    #[test]
    fn a_steady_load_costs_no_more_than_its_time_and_a_second_may() {
        for percent in [0.1, 0.5, 2.0, 10.0] {
            for load in [1_500, 6_000, 25_000, 150_000, 900_000] {
                let [spent_ns, traced_ns, _] = traced(percent, 60, |_, _| load);
                let most_ns = most_ns(percent, traced_ns);
                // A single first look may come too late for a load that uses up all in it.
                let first_ns = load * SHORTEST_PAUSE_NS * 2 / 1_000_000;
                assert!(
                    spent_ns <= most_ns.max(first_ns),
                    "{spent_ns} of {most_ns} ns, {load} in {percent}%"
                );
                let is_within = load as f64 <= percent * 10_000.0;
                assert_eq!(traced_ns >= 60 * SECOND_NS, is_within, "{load} {percent}");
            }
        }
    }

    #[test]
    fn all_of_the_machine_is_no_limit_whatever_the_cost_seems_to_be() {
        let [_, traced_ns, bare_ns] = traced(100.0, 60, |_, _| 3_000_000);
        assert!(traced_ns >= 60 * SECOND_NS && bare_ns == 0, "{traced_ns}");
        let [_, traced_ns, _] = traced(99.9, 60, |_, _| 3_000_000);
        assert!(traced_ns < SECOND_NS, "{traced_ns}");
    }

    #[test]
    fn an_end_comes_when_the_credit_is_used_and_not_before() {
        // 40 ms to begin with, 40 more each second, and 100 spent: two thirds of a second.
        let [spent_ns, traced_ns, _] = traced(2.0, 60, |_, _| 50_000);
        assert!(
            (640_000_000..=666_666_667).contains(&traced_ns),
            "{traced_ns}"
        );
        assert!(spent_ns <= most_ns(2.0, traced_ns));
    }

    #[test]
    fn stacks_go_first_and_come_back_when_there_is_room() {
        let without_stacks = |_, allowed| match allowed {
            Allowed::Everything => 30_000,
            _ => 10_000,
        };
        let [spent_ns, traced_ns, bare_ns] = traced(2.0, 60, without_stacks);
        assert_eq!(traced_ns / SECOND_NS, 60);
        assert!(spent_ns <= most_ns(2.0, traced_ns));
        // At 10,000 above and below the budget by turns.
        let share = bare_ns as f64 / traced_ns as f64;
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn beginning_of_the_tools_own_is_no_lasting_cost() {
        // Of 2 ms, more than half is spent at once, and nothing later.
        let own = |own_ns| Spent {
            events_ns: 0,
            own_ns,
        };
        let mut credit = Credit::new(0.1, 2, 0);
        let mut allowed = credit.pass(SHORTEST_PAUSE_NS, own(1_200_000), Allowed::Everything);
        assert_eq!(allowed, Allowed::WithoutStacks);
        for now in 1..=60 {
            allowed = credit.pass(now * SECOND_NS, own(0), allowed);
        }
        assert_eq!(allowed, Allowed::Everything);
        // What is spent again and again lasts.
        let mut credit = Credit::new(0.1, 2, 0);
        allowed = credit.pass(SHORTEST_PAUSE_NS, own(800_000), Allowed::Everything);
        allowed = credit.pass(2 * SHORTEST_PAUSE_NS, own(800_000), allowed);
        assert_eq!(allowed, Allowed::Nothing);
    }

    #[test]
    fn quiet_time_pays_for_a_burst_and_not_for_more() {
        let burst_from = |from| move |now, _| if now < from { 0 } else { 120_000 };
        for quiet_s in [0, 2, 600] {
            let load = burst_from(quiet_s * SECOND_NS);
            let [_, traced_ns, _] = traced(2.0, 700, load);
            let burst_s = (traced_ns - quiet_s * SECOND_NS) as f64 / SECOND_NS as f64;
            // 5 s of credit at most, at six times what it grows by.
            let expected = (quiet_s as f64 + 1.0).min(5.0) / 5.0;
            assert!(
                (expected - 0.05..expected + 0.01).contains(&burst_s),
                "{burst_s} after {quiet_s}"
            );
        }
    }
}
