//! `--max-overhead PCT`: what a collection may cost, and what is done to keep it there.
//!
//! Tools that count exactly have a [`Limit`]: they leave out stacks, and then they stop. Others have a [`Sampler`]. Where tracing
//! everything costs too much, those that can leave out detail first, see [`LeftOut`]. Where that does not do, the
//! programs that events run are attached for short windows at random times
//! only. What is seen in a window stands for the stratum of time around it: shares of time need no more than the state of
//! every thread at the window's edges, so that a long wait is in every window that it spans and none is lost for being one
//! event among many.
//!
//! Measured are the BPF programs' run time, as the kernel accounts it, and the CPU time of the tool and of the process that
//! reads names for it, from the first window to the last. Loading the programs and naming what was found are not in it.

mod bounded;
mod controller;
pub mod cost;
mod detail;
mod gate;
mod groups;
mod left_out;
mod limit;
mod looked;
pub mod meter;
mod next;
mod sampler;
mod series;
mod strata;
mod summary;
mod tally;
mod weighted;
mod windowed;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use host::clock::nanoseconds;

use crate::meter::Meter;

pub use bounded::Bounded;
pub use groups::Groups;
pub use left_out::LeftOut;
pub use limit::{Allowed, Limit};
pub use next::Next;
pub use sampler::Sampler;
pub use series::{Estimate, Series};
pub use summary::Summary;
pub use tally::Estimates;
pub use weighted::{Weight, Weighted};
pub use windowed::{
    Programs, Told, Window, Windowed, add_shared, ended_at, shut_edges, store, store_half,
};

/// The option.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct Budget {
    /// Limit overhead to PCT % of the machine's CPU time; if necessary trace only in sampling windows and estimate totals
    #[arg(long, value_name = "PCT", value_parser = parse_percent)]
    pub max_overhead: Option<f64>,
}

impl Budget {
    /// Looks whether a budget can be kept to at all, before anything is loaded.
    ///
    /// # Errors
    ///
    /// When the kernel does not measure BPF programs.
    pub fn check(&self) -> Result<()> {
        match self.max_overhead {
            Some(_) => check_measuring(&Meter::start()),
            None => Ok(()),
        }
    }

    /// Sets a limit where nobody asked for one, if this kernel says what programs cost.
    pub fn set_default(&mut self, percent: f64) {
        if self.max_overhead.is_none() && Meter::start().is_measuring() {
            self.max_overhead = Some(percent);
        }
    }

    /// Begins a run of `length`, or until it is told to end, that looks at what `windowed` traces, as [`Sampler::begin`].
    ///
    /// # Errors
    ///
    /// Those of that.
    pub fn sampler<'a>(
        &self,
        who: (&'static str, bool),
        length: Option<Duration>,
        meter: &'a Meter,
        windowed: &mut impl Windowed,
    ) -> Result<Sampler<'a>> {
        // Windows of a budget end by other clocks.
        let length = length.filter(|_| !self.is_limited());
        let limits = (self.max_overhead, length.map(nanoseconds));
        Sampler::begin(who, limits, meter, windowed)
    }

    /// True with a budget: a run within one may do no work that can be done after it.
    pub fn is_limited(&self) -> bool {
        self.max_overhead.is_some()
    }

    /// Those of the descriptors that may wake a collection: with a budget nothing does but time, and what is new is named when that is
    /// paid for.
    pub fn waking<T>(&self, fds: Vec<T>) -> Vec<T> {
        if self.is_limited() { Vec::new() } else { fds }
    }

    /// Those of the programs that a budget detaches between windows that are not to be attached before.
    pub fn gated<'a>(&self, names: &'a [&'a str]) -> &'a [&'a str] {
        if self.is_limited() { names } else { &[] }
    }
}

/// What is not known cannot be kept below a limit.
fn check_measuring(meter: &Meter) -> Result<()> {
    if !meter.is_measuring() {
        bail!(
            "--max-overhead: not permitted to measure BPF programs; run it as root, or sysctl kernel.bpf_stats_enabled=1"
        );
    }
    Ok(())
}

/// All of the machine, in percent.
const NO_BUDGET: f64 = 100.0;
/// CPU ns per ns, more than any machine has.
const NO_LIMIT: f64 = 1e6;

/// Tells if a share of the machine, in percent, is a limit. All of it is none: programs that seem to take more were stopped by a
/// hypervisor, whose time counts as theirs.
fn is_limit(percent: f64) -> bool {
    percent < NO_BUDGET
}

/// CPU time that a share of so many CPUs, in percent, allows, ns per ns.
pub fn allowed(percent: f64, cpus: u64) -> f64 {
    match is_limit(percent) {
        true => percent / 100.0 * cpus as f64,
        false => NO_LIMIT,
    }
}

/// Reads `2`, `0.5`, `0.5%`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>();
    match number {
        Ok(percent) if (0.1..=NO_BUDGET).contains(&percent) => Ok(percent),
        _ => Err("not a share of the CPUs; write 0.1 to 100, in percent".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_percent;

    #[test]
    fn percents_are_percents() {
        assert_eq!(parse_percent("2"), Ok(2.0));
        assert_eq!(parse_percent("0.5%"), Ok(0.5));
        for bad in ["0", "-1", "nan", "101", "x", ""] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
    }
}
