//! Options of why, and those of the tools whose engines it is made of.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result};
use budget::Budget;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use profile::write::Format as FileFormat;
use session::options::{Common, Stacks};
use session::output::Format;
use session::probe::{Kernel, Need};
use session::schedule::{For, parse_duration};
use session::targets::{Settings, Targets};
use session::{Asked, Options};

use crate::biolatency::Args as DiskArgs;
use crate::lockstat::Args as LockArgs;
use crate::offcputime::Args as WaitArgs;
use crate::offcputime::marks::{Marks, Place};
use crate::profile::Args as CpuArgs;
use crate::runqlat::Args as QueueArgs;

const EXAMPLES: &str = "\
Examples:
  why                        # ten seconds of the program that loses most
  why -p 123                 # of this one
  why --comm 'nginx*' 30     # of all threads of a name
  why -- make -j4            # of a command and its children
  why --all                  # of the whole machine
  why -v -p 123              # each line with its stack
  why --slowest 1% -p 123    # what slow requests wait for, of a server
  why --from uprobe:handle -p 123   # of calls of one function
  why -p 123 -o why.html     # a page for the ticket: the answer, lines
                             # that open into stacks, a flame graph
  why -j -p 123 > why.json   # all of it, for programs

Shares are of the threads' time: the lines come to 100 %.";

/// Window where nobody asks for another.
const LENGTH: Duration = Duration::from_secs(10);

/// Budget where nobody asks for another, percent of the machine's CPU time.
const MAX_OVERHEAD: f64 = 5.0;

/// The slowest where only the cycles are told, percent.
const SLOWEST: f64 = 1.0;

/// Samples of each CPU in a second: a function with half of 10 s on one CPU is known to 1.4 points.
pub(crate) const SAMPLES_HZ: u64 = 499;

/// All of a program's time in one table: what costs most, and who causes it
#[derive(Parser, Debug)]
#[command(name = "why", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(mut_arg("max_overhead", |arg| arg.help(
    "Limit overhead to PCT % of the machine's CPU time; if necessary\n\
     trace only in sampling windows and estimate totals\n\
     [default: 5]"
)))]
#[command(mut_arg("folded", |arg| arg.help(
    "Folded stacks of all time, below [on-cpu], [futex] and so on"
)))]
#[command(mut_arg("verbose", |arg| arg.help(
    "Show the stack behind each line, attached hooks and details"
)))]
pub(crate) struct Args {
    /// Duration in seconds, or as 200us, 500ms, 30s, 2m, 1h; 10 s if not given, or until COMMAND exits
    #[arg(value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) targets: Targets,

    /// The whole machine, not the program that loses most
    #[arg(long, help_heading = "Targets", conflicts_with_all = [
        "pids", "tids", "comm", "cgroup", "user_threads", "kernel_threads", "command",
    ])]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) stacks: Stacks,

    /// The answer as a JSON object of 4096 bytes at most
    #[arg(long, conflicts_with_all = ["json", "folded"], help_heading = "Output")]
    pub(crate) brief: bool,

    /// Work cycles, too: where the slowest PCT % spend their time, as 1%
    #[arg(long, value_name = "PCT", value_parser = parse_slowest, help_heading = "Output")]
    pub(crate) slowest: Option<f64>,

    /// Work cycles that begin where a function is called, as
    /// uprobe:handle or uprobe:PATH:handle, or returns: uretprobe:…
    #[arg(long, value_name = "PLACE", help_heading = "Output")]
    from: Option<Place>,

    /// The end of such a cycle [default: where --from's function returns]
    #[arg(long, value_name = "PLACE", requires = "from", help_heading = "Output")]
    to: Option<Place>,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,

    /// From the command line's reading on.
    #[arg(skip)]
    parts: Option<Parts>,
}

/// Options of each engine.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Waits, who ended them, and the account of all time.
    pub(crate) waits: WaitArgs,
    /// Neighbours that were waited behind.
    pub(crate) queue: QueueArgs,
    /// Functions on CPUs.
    pub(crate) cpu: CpuArgs,
    /// Requests to disks, everyone's.
    pub(crate) disks: DiskArgs,
    pub(crate) everyone: Settings,
    /// Locks.
    pub(crate) locks: LockArgs,
}

/// A share of the cycles, percent, with its sign or without.
fn parse_slowest(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 50.0 => Ok(percent),
        _ => Err("a share such as 1%, 50% at most".to_owned()),
    }
}

impl Parts {
    fn of(args: &Args) -> Result<Self> {
        let mut parts = Self {
            waits: WaitArgs::try_parse_from(["offcputime", "-m", "0", "--waker"])?,
            queue: QueueArgs::try_parse_from(["runqlat"])?,
            cpu: CpuArgs::try_parse_from(["profile", "-F", &SAMPLES_HZ.to_string(), "--threads"])?,
            disks: DiskArgs::try_parse_from(["biolatency", "-D", "-P", "--phases"])?,
            locks: LockArgs::try_parse_from(["lockstat"])?,
            everyone: Targets::default().resolve()?,
        };
        for stacks in [&mut parts.waits.stacks, &mut parts.cpu.stacks] {
            stacks.clone_from(&args.stacks);
            stacks.output.clear();
        }
        (parts.locks.unwind, parts.locks.no_inline) = (args.stacks.unwind, args.stacks.no_inline);
        parts.locks.native = args.stacks.native;
        for (targets, budget) in [
            (&mut parts.waits.targets, &mut parts.waits.budget),
            (&mut parts.queue.targets, &mut parts.queue.budget),
            (&mut parts.locks.targets, &mut parts.locks.budget),
            (&mut parts.cpu.targets, &mut parts.cpu.budget),
        ] {
            targets.clone_from(&args.targets);
            *budget = args.budget;
        }
        parts.waits.details = true;
        parts.waits.cycles = args.slowest.is_some();
        parts.waits.marks = args.marks();
        parts.cpu.moments = args.has_timeline();
        parts.cpu.singles = args.slowest.is_some();
        parts.queue.by_victim = args.chooses();
        Ok(parts)
    }
}

impl Args {
    /// Options of its engines.
    pub(crate) fn parts(&self) -> Result<&Parts> {
        self.parts.as_ref().context("its engines have no options")
    }

    /// Looks whether it is about the program that loses most.
    pub(crate) fn chooses(&self) -> bool {
        self.targets.are_all() && !self.all
    }

    /// Tells if some output has a line of time.
    pub(crate) fn has_timeline(&self) -> bool {
        let files = self.stacks.output.iter().map(|file| file.format);
        let mut all = files.chain(self.stacks.format(&self.common));
        all.any(|format| matches!(format, Format::Json | Format::File(FileFormat::Html)))
    }

    /// Functions that tell work cycles.
    fn marks(&self) -> Option<Marks> {
        let from = self.from.clone()?;
        Some(Marks::new(from, self.to.clone()))
    }

    /// Text for the user when `--from` and `--to` lead nowhere.
    fn check_marks(&self) -> Result<(), String> {
        let Some(marks) = self.marks() else {
            return Ok(());
        };
        marks.check(&self.targets)?;
        if self.chooses() {
            return Err("--from: of whom? give -p PID, --comm, --cgroup, COMMAND or --all".into());
        }
        Ok(())
    }

    /// Length of the run.
    pub(crate) fn window(&self) -> For {
        let duration = self.duration;
        For { duration }
    }

    /// Sets what nobody asked for.
    fn with_defaults(mut self) -> Result<Self> {
        if self.targets.command.is_empty() {
            self.duration.get_or_insert(LENGTH);
        }
        self.budget.set_default(MAX_OVERHEAD);
        if self.from.is_some() {
            self.slowest.get_or_insert(SLOWEST);
        }
        self.parts = Some(Parts::of(&self)?);
        Ok(self)
    }
}

impl Options for Args {
    const NAME: &'static str = "why";
    /// The account's are all engines'.
    const NEEDS: &'static [Need] = <WaitArgs as Options>::NEEDS;

    fn asked(&self) -> Asked<'_> {
        Asked {
            outputs: &self.stacks.output,
            ..Asked::new(&self.targets, self.window(), &self.budget, &self.common)
        }
    }

    fn from_command_line(line: &[OsString]) -> Result<Self> {
        let args = Self::parse_from(line);
        if let Err(problem) = args.check_marks() {
            Self::command()
                .error(ErrorKind::ValueValidation, problem)
                .exit()
        }
        args.with_defaults()
    }

    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        let Some(parts) = &self.parts else {
            return Vec::new();
        };
        let all = [
            parts.waits.programs(kernel, targets),
            parts.queue.programs(kernel, targets),
            parts.cpu.programs(kernel, targets),
            parts.disks.programs(kernel, &parts.everyone),
            parts.locks.programs(kernel, targets),
        ];
        // One that a part has no use for may be another's.
        let mut used: BTreeMap<&'static str, bool> = BTreeMap::new();
        for (name, is_used) in all.into_iter().flatten() {
            *used.entry(name).or_default() |= is_used;
        }
        used.into_iter().collect()
    }
}
