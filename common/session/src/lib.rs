//! A run of a tracing tool, from its options to its exit status.
//!
//! A tool's [`Options`] say what can be asked of it and what that takes; its [`Engine`] is a set of BPF programs at work, and what becomes of
//! what they count. All that happens in between happens here, and in the same order for every tool.

mod asked;
pub mod cgroups;
pub mod chosen;
pub mod closing;
mod collect;
pub mod command;
pub mod detaching;
pub mod glob;
mod intervals;
mod lives;
pub mod names;
pub mod needs;
pub mod next;
pub mod options;
pub mod outcome;
pub mod output;
pub mod probe;
pub mod program;
pub mod progress;
pub mod quotas;
pub mod requirements;
pub mod sampling;
pub mod schedule;
mod setup;
pub mod symptoms;
pub mod targets;
pub mod together;
pub mod traps;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::fd::RawFd;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use budget::meter::Meter;
use clap::Parser;
use host::clock::{Edges, monotonic_ns};
use host::privileges::{self, Capabilities, FOR_FILES};
use host::signals::Signals;
use symbols::KernelNames;

use crate::closing::Closing;
use crate::collect::{Ending, finish};
use crate::command::Corked;
use crate::lives::Lives;
use crate::names::Names;
use crate::outcome::Outcome;
use crate::output::OutputFile;
use crate::probe::{Kernel, Need};
use crate::progress::State;
use crate::targets::Settings;

pub use asked::Asked;
use intervals::report_each;
pub use setup::{Setup, StackSetup};

/// A tracing tool's command line.
pub trait Options: Parser {
    /// Its command.
    const NAME: &'static str;
    /// Features of newer kernels that it uses, and what happens without.
    const NEEDS: &'static [Need];

    /// The options that mean the same in every tool.
    fn asked(&self) -> Asked<'_>;

    /// Those of a command line that begins with the tool's name; ends the program where it makes no sense.
    ///
    /// # Errors
    ///
    /// A complaint that clap cannot make.
    fn from_command_line(line: &[OsString]) -> Result<Self> {
        Ok(Self::parse_from(line))
    }

    /// Checks that everything named exists, before anything is loaded.
    ///
    /// # Errors
    ///
    /// The first that does not.
    fn resolve(&self) -> Result<Settings> {
        self.asked().targets.resolve()
    }

    /// Leaves out what this kernel cannot say, and says so.
    ///
    /// # Errors
    ///
    /// That was all that was asked for.
    fn narrow_to(&mut self, _kernel: &Kernel) -> Result<()> {
        Ok(())
    }

    /// Optional programs, by name: whether this kernel and these options need them.
    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)>;

    /// Capabilities that tracing and reporting take beside those of every tool, of a command and of files.
    fn more_capabilities(&self) -> Capabilities {
        Capabilities::empty()
    }

    /// It goes on after the run's end, and traces again.
    fn repeats(&self) -> bool {
        false
    }
}

/// A tracing tool: its options, and what works for them.
pub trait Tool: Options {
    /// Its programs at work.
    type Engine<'a>: Engine
    where
        Self: 'a;

    /// Loads the programs, attaches them and finds the targets: all that takes privileges. Nothing counts yet.
    ///
    /// # Errors
    ///
    /// The kernel's refusals, with the remedy.
    fn load<'a>(&'a self, setup: &Setup<'a>) -> Result<Self::Engine<'a>>;
}

/// BPF programs that are attached, and what they have found.
pub trait Engine {
    /// Lets time count; returns when it began to, ns. `length`: of the whole run, if that is one interval; where the BPF side is
    /// told, nothing that happens later is counted, or costs what counting does.
    ///
    /// # Errors
    ///
    /// The engine's own; they end the run, as those of all that follows.
    fn open(&mut self, length: Option<Duration>) -> Result<u64>;

    /// Subject of tracing, for the line that says that tracing has begun, if the tool's name does not tell.
    fn describe(&self) -> String {
        String::new()
    }

    /// Descriptors that wake [`Self::step`] early when they are readable.
    fn fds(&self) -> Vec<RawFd>;

    /// Takes in what is new, some 20 times a second.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn step(&mut self) -> Result<State>;

    /// The interval under way is the last one and ends at `end_ns`, ns, by the clock; not called for the first one.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn close_at(&mut self, _end_ns: u64) -> Result<()> {
        Ok(())
    }

    /// Takes the interval that began at `start_ns` out of the BPF side and writes it. `end_ns` becomes the interval's end as
    /// soon as it is taken, whether or not writing succeeds.
    ///
    /// # Errors
    ///
    /// The engine's own, and of what is written to.
    fn report(&mut self, start_ns: u64, end_ns: &mut u64) -> Result<()>;

    /// The run's balance, at its end.
    ///
    /// # Errors
    ///
    /// The engine's own.
    fn closing(&mut self, window: Edges) -> Result<Closing>;
}

/// A tool's `main`, told by its command line.
pub fn main<T: Tool>(line: &[OsString]) -> ExitCode {
    program::main(T::NAME, line, || run(T::from_command_line(line)?))
}

/// A run that may begin.
pub struct Start {
    /// The running one.
    pub kernel: Kernel,
    /// Whom the tool looks at.
    pub targets: Settings,
    /// End the run.
    pub signals: Signals,
}

/// Does what comes before loading; breaks off where the options ask for something else than tracing.
///
/// # Errors
///
/// Something is missing; the remedy is named.
pub fn start<T: Options>(tool: &mut T) -> Result<ControlFlow<Outcome, Start>> {
    let asked = tool.asked();
    if let Some(shell) = asked.common.completions {
        return program::print_completions(shell, T::command()).map(ControlFlow::Break);
    }
    let targets = tool.resolve()?;
    let mut outputs = asked.outputs.iter();
    outputs.try_for_each(OutputFile::check_writable)?;
    requirements::check()?;
    let kernel = Kernel::probe()?;
    if asked.common.probe {
        let programs = tool.programs(&kernel, &targets);
        return probe::print(T::NAME, &kernel, T::NEEDS, &programs).map(ControlFlow::Break);
    }
    asked.budget.check()?;
    tool.narrow_to(&kernel)?;
    Ok(ControlFlow::Continue(Start {
        kernel,
        targets,
        signals: Signals::install()?,
    }))
}

/// Runs a tool whose command line has been read.
///
/// # Errors
///
/// Something keeps it from tracing or from reporting.
pub fn run<T: Tool>(mut tool: T) -> Result<Outcome> {
    let mut start = match start(&mut tool)? {
        ControlFlow::Break(outcome) => return Ok(outcome),
        ControlFlow::Continue(start) => start,
    };
    let Asked {
        common, targets, ..
    } = tool.asked();
    let corked = Corked::for_targets(&targets.command, &mut start.targets)?;
    let meter = Meter::start();
    let programs = tool.programs(&start.kernel, &start.targets);
    if common.verbose {
        probe::say(T::NAME, &start.kernel, T::NEEDS, &programs);
    }
    let mut engine = tool.load(&Setup {
        tool: T::NAME,
        quiet: common.quiet,
        kernel: &start.kernel,
        asked: targets,
        targets: &start.targets,
        programs,
        command: corked.as_ref().map(Corked::who),
        meter: &meter,
        tables: None,
        walker: None,
        kernel_names: KernelNames::default(),
    })?;
    trace(&tool, &mut engine, &start.signals, corked)
}

/// From an engine that is attached to the closing lines; `corked` is let go as soon as time counts.
///
/// # Errors
///
/// Those of [`run()`].
pub fn trace<T: Options>(
    tool: &T,
    engine: &mut impl Engine,
    signals: &Signals,
    corked: Option<Corked>,
) -> Result<Outcome> {
    privileges::keep_for_tracing(T::NAME, capabilities(tool));
    let Asked {
        common,
        schedule,
        targets,
        ..
    } = tool.asked();
    let names = Names::look(targets);
    let lives = Lives::look(targets);
    if let Some(remark) = lives.remark().filter(|_| lives.are_over()) {
        bail!("{remark} before tracing began");
    }
    let start_ns = engine.open(schedule.only())?;
    if !common.quiet {
        let command = corked.as_ref().map(|_| "until the command ends".to_owned());
        let words = schedule.describe(engine.describe(), command.or_else(|| lives.awaited()));
        profile::say!("{}: {words}", T::NAME);
    }
    if corked.is_some() {
        // Several engines are told of an edge that lies ahead.
        let ahead_ns = start_ns.saturating_sub(monotonic_ns());
        thread::sleep(Duration::from_nanos(ahead_ns));
    }
    let mut command = corked.map(Corked::start).transpose()?;
    let mut end_ns = start_ns;
    let ending = Ending {
        signals,
        command: command.as_mut(),
        lives: &lives,
    };
    let written = report_each(&schedule, common.quiet, ending, engine, &mut end_ns);
    let window = Edges { start_ns, end_ns };
    let ran = program::unless_closed(written, ())
        .and_then(|()| close(tool, engine, window, (&names, &lives)));
    let ran = finish(command, signals, ran);
    if !tool.repeats() {
        detaching::hand_over(common.quiet);
    }
    ran
}

/// Capabilities that a tool takes beside those of every tool.
fn capabilities(tool: &impl Options) -> Capabilities {
    let Asked {
        targets, outputs, ..
    } = tool.asked();
    let files = match outputs {
        [] => Capabilities::empty(),
        _ => FOR_FILES,
    };
    targets.capabilities() | files | tool.more_capabilities()
}

fn close<T: Options>(
    tool: &T,
    engine: &mut impl Engine,
    window: Edges,
    (names, lives): (&Names<'_>, &Lives),
) -> Result<Outcome> {
    let Asked {
        common, outputs, ..
    } = tool.asked();
    let mut closing = engine.closing(window)?;
    let remark = names.remark(closing.of_targets.unwrap_or(closing.events.0));
    closing.notes.extend(lives.remark());
    closing.notes.extend(remark);
    closing.print(T::NAME, window.duration(), common);
    for file in outputs {
        file.say(T::NAME, common.quiet);
    }
    Ok(closing.outcome(common.strict))
}
