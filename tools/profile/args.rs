//! What can be asked of profile.

use std::error::Error;
use std::ffi::OsString;

use anyhow::{Result, anyhow};
use bpf::profile::types::{profile_config, rodata, stack_config};
use budget::Budget;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use host::privileges::{Capabilities, FOR_PROBES};
use profile::units;
use profile::write::Format as FileFormat;
use session::needs;
use session::options::{Common, Stacks};
use session::output::Format;
use session::probe::{Feature, Kernel, Need};
use session::schedule::For;
use session::targets::{Settings, Targets};
use session::{Asked, Options};
use stacks::unwind::Method;
use symbols::Origin;

use crate::profile::event::Event;

const EXAMPLES: &str = "\
Examples:
  profile 10                                 # the whole machine, 99 Hz, 10 s
  profile -p 123 -F 997 30 > out.folded      # folded stacks of one process
  profile -e page-faults -p 123 5            # who touches new memory
  profile -e tracepoint:block:block_rq_issue --weight bytes 10
  profile -e uprobe:libc:malloc --weight arg1 -p 123 5   # bytes allocated
  profile -- make -j4                        # a command and its children

What a change of a program changed:
  profile -p 123 30 -o before.json
  profile -p 123 30 -o after.json   # the new version, under the same load
  flame diff before.json after.json -o change.html

Folded values are samples, for tracepoints and uprobes events, with --weight
the argument's sum.";

/// Where CPU time goes, or any other event: samples of stacks
#[derive(Parser, Debug)]
#[command(name = "profile", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(mut_arg("verbose", |arg| arg.help(
    "Show stacks whole, attached hooks and unresolved symbols"
)))]
pub struct Args {
    #[command(flatten)]
    pub(crate) window: For,

    #[command(flatten)]
    pub(crate) targets: Targets,

    #[command(flatten)]
    pub(crate) stacks: Stacks,

    /// Samples per second and CPU, for clocks and hardware [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", help_heading = "Events",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    frequency: Option<u64>,

    /// One sample every so many events (ns, for clocks)
    #[arg(short, long, value_name = "PERIOD", conflicts_with = "frequency", help_heading = "Events",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// cpu-clock, cycles, page-faults... (perf's names),
    /// tracepoint:CAT:NAME or uprobe:PATH:SYMBOL
    #[arg(
        short,
        long,
        value_name = "EVENT",
        default_value = "cpu-clock",
        help_heading = "Events"
    )]
    pub(crate) event: Event,

    /// Weigh each event by an argument: arg1 to arg6 of a uprobe, a
    /// field of a tracepoint
    #[arg(long, value_name = "ARG", help_heading = "Events")]
    pub(crate) weight: Option<String>,

    /// Only this CPU
    #[arg(short = 'C', long, value_name = "CPU", help_heading = "Events")]
    pub(crate) cpu: Option<u32>,

    /// Idle CPUs too
    #[arg(short = 'I', long, help_heading = "Events")]
    pub(crate) include_idle: bool,

    /// A root frame per thread: comm-PID/TID
    #[arg(long, help_heading = "Stacks")]
    pub(crate) threads: bool,

    /// The times of samples are wanted, too, by process.
    #[arg(skip)]
    pub(crate) moments: bool,

    /// Each sample is wanted with its time and its thread.
    #[arg(skip)]
    pub(crate) singles: bool,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Samples per second and CPU where nothing else was asked for: not in step with what happens at round intervals.
const DEFAULT_FREQUENCY: u64 = 99;

/// How often an event that fires is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// So many times a second on each CPU.
    Hertz(u64),
    /// Once every so many events; ns, for clocks.
    Every(u64),
}

impl Args {
    /// Tells if somebody wants the time of each sample.
    pub(crate) fn keeps_moments(&self) -> bool {
        let mut files = self.stacks.output.iter();
        self.moments
            || self.singles
            || files.any(|file| file.format == Format::File(FileFormat::Perf))
    }

    /// How often the event is sampled.
    pub(crate) fn rate(&self) -> Rate {
        match self.count {
            Some(period) => Rate::Every(period),
            None if self.event.has_frequency() => {
                Rate::Hertz(self.frequency.unwrap_or(DEFAULT_FREQUENCY))
            }
            None => Rate::Every(1),
        }
    }

    /// Fills the BPF side's constants; an option missing here does not compile.
    pub(crate) fn to_bpf(&self, targets: &Settings, weight: Weight, rodata: &mut rodata) {
        rodata.targets = bpf::target_config!(bpf::profile::types, targets);
        rodata.comm_glob = bpf::comm_glob!(bpf::profile::types, &targets.comm);
        rodata.keeps_moments = self.keeps_moments().into();
        bpf::unwind_by!(rodata, self.stacks.unwind);
        rodata.config = profile_config {
            stacks: stack_config {
                no_user: self.stacks.kernel_stacks.into(),
                no_kernel: self.stacks.user_stacks.into(),
            },
            idle: self.include_idle.into(),
            by_thread: self.threads.into(),
            every: match self.rate() {
                Rate::Every(period) => period,
                Rate::Hertz(_) => 1,
            },
            weight_arg: weight.argument,
            weight_offset: weight.offset,
            weight_size: weight.size,
            weight_signed: weight.signed.into(),
            everything: self.targets.are_all().into(),
            pad: 0,
        };
    }

    /// Place of kernel stacks: whose frames lie at their leaf end.
    pub(crate) fn origin(&self) -> Origin {
        match self.event {
            Event::Counter { .. } => Origin::Sample,
            _ => Origin::Tracepoint,
        }
    }

    /// Event, rate and weight in words.
    pub(crate) fn what(&self) -> String {
        let what = match &self.event {
            Event::Uprobe { path, symbol } => format!("{symbol} in {path}"),
            event => event.short_name(),
        };
        match (self.rate(), &self.weight) {
            (Rate::Hertz(hertz), _) => format!("{what} at {hertz} Hz"),
            (Rate::Every(1), None) => what,
            (Rate::Every(1), Some(weight)) => format!("{what} by {weight}"),
            (Rate::Every(period), weight) => {
                let by = weight.iter().map(|weight| format!(" by {weight}"));
                let period = match self.event.is_clock() {
                    true => units::duration(period),
                    false => format!("{}th", units::count(period)),
                };
                format!("{what}{}, every {period}", by.collect::<String>())
            }
        }
    }
}

impl Options for Args {
    const NAME: &'static str = "profile";
    const NEEDS: &'static [Need] = &[
        needs::TASK_REGISTERS,
        needs::MAPPING_TREE,
        Need {
            feature: Feature::HardwareEvents,
            without: "-e cycles and its like are refused; time (cpu-clock), software events, tracepoints and uprobes work",
        },
    ];

    fn asked(&self) -> Asked<'_> {
        Asked {
            outputs: &self.stacks.output,
            ..Asked::new(&self.targets, self.window, &self.budget, &self.common)
        }
    }

    fn from_command_line(line: &[OsString]) -> Result<Self> {
        let args = Self::try_parse_from(line).or_else(|error| match unknown_event(&error) {
            Some(complaint) => Err(anyhow!(complaint)),
            None => error.exit(),
        })?;
        if args.frequency.is_some() && !args.event.has_frequency() {
            let problem = "-F is for clocks and hardware counters: every other event is taken as it comes; \
                           use -c PERIOD for one in so many";
            Self::command()
                .error(ErrorKind::ArgumentConflict, problem)
                .exit()
        }
        Ok(args)
    }

    fn programs(&self, _kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        let is_uprobe = matches!(self.event, Event::Uprobe { .. });
        vec![
            ("on_overflow", matches!(self.event, Event::Counter { .. })),
            (
                "on_tracepoint",
                matches!(self.event, Event::Tracepoint { .. }),
            ),
            ("on_uprobe", is_uprobe),
            ("on_uprobe_multi", is_uprobe && self.budget.is_limited()),
            ("unwind_fork", self.stacks.unwind != Method::Fp),
            ("unwind_exec", self.stacks.unwind != Method::Fp),
            ("sched_process_exec", targets.follow),
            ("sched_process_fork", targets.has_ids()),
            ("sched_process_exit", targets.follow),
            ("sched_process_free", targets.follow),
        ]
    }

    fn more_capabilities(&self) -> Capabilities {
        let is_probe = matches!(self.event, Event::Uprobe { .. });
        // Probes of the budget's next window take more than their first one's programs.
        match self.budget.max_overhead {
            Some(_) if is_probe => FOR_PROBES,
            _ => Capabilities::empty(),
        }
    }
}

/// What is wrong with the event, if that is what is wrong.
fn unknown_event(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let option = context(ContextKind::InvalidArg)?;
    let is_event = option.starts_with("--event ") && error.kind() == ErrorKind::ValueValidation;
    let (event, why) = (context(ContextKind::InvalidValue)?, error.source()?);
    is_event.then(|| format!("-e {event}: {why}"))
}

/// Where the BPF side finds an event's weight; all zero: every event weighs 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    /// Argument of a uprobe, 1 to 6.
    pub(crate) argument: u32,
    /// Field of a tracepoint's record.
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) signed: bool,
}
