//! Options of syscount.

use bpf::syscount::types::{group_by, rodata, syscount_config, wait_config};
use budget::Budget;
use clap::Parser;
use session::needs;
use session::options::Common;
use session::probe::{Kernel, Need};
use session::schedule::Every;
use session::targets::{Settings, Targets};
use session::{Asked, Options};

use crate::syscount::names;

const EXAMPLES: &str = "\
Examples:
  syscount                   # until Ctrl-C
  syscount 1 10              # ten one-second reports
  syscount -p 123 10         # one process
  syscount -x 10 1           # only calls that fail, the most first
  syscount -e EACCES         # who is refused, and by which call?
  syscount --by-name 5 1     # postgres as one, not a row per backend
  syscount -- make -j4       # a command and its children";

/// Which system calls take the time, and fail
#[derive(Parser, Debug)]
#[command(name = "syscount", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(mut_arg("max_overhead", |arg| arg.help(
    "Limit overhead to PCT % of the machine's CPU time; if necessary\nend the run early"
)))]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) every: Every,

    #[command(flatten)]
    pub(crate) targets: Targets,

    /// Only calls that fail, those that fail most first
    #[arg(short = 'x', long, help_heading = "Calls")]
    pub(crate) failures: bool,

    /// Only calls that fail with this error: ENOENT, or 2
    #[arg(short, long, value_name = "ERRNO", value_parser = names::error_number, help_heading = "Calls")]
    pub(crate) errno: Option<u32>,

    /// A row per thread and call, not per process and call
    #[arg(short = 'L', long, group = "grouping", help_heading = "Calls")]
    pub(crate) by_thread: bool,

    /// A row per call of all processes of one name
    #[arg(long, group = "grouping", help_heading = "Calls")]
    pub(crate) by_name: bool,

    /// A row per call, whoever makes it
    #[arg(long, group = "grouping", help_heading = "Calls")]
    pub(crate) by_call: bool,

    /// Print the first N rows; JSON has them all
    #[arg(
        short = 'T',
        long,
        value_name = "N",
        default_value_t = 20,
        help_heading = "Calls"
    )]
    pub(crate) top: usize,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Grouping of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Process,
    Thread,
    Name,
    Call,
}

impl Args {
    /// Grouping of rows.
    pub(crate) fn group(&self) -> Group {
        match (self.by_thread, self.by_name, self.by_call) {
            (true, ..) => Group::Thread,
            (_, true, _) => Group::Name,
            (.., true) => Group::Call,
            _ => Group::Process,
        }
    }

    /// Looks whether calls that succeed are left out.
    pub(crate) fn only_failures(&self) -> bool {
        self.failures || self.errno.is_some()
    }

    /// Fills the BPF side's constants; an option missing here does not compile.
    pub(crate) fn to_bpf(&self, targets: &Settings, rodata: &mut rodata) {
        rodata.targets = bpf::target_config!(bpf::syscount::types, targets);
        rodata.comm_glob = bpf::comm_glob!(bpf::syscount::types, &targets.comm);
        rodata.waits = wait_config {
            takes_fd: host::waits::takes_fd(),
            ..wait_config::default()
        };
        rodata.config = syscount_config {
            group_by: match self.group() {
                Group::Process => group_by::BY_PROCESS,
                Group::Thread => group_by::BY_THREAD,
                Group::Name => group_by::BY_NAME,
                Group::Call => group_by::BY_CALL,
            },
            failures: self.only_failures().into(),
            error: self.errno.unwrap_or(0),
        };
    }
}

impl Options for Args {
    const NAME: &'static str = "syscount";
    const NEEDS: &'static [Need] = &[needs::TASK_STORAGE];

    fn asked(&self) -> Asked<'_> {
        Asked::new(&self.targets, self.every, &self.budget, &self.common)
    }

    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        let mut programs = targets.programs(kernel);
        // It times no switches.
        programs.retain(|(name, _)| !name.starts_with("sched_switch"));
        programs
    }
}
