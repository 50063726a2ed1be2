//! What is left out before any time is: the user stacks of short waits.
//!
//! Walking a deep stack costs several times what all else about a wait does. Without those of short waits every wait is still
//! counted, with its length, its thread and its kernel stack; so totals stay exact, where windows would make estimates of them.
//! But a load that has nothing but short waits would be left without stacks: where they hold much of the time, windows are better.

use anyhow::Result;

use crate::controller::Load;
use crate::left_out::LeftOut;
use crate::windowed::Windowed;

/// Waits shorter than this go without, ns, one step after the other.
const BELOW_NS: [u64; 3] = [10_000, 100_000, 1_000_000];
/// Largest share of the waits' time that may go without.
const MOST_TIME: f64 = 0.05;
/// How long a step is in force before that share is judged, ns: a wait counts when it is over.
const JUDGED_AFTER_NS: u64 = 100_000_000;
/// What leaving out stacks can save, as a factor: measured were 1.5 with 3 functions on the stack, 4.3 with 80, and 5.6 with 60 where
/// all ran on one CPU. Where more is to be saved, windows are not put off.
const MOST_SAVED: f64 = 6.0;
/// A step that leaves more than this share of the cost was none.
const LEAST_SAVED: f64 = 0.9;
/// Where everything costs less than this share of what is allowed, the step before will not cost too much.
const CHEAP: f64 = 0.8 / MOST_SAVED;

/// The steps of one collection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Detail {
    /// How many of [`BELOW_NS`] have been taken.
    steps: usize,
    /// When the latest was taken, what it was to mend, and what had been left out before it.
    since_ns: u64,
    mended: Load,
    before: LeftOut,
    /// BPF time before the first, CPU ns per ns.
    whole: f64,
    most_ns: u64,
}

impl Detail {
    /// Waits shorter than this have gone without at some time, ns; 0: none have.
    pub(super) fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// For `-v`.
    pub(super) fn describe(&self) -> String {
        match self.below_ns() {
            0 => "every user stack is walked".into(),
            ns => format!(
                "no user stacks of waits below {}",
                profile::units::duration(ns)
            ),
        }
    }

    /// Whether everything may go on being traced at this `load`, seen at `now_ns`, if need be with a step more or less left out.
    ///
    /// # Errors
    ///
    /// The tool's.
    pub(super) fn holds(
        &mut self,
        load: Load,
        now_ns: u64,
        windowed: &mut impl Windowed,
    ) -> Result<bool> {
        let left_out = windowed.left_out()?;
        let age_ns = now_ns.saturating_sub(self.since_ns);
        if self.steps > 0 && age_ns >= JUDGED_AFTER_NS {
            let share = left_out.since(&self.before).share();
            if share > MOST_TIME {
                return Ok(false);
            }
        }
        let steps = if load.is_affordable() {
            let is_cheap = load.cost <= CHEAP * load.allowed;
            self.steps - usize::from(is_cheap && self.steps > 0)
        } else {
            self.steps + usize::from(self.may_help(load))
        };
        if steps == self.steps {
            return Ok(load.is_affordable());
        }
        if self.steps == 0 {
            self.whole = load.events;
        }
        (self.since_ns, self.mended, self.before) = (now_ns, load, left_out);
        self.go_to(steps, windowed)
    }

    /// Whether there is another step, and the one before it has mended something.
    fn may_help(&self, load: Load) -> bool {
        let is_enough = load.cost <= MOST_SAVED * load.allowed;
        // What a step back left behind was none of its business.
        let has_helped = self.steps == 0
            || self.mended.is_affordable()
            || load.cost <= LEAST_SAVED * self.mended.cost;
        is_enough && has_helped && self.steps < BELOW_NS.len()
    }

    /// Back to every stack. Returns what that will cost, BPF time in CPU ns per ns, if some were left out.
    ///
    /// # Errors
    ///
    /// The tool's.
    pub(super) fn restore(&mut self, windowed: &mut impl Windowed) -> Result<Option<f64>> {
        if self.steps == 0 {
            return Ok(None);
        }
        self.go_to(0, windowed)?;
        Ok(Some(self.whole))
    }

    fn go_to(&mut self, steps: usize, windowed: &mut impl Windowed) -> Result<bool> {
        let was = self.steps;
        self.steps = steps;
        if !windowed.leave_out(self.below_ns())? {
            self.steps = was;
            return Ok(false);
        }
        self.most_ns = self.most_ns.max(self.below_ns());
        Ok(true)
    }

    fn below_ns(&self) -> u64 {
        self.steps.checked_sub(1).map_or(0, |step| BELOW_NS[step])
    }
}

#[cfg(test)]
mod tests {
    use super::super::windowed::{Programs, Told, Window};
    use super::*;

    /// A tool whose waits, in a second, take so long all in all and so long where they are short.
    struct Tool {
        can: bool,
        below_ns: u64,
        short_ns: u64,
        sums: LeftOut,
    }

    impl Windowed for Tool {
        fn programs(&self) -> Vec<Programs<'_>> {
            Vec::new()
        }

        fn leave_out(&mut self, below_ns: u64) -> Result<bool> {
            self.below_ns = below_ns;
            Ok(self.can)
        }

        fn left_out(&self) -> Result<LeftOut> {
            Ok(self.sums)
        }

        fn prepare(&mut self, _: bool) -> Result<()> {
            Ok(())
        }

        fn edges(&mut self) -> Result<Vec<Told<'_>>> {
            Ok(Vec::new())
        }

        fn shut(&mut self) -> Result<u64> {
            Ok(0)
        }

        fn take(&mut self, _: &Window) -> Result<()> {
            Ok(())
        }
    }

    impl Tool {
        fn new(short_ns: u64) -> Self {
            Self {
                can: true,
                below_ns: 0,
                short_ns,
                sums: LeftOut::default(),
            }
        }

        /// Of a second.
        fn pass(&mut self) {
            if self.below_ns > 0 {
                self.sums.ns += self.short_ns;
                self.sums.of_ns += 1_000_000_000;
            }
        }
    }

    /// Whether everything was still traced after each second that cost so much of what was allowed, and without stacks of which waits
    /// from then on.
    fn run(tool: &mut Tool, costs: &[f64]) -> Vec<(bool, u64)> {
        let mut detail = Detail::default();
        let after = |(second, &cost): (u64, &f64)| {
            tool.pass();
            let load = Load {
                cost,
                events: cost,
                allowed: 1.0,
            };
            let holds = detail.holds(load, second * 1_000_000_000, tool);
            let holds = holds.expect("the tool has no errors");
            if !holds {
                let whole = detail.restore(tool).expect("the tool has no errors");
                assert!(whole.is_none_or(|events| events > 1.0), "{whole:?}");
            }
            (holds, tool.below_ns)
        };
        (1..).zip(costs).map(after).collect()
    }

    #[test]
    fn a_step_is_taken_where_everything_costs_too_much_and_back_where_it_is_cheap() {
        let found = run(&mut Tool::new(1_000_000), &[0.9, 2.0, 1.2, 0.9, 0.1, 0.1]);
        let steps = [0, 10_000, 100_000, 100_000, 10_000, 0];
        assert_eq!(found, steps.map(|below_ns| (true, below_ns)));
    }

    #[test]
    fn after_the_last_step_there_are_windows() {
        let found = run(&mut Tool::new(1_000_000), &[4.0, 3.0, 2.0, 1.5]);
        let steps = [10_000, 100_000, 1_000_000];
        assert_eq!(found[..3], steps.map(|below_ns| (true, below_ns)));
        assert_eq!(found[3], (false, 0));
    }

    #[test]
    fn what_is_much_too_dear_is_not_tried() {
        assert_eq!(run(&mut Tool::new(0), &[6.1]), [(false, 0)]);
    }

    #[test]
    fn a_step_that_saves_nothing_is_the_last() {
        let found = run(&mut Tool::new(0), &[2.0, 1.9]);
        assert_eq!(found, [(true, 10_000), (false, 0)]);
    }

    #[test]
    fn after_a_step_back_the_next_one_is_tried_again() {
        let found = run(&mut Tool::new(0), &[2.0, 1.2, 0.1, 1.1]);
        let steps = [10_000, 100_000, 10_000, 100_000];
        assert_eq!(found, steps.map(|below_ns| (true, below_ns)));
    }

    #[test]
    fn a_load_of_short_waits_keeps_its_stacks() {
        let found = run(&mut Tool::new(60_000_000), &[2.0, 0.9, 0.9, 0.9]);
        // Once they are walked again they are no reason not to trace everything.
        assert_eq!(found, [(true, 10_000), (false, 0), (true, 0), (true, 0)]);
    }

    #[test]
    fn who_cannot_leave_out_stacks_does_not() {
        let mut tool = Tool::new(0);
        tool.can = false;
        assert!(!run(&mut tool, &[0.9, 1.1])[1].0);
    }
}
