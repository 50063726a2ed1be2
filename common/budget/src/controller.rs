//! How long to look, and how often: the control loop, without a clock or a kernel.

use crate::allowed;

/// Shortest window, ns: attaching and detaching costs some 0.2 ms.
const SHORTEST_NS: f64 = 2e6;
/// Longest window short of looking all the time, ns.
const LONGEST_NS: f64 = 50e6;
/// Stratum aimed at, ns: many of them make small errors.
const STRATUM_NS: f64 = 100e6;
/// Longest stratum, ns, whatever it costs: without a look there is nothing to report.
const LONGEST_STRATUM_NS: f64 = 2e9;
/// Share of what is allowed that is aimed at: load changes between two looks.
const AIM: f64 = 0.8;
/// Time in which savings may be spent, ns.
const SAVINGS_NS: f64 = 5e9;
/// Time in which debts are to be paid, ns: the collection may end at any moment.
const DEBTS_NS: f64 = 2e9;
/// Looking all the time has to be cheaper than what is allowed by this factor before it begins.
const HYSTERESIS: f64 = 0.8;
/// Time over which the tool's own CPU is averaged while it looks all the time, ns.
const SMOOTHED_NS: f64 = 1e9;
/// Debt up to which the tool's own CPU alone ends no looking all the time, as so long a time of the budget, ns. Names and unwind
/// tables come in bursts, and wait until they are paid for: windows would save none of that.
const BURST_NS: f64 = 0.5e9;
/// Weight of the newest observation.
const NEWEST: f64 = 0.5;
/// The same of what the tool does beside windows: less, for bursts of names are no forecast.
const NEWEST_BESIDE: f64 = 0.1;
/// Cost of a window's edges before one has been seen, CPU ns.
const FIRST_EDGES_NS: f64 = 1e6;

/// What a window showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    /// Length of the window, ns.
    pub(super) open_ns: u64,
    /// BPF time (and traps) in it, CPU ns.
    pub(super) events_ns: u64,
    /// The tool's own work at its edges, CPU ns.
    pub(super) edges_ns: u64,
    /// All of the tool's own work since the window before, CPU ns. What is not done at edges, naming what is new, comes in
    /// bursts: it makes a debt, and no forecast.
    pub(super) own_ns: u64,
    /// Since the beginning of the collection, ns.
    pub(super) elapsed_ns: u64,
    /// Spent since then, CPU ns.
    pub(super) spent_ns: u64,
}

/// What looking all the time costs, and may cost, CPU ns per ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    pub(super) cost: f64,
    /// Of which BPF time.
    pub(super) events: f64,
    /// Debts and savings included.
    pub(super) allowed: f64,
}

impl Load {
    /// Whether it costs no more than it may.
    pub(super) fn is_affordable(self) -> bool {
        self.cost <= self.allowed
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plan {
    /// Look all the time.
    Everything,
    /// Look for `open_ns` somewhere in the next `stratum_ns`.
    Windows {
        /// ns
        open_ns: u64,
        /// ns
        stratum_ns: u64,
    },
}

impl Plan {
    /// Whether nothing is left out.
    pub(super) fn is_everything(self) -> bool {
        self == Self::Everything
    }

    /// For `-v`.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Everything => "everything is traced".into(),
            Self::Windows {
                open_ns,
                stratum_ns,
            } => format!(
                "looking for {:.1} ms in every {:.0} ms",
                open_ns as f64 / 1e6,
                stratum_ns as f64 / 1e6
            ),
        }
    }
}

/// Decides from what windows have cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Controller {
    /// CPU ns per ns.
    limit: f64,
    /// BPF time per time that it is attached, CPU ns per ns.
    events: Option<f64>,
    /// CPU ns per window.
    edges: f64,
    /// The tool's own CPU while it looks all the time, CPU ns per ns.
    own: f64,
    /// The tool's own CPU beside edges of windows, CPU ns per ns.
    beside: f64,
    /// When the latest window was over, since the beginning of the collection, ns.
    last_ns: u64,
}

impl Controller {
    /// For a budget of `percent` of `cpus` CPUs.
    pub(super) fn new(percent: f64, cpus: u64) -> Self {
        Self {
            limit: allowed(percent, cpus),
            events: None,
            edges: FIRST_EDGES_NS,
            own: 0.0,
            beside: 0.0,
            last_ns: 0,
        }
    }

    /// Whether no plan costs less than `plan` does.
    pub(super) fn is_cheapest(plan: Plan) -> bool {
        match plan {
            Plan::Everything => false,
            Plan::Windows {
                open_ns,
                stratum_ns,
            } => open_ns <= SHORTEST_NS as u64 && stratum_ns >= LONGEST_STRATUM_NS as u64,
        }
    }

    /// CPU ns per ns.
    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// CPU ns per ns from now on, debts and savings included.
    fn allowed(&self, elapsed_ns: u64, spent_ns: u64) -> f64 {
        let saved = self.limit * elapsed_ns as f64 - spent_ns as f64;
        let horizon_ns = if saved < 0.0 { DEBTS_NS } else { SAVINGS_NS };
        (self.limit + saved / horizon_ns).clamp(self.limit / 10.0, self.limit * 1.5)
    }

    /// After a window of the sampled kind.
    pub(super) fn after_window(&mut self, seen: &Observed) -> Plan {
        let rate = seen.events_ns as f64 / seen.open_ns.max(1) as f64;
        self.events = Some(self.events.map_or(rate, |old| mix(old, rate)));
        self.edges = mix(self.edges, seen.edges_ns as f64);
        let beside_ns = seen.own_ns.saturating_sub(seen.edges_ns) as f64;
        let since_ns = seen.elapsed_ns.saturating_sub(self.last_ns).max(1);
        let beside = beside_ns / since_ns as f64;
        self.beside += NEWEST_BESIDE * (beside - self.beside);
        // A burst that ended looking all the time does not last.
        self.own += (since_ns as f64 / SMOOTHED_NS).min(1.0) * (beside - self.own);
        self.last_ns = seen.elapsed_ns;
        self.plan(seen)
    }

    /// After a while of looking all the time, `open_ns` long.
    pub(super) fn after_everything(&mut self, seen: &Observed) -> Load {
        self.last_ns = seen.elapsed_ns;
        let open = seen.open_ns.max(1) as f64;
        let events = seen.events_ns as f64 / open;
        self.events = Some(events);
        // Names and unwind tables of what is new come in bursts: judged over a second or so.
        let newest = (open / SMOOTHED_NS).min(1.0);
        self.own += newest * (seen.own_ns as f64 / open - self.own);
        let allowed = self.allowed(seen.elapsed_ns, seen.spent_ns);
        let saved_ns = self.limit * seen.elapsed_ns as f64 - seen.spent_ns as f64;
        let own = match saved_ns > -self.limit * BURST_NS {
            true => self.own.min((allowed - events).max(0.0)),
            false => self.own,
        };
        Load {
            cost: events + own,
            events,
            allowed,
        }
    }

    fn plan(&self, seen: &Observed) -> Plan {
        let allowed = AIM * self.allowed(seen.elapsed_ns, seen.spent_ns);
        let all = self.events.unwrap_or(0.0) + self.own;
        if all <= HYSTERESIS * allowed {
            Plan::Everything
        } else {
            self.windows(seen)
        }
    }

    /// BPF time is going to be so much while all is looked at, CPU ns per ns.
    pub(super) fn expect(&mut self, events: f64) {
        self.events = Some(events);
    }

    /// Where not everything can be looked at.
    pub(super) fn windows(&self, seen: &Observed) -> Plan {
        let allowed = self.allowed(seen.elapsed_ns, seen.spent_ns);
        let allowed = AIM * (allowed - self.beside).max(self.limit / 10.0);
        let events = self.events.unwrap_or(0.0).max(1e-6);
        let open = ((allowed * STRATUM_NS - self.edges) / events).clamp(SHORTEST_NS, LONGEST_NS);
        let stratum = (open * events + self.edges) / allowed;
        // Never everything by the back door: edges cost more than they save then.
        let stratum = stratum.clamp(2.0 * open, LONGEST_STRATUM_NS);
        Plan::Windows {
            open_ns: open as u64,
            stratum_ns: stratum as u64,
        }
    }
}

fn mix(old: f64, new: f64) -> f64 {
    (1.0 - NEWEST) * old + NEWEST * new
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose events cost `events` CPU ns per ns, and windows `edges` CPU ns each. Returns the share of what was
    /// spent, in percent of two CPUs, and the share of time that was looked at.
    fn run(percent: f64, events: impl Fn(f64) -> f64, edges: f64, seconds: f64) -> (f64, f64) {
        let mut controller = Controller::new(percent, 2);
        let mut plan = Plan::Everything;
        let (mut now, mut spent, mut looked) = (0.0, 0.0, 0.0);
        while now < seconds * 1e9 {
            let (open, stratum, other) = match plan {
                Plan::Everything if now == 0.0 => (2e6, 2e6, 0.0),
                Plan::Everything => (25e6, 25e6, 0.1e6),
                Plan::Windows {
                    open_ns,
                    stratum_ns,
                } => (open_ns as f64, stratum_ns as f64, edges),
            };
            let cost = events(now / 1e9) * open;
            now += stratum;
            looked += open;
            spent += cost + other;
            let seen = Observed {
                open_ns: open as u64,
                events_ns: cost as u64,
                edges_ns: other as u64,
                own_ns: other as u64,
                elapsed_ns: now as u64,
                spent_ns: spent as u64,
            };
            plan = match plan {
                Plan::Everything if controller.after_everything(&seen).is_affordable() => plan,
                Plan::Everything => controller.windows(&seen),
                Plan::Windows { .. } => controller.after_window(&seen),
            };
        }
        (100.0 * spent / (2.0 * now), looked / now)
    }

    #[test]
    fn a_quiet_machine_is_looked_at_all_the_time() {
        let (cost, looked) = run(2.0, |_| 0.002, 0.5e6, 10.0);
        assert!(looked > 0.99, "{looked}");
        assert!(cost < 0.5, "{cost}");
    }

    #[test]
    fn all_of_the_machine_is_no_limit_whatever_the_cost_seems_to_be() {
        assert_eq!(run(100.0, |_| 5.0, 0.5e6, 10.0).1, 1.0);
        assert!(run(99.9, |_| 5.0, 0.5e6, 10.0).1 < 0.9);
    }

    #[test]
    fn a_million_switches_a_second_cost_what_is_allowed_and_no_more() {
        for percent in [0.5, 1.0, 2.0, 5.0] {
            // Both CPUs do nothing but run programs when they are attached.
            let (cost, looked) = run(percent, |_| 1.6, 0.6e6, 10.0);
            assert!(cost <= percent, "{cost} of {percent}");
            assert!(cost > 0.5 * percent, "{cost} of {percent} used");
            assert!(looked > 0.001, "{looked}");
        }
    }

    #[test]
    fn a_load_that_comes_and_goes_stays_within_the_budget() {
        let bursts = |second: f64| {
            if (second as u64).is_multiple_of(2) {
                1.2
            } else {
                0.001
            }
        };
        let (cost, _) = run(2.0, bursts, 0.5e6, 30.0);
        assert!(cost <= 2.0, "{cost}");
    }

    #[test]
    fn bursts_beside_windows_are_a_tenth_of_what_is_expected() {
        let mut controller = Controller::new(5.0, 2);
        let seen = Observed {
            open_ns: 2_000_000,
            events_ns: 1_000,
            edges_ns: 500_000,
            own_ns: 20_500_000,
            elapsed_ns: 100_000_000,
            spent_ns: 0,
        };
        let _ = controller.after_window(&seen);
        // 20 ms of 100.
        assert!((controller.beside - 0.02).abs() < 1e-9, "{controller:?}");
        let quiet = Observed {
            own_ns: seen.edges_ns,
            elapsed_ns: 200_000_000,
            ..seen
        };
        let _ = controller.after_window(&quiet);
        assert!((controller.beside - 0.018).abs() < 1e-9, "{controller:?}");
    }

    #[test]
    fn many_threads_make_windows_rare_not_dear() {
        // 20,000 threads to visit at every edge.
        let (cost, looked) = run(1.0, |_| 0.5, 20e6, 60.0);
        assert!(cost <= 1.0, "{cost}");
        assert!(looked > 0.0, "{looked}");
    }

    /// Names cost two thirds of a CPU for a while after half a second, and are paid for in what follows. Returns what the plan was
    /// after so many seconds.
    fn after_a_burst(burst_ns: f64, seconds: f64) -> Vec<Plan> {
        let mut controller = Controller::new(5.0, 2);
        let (mut now, mut spent, mut left) = (0.0, 0.0, burst_ns);
        let mut plans = vec![Plan::Everything];
        while now < seconds * 1e9 {
            let (open, length) = match plans[plans.len() - 1] {
                Plan::Everything => (25e6, 25e6),
                Plan::Windows {
                    open_ns,
                    stratum_ns,
                } => (open_ns as f64, stratum_ns as f64),
            };
            let names = if now < 0.5e9 {
                0.0
            } else {
                f64::min(left, length * 0.66)
            };
            left -= names;
            let events = 0.01 * open;
            now += length;
            spent += events + names;
            let seen = Observed {
                open_ns: open as u64,
                events_ns: events as u64,
                edges_ns: 0,
                own_ns: names as u64,
                elapsed_ns: now as u64,
                spent_ns: spent as u64,
            };
            plans.push(match plans[plans.len() - 1] {
                Plan::Everything if controller.after_everything(&seen).is_affordable() => {
                    Plan::Everything
                }
                Plan::Everything => controller.windows(&seen),
                Plan::Windows { .. } => controller.after_window(&seen),
            });
        }
        plans
    }

    #[test]
    fn a_burst_of_names_leaves_nothing_out_or_not_for_long() {
        let all = |plans: &[Plan]| plans.iter().all(|plan| plan.is_everything());
        assert!(all(&after_a_burst(0.1e9, 5.0)), "a tenth of a second");
        let long = after_a_burst(0.4e9, 10.0);
        assert!(!all(&long), "that is four seconds of the budget");
        assert!(long[long.len() - 1].is_everything(), "it is paid for");
    }

    #[test]
    fn a_budget_that_cannot_be_kept_still_looks_now_and_then() {
        let (_, looked) = run(0.1, |_| 1.9, 50e6, 20.0);
        assert!(looked > 0.0005, "{looked}");
    }
}
