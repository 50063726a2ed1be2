//! What can be asked of pressure.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use budget::Budget;
use clap::Parser;
use host::privileges::{Capabilities, FOR_REPETITION};
use session::glob::Glob;
use session::needs;
use session::options::Common;
use session::probe::{Feature, Kernel, Need};
use session::schedule::{Every, Schedule};
use session::targets::{Settings, Targets, cgroup2_mount};
use session::{Asked, Options};

use crate::pressure::psi::Source;
use crate::pressure::trigger::Trigger;
use crate::pressure::victims::Filter;

/// How long `--trigger` captures when no interval is given.
const CAPTURE: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  pressure 2                 # what is short right now, every two seconds
  pressure 10 1              # one report over ten seconds
  pressure -s 5 1            # and stack traces of victims and culprits
  pressure --cgroups 2       # which cgroup is it?
  pressure --trigger 'memory some 150ms/2s' 5   # sleep until it happens";

/// Which resource is short right now, and which tasks lose by it or cause it
#[derive(Parser, Debug)]
#[command(name = "pressure", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(mut_arg("max_overhead", |arg| arg.help(
    "Limit overhead to PCT % of the machine's CPU time; if necessary\nleave out stacks, then end the run early"
)))]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) every: Every,

    /// Show only victims in these processes
    #[arg(
        short,
        long = "pid",
        value_name = "PID",
        value_delimiter = ',',
        help_heading = "Targets"
    )]
    pub(crate) pids: Vec<u32>,

    /// Show only victims among these threads
    #[arg(
        short,
        long = "tid",
        value_name = "TID",
        value_delimiter = ',',
        help_heading = "Targets"
    )]
    pub(crate) tids: Vec<u32>,

    /// Show only victims whose name matches, e.g. 'nginx*'
    #[arg(long, value_name = "GLOB", help_heading = "Targets")]
    pub(crate) comm: Option<Glob>,

    /// The pressure on this cgroup v2 directory, and its victims
    #[arg(long, value_name = "PATH", help_heading = "Targets")]
    pub(crate) cgroup: Option<PathBuf>,

    /// Show only victims that are user threads
    #[arg(
        short,
        long,
        conflicts_with = "kernel_threads",
        help_heading = "Targets"
    )]
    pub(crate) user_threads: bool,

    /// Show only victims that are kernel threads
    #[arg(short, long, help_heading = "Targets")]
    pub(crate) kernel_threads: bool,

    /// Also the pressure on every cgroup (v2)
    #[arg(long, conflicts_with = "cgroup", help_heading = "Targets")]
    pub(crate) cgroups: bool,

    /// Also show stack traces of victims and culprits
    #[arg(short, long, help_heading = "Stacks")]
    pub(crate) stacks: bool,

    /// Wait, without tracing, until the kernel reports this much pressure:
    /// 'memory some 150ms/2s'; then trace for INTERVAL, 10 s if not given
    #[arg(long, value_name = "WHAT", value_parser = Trigger::parse, help_heading = "Trigger")]
    pub(crate) trigger: Option<Trigger>,

    /// After the report, wait for the trigger again
    #[arg(long, requires = "trigger", help_heading = "Trigger")]
    pub(crate) repeat: bool,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,

    /// Everybody: pressure is the machine's, and who is shown is decided afterwards.
    #[arg(skip)]
    traced: Targets,
}

/// Tracepoints in pairs that bracket a stall on memory, with their programs.
const BRACKETS: [(&str, &str, &str, &str); 5] = [
    (
        "mm_vmscan_direct_reclaim_begin",
        "direct_reclaim_begins",
        "mm_vmscan_direct_reclaim_end",
        "direct_reclaim_ends",
    ),
    (
        "mm_vmscan_memcg_reclaim_begin",
        "memcg_reclaim_begins",
        "mm_vmscan_memcg_reclaim_end",
        "memcg_reclaim_ends",
    ),
    (
        "mm_compaction_begin",
        "compaction_begins",
        "mm_compaction_end",
        "compaction_ends",
    ),
    (
        "mm_vmscan_node_reclaim_begin",
        "node_reclaim_begins",
        "mm_vmscan_node_reclaim_end",
        "node_reclaim_ends",
    ),
    (
        "mm_vmscan_kswapd_wake",
        "kswapd_begins",
        "mm_vmscan_kswapd_sleep",
        "kswapd_ends",
    ),
];

impl Args {
    /// Whose pressure is asked about.
    ///
    /// # Errors
    ///
    /// A process, thread or cgroup that does not exist.
    pub(crate) fn source(&self) -> Result<Source> {
        let targets = Targets {
            pids: self.pids.clone(),
            tids: self.tids.clone(),
            cgroup: self.cgroup.clone(),
            ..Targets::default()
        };
        targets.resolve()?;
        if self.cgroups && cgroup2_mount().is_none() {
            bail!("--cgroups: cgroup v2 is not mounted here: mount -t cgroup2 none /mnt");
        }
        Ok(self.cgroup.clone().map_or(Source::System, Source::Cgroup))
    }

    /// Whose losses are shown.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            tgids: self.pids.clone(),
            tids: self.tids.clone(),
            comm: self.comm.clone(),
            kernel_threads: match (self.user_threads, self.kernel_threads) {
                (true, _) => Some(false),
                (_, true) => Some(true),
                _ => None,
            },
            cgroup: self.cgroup.clone(),
            ..Filter::default()
        }
    }
}

impl Options for Args {
    const NAME: &'static str = "pressure";
    const NEEDS: &'static [Need] = &[
        needs::TASK_STORAGE,
        Need {
            feature: Feature::SpinLock,
            without: "locks are entries of a hash table: slower; who finds one busy for long goes ahead and is counted",
        },
        needs::SWITCH_STATE,
        Need {
            feature: Feature::BlockErrors,
            without: "requests that fail are not counted",
        },
        Need {
            feature: Feature::TaskRegisters,
            without: "with -s, user registers are taken from the top of the kernel stack",
        },
        Need {
            feature: Feature::MappingTree,
            without: "with -s, user stacks of processes that are not listed yet are walked by frame pointers",
        },
        Need {
            feature: Feature::SwitchEnd,
            without: "-s walks user stacks at every switch",
        },
        Need {
            feature: Feature::Psi,
            without: "SOME, FULL and AVG10 are unknown, and there are no triggers",
        },
    ];

    fn asked(&self) -> Asked<'_> {
        let per_trigger = self.trigger.is_some();
        let schedule = Schedule {
            interval: self.every.interval.or(per_trigger.then_some(CAPTURE)),
            count: self.every.count.or(per_trigger.then_some(1)),
            duration: None,
        };
        Asked::new(&self.traced, schedule, &self.budget, &self.common)
    }

    fn resolve(&self) -> Result<Settings> {
        self.source()?;
        Ok(Settings {
            own_tgid: u32::MAX,
            ..self.traced.resolve()?
        })
    }

    fn repeats(&self) -> bool {
        self.repeat
    }

    fn more_capabilities(&self) -> Capabilities {
        match self.repeat {
            true => FOR_REPETITION,
            false => Capabilities::empty(),
        }
    }

    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        let mut programs = targets.programs(kernel);
        programs.extend([
            ("block_bio_queue", kernel.has_tracepoint("block_bio_queue")),
            ("block_rq_error", kernel.has_tracepoint("block_rq_error")),
            (
                "sched_exit",
                self.stacks && kernel.has_tracepoint("sched_exit_tp"),
            ),
            ("unwind_fork", self.stacks),
            ("unwind_exec", self.stacks),
        ]);
        for (begin, begins, end, ends) in BRACKETS {
            let both = kernel.has_tracepoint(begin) && kernel.has_tracepoint(end);
            programs.extend([(begins, both), (ends, both)]);
        }
        programs
    }
}
