//! What can be asked of offcputime.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use bpf::offcputime::types::{offcputime_config, rodata, stack_config, wait_config};
use budget::Budget;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use host::waits;
use profile::folded;
use session::needs;
use session::options::{Common, Stacks};
use session::probe::{Feature, Kernel, Need};
use session::schedule::For;
use session::targets::{Settings, Targets};
use session::{Asked, Options};
use stacks::unwind::Method;

use crate::offcputime::marks::Marks;

const EXAMPLES: &str = "\
Examples:
  offcputime 10                      # the whole machine, 10 s
  offcputime -p 123 30 > out.folded  # folded stacks of one process, in us
  offcputime --waker -p 123 5        # and who woke it
  offcputime --state 2 10            # uninterruptible waits only
  offcputime -- make -j4             # a command and its children

What a change of a program changed:
  offcputime -p 123 30 -o before.json
  offcputime -p 123 30 -o after.json   # the new version, under the same load
  flame diff before.json after.json -o change.html

Folded values are microseconds.";

/// Where threads wait, why, and who woke them: time off the CPU by stack
#[derive(Parser, Debug)]
#[command(name = "offcputime", version, after_help = EXAMPLES, max_term_width = 80)]
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

    /// Ignore waits shorter than US microseconds
    #[arg(
        short,
        long,
        value_name = "US",
        default_value_t = DEFAULT_MIN_US,
        help_heading = "Waits"
    )]
    pub(crate) min_block_time: u64,

    /// Ignore waits longer than US microseconds
    #[arg(short = 'M', long, value_name = "US", help_heading = "Waits")]
    pub(crate) max_block_time: Option<u64>,

    /// Only waits in these states: bit mask, 1 interruptible, 2
    /// uninterruptible; 0: runnable
    #[arg(long, value_name = "MASK", help_heading = "Waits", value_parser = parse_mask)]
    pub(crate) state: Option<u32>,

    /// Split off-CPU time into blocked and run queue time
    #[arg(long, help_heading = "Waits")]
    pub(crate) split: bool,

    /// Put the reason of each wait at the root of its stack
    #[arg(long, help_heading = "Waits")]
    pub(crate) reason: bool,

    /// Add the waker's stack trace
    #[arg(long, help_heading = "Waits")]
    pub(crate) waker: bool,

    /// Waits of threads with nothing to do: fold into one [idle] frame (default for people), show (default for folded), or show only them
    #[arg(long, value_name = "HOW", help_heading = "Waits")]
    pub(crate) idle: Option<Idle>,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,

    /// Time by process, and lengths of waits: for tools that it is a part of
    #[arg(skip)]
    pub(crate) details: bool,

    /// Pieces of work: for tools that it is a part of, with details
    #[arg(skip)]
    pub(crate) cycles: bool,

    /// Functions that tell them; else they go from where a thread waits for work until it waits there again
    #[arg(skip)]
    pub(crate) marks: Option<Marks>,
}

/// `--idle`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    Fold,
    Show,
    Only,
}

impl From<Idle> for folded::Idle {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Fold => Self::Fold,
            Idle::Show => Self::Show,
            Idle::Only => Self::Only,
        }
    }
}

/// Shortest wait that is shown, us, if nobody asks for another.
const DEFAULT_MIN_US: u64 = 1;

/// `STATE_ANY` of the BPF side.
const STATE_ANY: u32 = u32::MAX;

fn parse_mask(text: &str) -> Result<u32, String> {
    let (digits, radix) = text
        .strip_prefix("0x")
        .map_or((text, 10), |digits| (digits, 16));
    u32::from_str_radix(digits, radix)
        .ok()
        .filter(|mask| *mask != STATE_ANY)
        .ok_or_else(|| "not a bit mask; write 0, 1, 2, 3 or 0x82".into())
}

impl Args {
    /// Fills the BPF side's constants; an option missing here does not compile.
    pub(crate) fn to_bpf(&self, targets: &Settings, walk_on_exit: bool, rodata: &mut rodata) {
        let us = |us: u64| u64::try_from(Duration::from_micros(us).as_nanos()).unwrap_or(u64::MAX);
        rodata.targets = bpf::target_config!(bpf::offcputime::types, targets);
        rodata.comm_glob = bpf::comm_glob!(bpf::offcputime::types, &targets.comm);
        rodata.waits = wait_config {
            futex_syscall: waits::futex_syscall(),
            pad: 0,
            takes_fd: waits::takes_fd(),
        };
        bpf::unwind_by!(rodata, self.stacks.unwind);
        rodata.config = offcputime_config {
            stacks: stack_config {
                no_user: self.stacks.kernel_stacks.into(),
                no_kernel: self.stacks.user_stacks.into(),
            },
            min_ns: us(self.min_block_time),
            max_ns: self.max_block_time.map_or(u64::MAX, us),
            state_mask: self.state.unwrap_or(STATE_ANY),
            wakers: self.waker.into(),
            walk_on_exit: walk_on_exit.into(),
            details: self.details.into(),
            cycles: self.cycles.into(),
            calls: self
                .marks
                .as_ref()
                .is_some_and(|marks| marks.are_of_calls(&self.targets))
                .into(),
            on_fd: waits::on_fd(),
        };
    }
}

impl Args {
    /// Looks whether no wait is left out for its length or its state.
    pub(crate) fn sees_all_waits(&self) -> bool {
        self.min_block_time <= DEFAULT_MIN_US
            && self.max_block_time.is_none()
            && self.state.is_none()
    }
}

impl Args {
    /// Options that were given and leave out waits: `-m 5 and --state 2`; `None`: only the default does.
    pub(crate) fn leaving_out(&self) -> Option<String> {
        let least = Some(self.min_block_time).filter(|us| *us > DEFAULT_MIN_US);
        let options = [
            least.map(|us| format!("-m {us}")),
            self.max_block_time.map(|us| format!("-M {us}")),
            self.state.map(|mask| format!("--state {mask}")),
        ];
        let options: Vec<String> = options.into_iter().flatten().collect();
        (!options.is_empty()).then(|| options.join(" and "))
    }
}

impl Options for Args {
    const NAME: &'static str = "offcputime";
    const NEEDS: &'static [Need] = &[
        needs::TASK_STORAGE,
        needs::SWITCH_STATE,
        needs::TASK_REGISTERS,
        needs::MAPPING_TREE,
        Need {
            feature: Feature::SwitchEnd,
            without: "user stacks are walked at every switch, also for waits that are not reported",
        },
    ];

    fn asked(&self) -> Asked<'_> {
        Asked {
            outputs: &self.stacks.output,
            ..Asked::new(&self.targets, self.window, &self.budget, &self.common)
        }
    }

    fn from_command_line(line: &[OsString]) -> Result<Self> {
        let args = Self::parse_from(line);
        if args
            .max_block_time
            .is_some_and(|max| max < args.min_block_time)
        {
            let problem = "-M is less than -m: no wait can be as long as both want";
            Self::command()
                .error(ErrorKind::ArgumentConflict, problem)
                .exit()
        }
        Ok(args)
    }

    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        let mut programs = targets.programs(kernel);
        programs.extend([
            ("sched_exit", kernel.has_tracepoint("sched_exit_tp")),
            ("sched_waking", self.waker),
            ("work_begins", self.marks.is_some()),
            ("work_ends", self.marks.is_some()),
            ("unwind_fork", self.stacks.unwind != Method::Fp),
            ("unwind_exec", self.stacks.unwind != Method::Fp),
        ]);
        programs
    }
}
