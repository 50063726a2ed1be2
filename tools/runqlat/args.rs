//! What can be asked of runqlat.

use std::time::Duration;

use bpf::runqlat::types::{group_by, rodata, runqlat_config};
use budget::Budget;
use clap::Parser;
use host::clock::nanoseconds;
use session::needs;
use session::options::{Common, Histograms};
use session::probe::{Kernel, Need};
use session::schedule::{Every, parse_duration};
use session::targets::{Settings, Targets};
use session::{Asked, Options};

const EXAMPLES: &str = "\
Examples:
  runqlat                    # until Ctrl-C
  runqlat 1 10               # ten one-second reports
  runqlat -P -p 123          # one process, named
  runqlat --by-cpu 5 1       # is one CPU overloaded?
  runqlat --slower 10ms      # each wait of 10 ms and more, as it happens
  runqlat -- make -j4        # a command and its children";

/// How long runnable threads wait for a CPU, and behind whom
#[derive(Parser, Debug)]
#[command(name = "runqlat", version, after_help = EXAMPLES, max_term_width = 80)]
pub struct Args {
    #[command(flatten)]
    pub(crate) every: Every,

    #[command(flatten)]
    pub(crate) targets: Targets,

    /// A histogram per process
    #[arg(short = 'P', long, group = "grouping", help_heading = "Histograms")]
    pub(crate) by_process: bool,

    /// A histogram per thread
    #[arg(short = 'L', long, group = "grouping", help_heading = "Histograms")]
    pub(crate) by_thread: bool,

    /// A histogram per CPU
    #[arg(long, group = "grouping", help_heading = "Histograms")]
    pub(crate) by_cpu: bool,

    /// A histogram per cgroup (v2)
    #[arg(long, group = "grouping", help_heading = "Histograms")]
    pub(crate) by_cgroup: bool,

    /// Only waits that began with a wakeup
    #[arg(long, conflicts_with = "preempt", help_heading = "Histograms")]
    pub(crate) wakeup: bool,

    /// Only waits of threads that were taken off their CPU
    #[arg(long, help_heading = "Histograms")]
    pub(crate) preempt: bool,

    /// Print each wait of TIME or more as it happens (10ms, 500us)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Histograms")]
    pub(crate) slower: Option<Duration>,

    #[command(flatten)]
    pub(crate) histograms: Histograms,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,

    /// Tasks waited behind, of each process that waited: for tools that it is a part of
    #[arg(skip)]
    pub(crate) by_victim: bool,
}

/// What the histograms are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Machine,
    Process,
    Thread,
    Cpu,
    Cgroup,
}

/// `1 << enum wait_cause` of the BPF side.
const WAKEUPS: u32 = 1 << 1;
const PREEMPTIONS: u32 = 1 << 2;

impl Args {
    /// What the histograms are of.
    pub(crate) fn group(&self) -> Group {
        match (self.by_process, self.by_thread, self.by_cpu, self.by_cgroup) {
            (true, ..) => Group::Process,
            (_, true, ..) => Group::Thread,
            (_, _, true, _) => Group::Cpu,
            (.., true) => Group::Cgroup,
            _ => Group::Machine,
        }
    }

    /// Fills the BPF side's constants; an option missing here does not compile.
    pub(crate) fn to_bpf(&self, targets: &Settings, rodata: &mut rodata) {
        rodata.targets = bpf::target_config!(bpf::runqlat::types, targets);
        rodata.comm_glob = bpf::comm_glob!(bpf::runqlat::types, &targets.comm);
        rodata.config = runqlat_config {
            group_by: match self.group() {
                Group::Machine => group_by::BY_MACHINE,
                Group::Process => group_by::BY_PROCESS,
                Group::Thread => group_by::BY_THREAD,
                Group::Cpu => group_by::BY_CPU,
                Group::Cgroup => group_by::BY_CGROUP,
            },
            causes: match (self.wakeup, self.preempt) {
                (true, _) => WAKEUPS,
                (_, true) => PREEMPTIONS,
                _ => WAKEUPS | PREEMPTIONS,
            },
            slower_ns: self.slower.map_or(0, nanoseconds),
            by_victim: self.by_victim.into(),
            pad: 0,
        };
    }
}

impl Options for Args {
    const NAME: &'static str = "runqlat";
    const NEEDS: &'static [Need] = &[needs::TASK_STORAGE, needs::SWITCH_STATE];

    fn asked(&self) -> Asked<'_> {
        Asked::new(&self.targets, self.every, &self.budget, &self.common)
    }

    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        targets.programs(kernel)
    }
}
