//! pressure at work: a capture, from its first interval to its last report.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use budget::Limit;
use budget::cost::Cost;
use budget::meter::{Meter, losses};
use host::clock::Edges;
use libbpf_rs::skel::Skel;
use profile::style::Style;
use session::Engine;
use session::closing::Closing;
use session::progress::State;

use crate::pressure::args::Args;
use crate::pressure::capture::Capture;
use crate::pressure::look::Look;
use crate::pressure::psi::Source;
use crate::pressure::report;
use crate::pressure::{harvest, json};

/// The tool at work.
pub(crate) struct Pressure<'a> {
    args: &'a Args,
    source: &'a Source,
    capture: Capture,
    meter: &'a Meter,
    /// With `--max-overhead`.
    limit: Option<Limit<'a>>,
    /// Time from the trigger to the capture's begin, if it had one.
    delay: Option<Duration>,
    reports: u64,
}

impl<'a> Pressure<'a> {
    /// Attaches what has been prepared; `fired_ns`: when the trigger did, ns.
    pub(crate) fn attach(
        args: &'a Args,
        source: &'a Source,
        mut capture: Capture,
        meter: &'a Meter,
        fired_ns: Option<u64>,
    ) -> Result<Self> {
        let limit = capture.begin(args, meter)?;
        let delay_ns = fired_ns.map(|fired_ns| capture.start_ns().saturating_sub(fired_ns));
        Ok(Self {
            args,
            source,
            capture,
            meter,
            limit,
            delay: delay_ns.map(Duration::from_nanos),
            reports: 0,
        })
    }

    /// Cost of the run until now.
    fn cost(&self) -> Cost {
        let (limit, end_ns) = (self.limit.as_ref(), self.capture.start_ns());
        let budget = limit.map(|limit| limit.summary(end_ns));
        Cost::read(self.meter, [self.capture.skel.object()], budget)
    }
}

impl Engine for Pressure<'_> {
    fn open(&mut self, _length: Option<Duration>) -> Result<u64> {
        Ok(self.capture.start_ns())
    }

    fn describe(&self) -> String {
        let whose = match self.source {
            Source::System => "the machine".into(),
            Source::Cgroup(path) => path.display().to_string(),
        };
        let late = self.delay.map_or(String::new(), |delay| {
            format!(" ({:.1} ms after the trigger)", delay.as_secs_f64() * 1e3)
        });
        format!("{whose}{late}")
    }

    fn fds(&self) -> Vec<RawFd> {
        // With a budget only time wakes it.
        let stacks = self.capture.stacks_fd().filter(|_| self.limit.is_none());
        stacks.into_iter().collect()
    }

    fn step(&mut self) -> Result<State> {
        let mut state = State::default();
        if let Some(limit) = &mut self.limit {
            state.next = self.capture.heed(limit)?;
        }
        self.capture.step()?;
        Ok(State {
            events: harvest::events(&self.capture.skel)?,
            lost: losses(self.capture.skel.object(), &self.capture.counters)?.total(),
            ..state
        })
    }

    fn report(&mut self, _start_ns: u64, end_ns: &mut u64) -> Result<()> {
        let object = self.capture.skel.object();
        let limit = self.limit.as_mut();
        let is_used_up = limit.is_some_and(|limit| limit.end_interval(object));
        let interval = self.capture.take(is_used_up)?;
        *end_ns = interval.end_ns;
        self.reports += 1;
        let look = Look {
            style: Style::from(self.args.common.uses_color()),
            legend: self.reports == 1,
        };
        let stdout = &mut io::stdout().lock();
        let written = if self.args.common.json {
            writeln!(stdout, "{}", json::interval(&interval, &self.cost()))
        } else {
            report::write(&interval, look, stdout)
        };
        written
            .and_then(|()| stdout.flush())
            .context("write to stdout")
    }

    fn closing(&mut self, window: Edges) -> Result<Closing> {
        let cost = self.cost();
        Ok(Closing {
            check: None,
            events: (harvest::events(&self.capture.skel)?, "switches and wakeups"),
            stacks: self.capture.stacks(),
            ends: self.capture.ends(),
            losses: self.capture.losses()?,
            losses_of_ns: window.ns().saturating_mul(cost.cpus),
            cost,
            ..Closing::default()
        })
    }
}
