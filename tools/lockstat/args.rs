//! What can be asked of lockstat.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bpf::lockstat::types::{lockstat_config, rodata, stack_config};
use budget::Budget;
use clap::{Parser, ValueEnum};
use session::needs;
use session::options::Common;
use session::output::{Format, OutputFile};
use session::probe::{Feature, Kernel, Need};
use session::schedule::{For, Schedule, parse_duration};
use session::targets::{Settings, Targets};
use session::{Asked, Options};
use stacks::unwind::Method;

use crate::lockstat::futex::{Class, Rules};
use crate::lockstat::postgres;
use crate::lockstat::row::Side;

const EXAMPLES: &str = "\
Examples:
  lockstat 10                  # the whole machine, 10 s
  lockstat -p 123 -s 3 10      # one process, with the heaviest stacks
  lockstat -K -i 1             # kernel locks, every second
  lockstat --folded -p 123 10 > locks.folded
  lockstat -- make -j4         # a command and its children
  lockstat --now -p 123        # it hangs: who waits for whom?

Folded values are microseconds.";

/// Options that mean nothing to `--now`, which looks once.
const NOT_WITH_NOW: [&str; 15] = [
    "native",
    "duration",
    "interval",
    "command",
    "kernel",
    "user",
    "class",
    "rules",
    "hist",
    "folded",
    "waker",
    "delimited",
    "annotate",
    "output",
    "max_overhead",
];

/// Which locks make threads wait, for how long, and who holds them
#[derive(Parser, Debug)]
#[command(name = "lockstat", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(mut_arg("max_overhead", |arg| arg.help(
    "Limit overhead to PCT % of the machine's CPU time; if necessary\nleave out stacks, then end the run early"
)))]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) window: For,

    /// Time between reports: seconds, or 200us, 500ms, 30s, 2m, 1h
    #[arg(short, long, value_name = "INTERVAL", value_parser = parse_duration, conflicts_with = "output")]
    pub(crate) interval: Option<Duration>,

    #[command(flatten)]
    pub(crate) targets: Targets,

    /// Who waits for whom at this instant, and deadlocks; traces nothing
    #[arg(long, help_heading = "Locks", conflicts_with_all = NOT_WITH_NOW)]
    pub(crate) now: bool,

    /// With --now, the statements of PostgreSQL's sessions, ? for each value
    #[arg(long, requires = "now", help_heading = "Locks")]
    pub(crate) query: bool,

    /// Only locks of the kernel
    #[arg(short = 'K', long, help_heading = "Locks")]
    pub(crate) kernel: bool,

    /// Only locks of programs: futexes, file locks, System V semaphores, tokens
    #[arg(short = 'U', long, conflicts_with = "kernel", help_heading = "Locks")]
    pub(crate) user: bool,

    /// Also waits for work
    #[arg(
        long,
        value_name = "CLASS",
        value_delimiter = ',',
        conflicts_with = "kernel",
        help_heading = "Locks",
        help = "Also threads that wait for work, in these classes: cond, sem, sysv-sem, eventfd, join, barrier, park, unknown, and PostgreSQL's client, activity, timeout, or all"
    )]
    pub(crate) class: Vec<ExtraClass>,

    /// Rules of what waiting in a function means, before the built-in ones
    /// (repeatable)
    #[arg(
        long,
        value_name = "FILE",
        value_parser = rules_of,
        conflicts_with = "kernel",
        help_heading = "Locks"
    )]
    pub(crate) rules: Vec<Rules>,

    /// Show N locks (default: those with 1 % of all waiting, at most 20)
    #[arg(short = 'n', long, value_name = "N", help_heading = "Report")]
    pub(crate) top: Option<usize>,

    /// For each lock the N heaviest stacks of waiters and of holders
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Report"
    )]
    pub(crate) stacks: usize,

    /// For each lock the distribution of waits
    #[arg(long, help_heading = "Report")]
    pub(crate) hist: bool,

    /// Folded stacks of waiters, in us
    #[arg(short, long, conflicts_with = "json", help_heading = "Report")]
    pub(crate) folded: bool,

    /// Add the stack trace of the thread that released the lock
    #[arg(long, help_heading = "Report")]
    pub(crate) waker: bool,

    /// A '-' frame between user and kernel part of folded stacks
    #[arg(short, long, help_heading = "Report")]
    pub(crate) delimited: bool,

    /// Mark frames in folded output.
    #[arg(
        short,
        long,
        help = "Mark frames in folded output: _[k] kernel, _[i] inlined, _[j] JIT",
        help_heading = "Report"
    )]
    pub(crate) annotate: bool,

    /// Also write FILE; its ending is the format (repeatable).
    #[arg(
        short,
        long,
        value_name = "FILE",
        help_heading = "Report",
        help = "Also write FILE; the extension selects the format: .folded .svg .html .json .pb.gz .speedscope.json .perf.txt (repeatable)"
    )]
    pub(crate) output: Vec<OutputFile>,

    /// How user stacks are walked
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Stacks"
    )]
    pub(crate) unwind: Method,

    /// Inlined functions get no frames of their own
    #[arg(long, help_heading = "Stacks")]
    pub(crate) no_inline: bool,

    /// The interpreter's loop, too, below functions of Python
    #[arg(long, help_heading = "Stacks")]
    pub(crate) native: bool,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// `--class`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExtraClass {
    Cond,
    Sem,
    SysvSem,
    Eventfd,
    Join,
    Barrier,
    Park,
    Unknown,
    Client,
    Activity,
    Timeout,
    All,
}

impl ExtraClass {
    /// Looks whether a class of this word is asked for.
    fn includes(self, word: &str) -> bool {
        let own = self.to_possible_value();
        self == Self::All || own.is_some_and(|own| own.get_name() == word)
    }
}

/// Classes of PostgreSQL's waits for work.
const OF_SERVERS: [postgres::Class; 3] = [
    postgres::Class::Client,
    postgres::Class::Activity,
    postgres::Class::Timeout,
];

/// Longest file of rules, bytes.
const LONGEST_RULES: u64 = 1 << 20;

/// `--rules`
fn rules_of(file: &str) -> Result<Rules, String> {
    read_rules(file).map_err(|error| format!("{error:#}"))
}

fn read_rules(file: &str) -> Result<Rules> {
    let mut text = String::new();
    let opened = File::open(file).with_context(|| format!("open {file}"))?;
    let read = opened.take(LONGEST_RULES + 1).read_to_string(&mut text);
    let bytes = read.with_context(|| format!("read {file}"))?;
    ensure!(bytes as u64 <= LONGEST_RULES, "{file} is longer than 1 MiB");
    Rules::parse(&text).map_err(|mistake| anyhow!("{mistake}"))
}

impl Args {
    /// Classes of programs' locks that are shown even where threads wait for work.
    pub(crate) fn classes(&self) -> Vec<Class> {
        let families = Class::FAMILIES.into_iter();
        families
            .filter(|class| self.asks_for(class.word()))
            .collect()
    }

    /// The same of PostgreSQL's waits.
    pub(crate) fn server_classes(&self) -> Vec<postgres::Class> {
        let classes = OF_SERVERS.into_iter();
        classes
            .filter(|class| self.asks_for(class.word()))
            .collect()
    }

    fn asks_for(&self, word: &str) -> bool {
        self.class.iter().any(|extra| extra.includes(word))
    }

    /// The user's, then ours.
    pub(crate) fn rules(&self) -> Rules {
        let users = self.rules.iter().cloned();
        users
            .fold(Rules::default(), |all, file| all.then(&file))
            .then(Rules::ours())
    }

    /// Whether locks of this side are traced.
    pub(crate) fn traces(&self, side: Side) -> bool {
        match side {
            Side::Kernel => !self.user,
            Side::User => !self.kernel,
        }
    }

    /// The format of stdout.
    pub(crate) fn format(&self) -> Format {
        match (self.folded, self.common.json) {
            (true, _) => Format::Folded,
            (_, true) => Format::Json,
            _ => Format::Human,
        }
    }

    /// Whether all stacks are written, not only the heaviest.
    pub(crate) fn needs_names(&self) -> bool {
        self.format() != Format::Human || !self.output.is_empty()
    }

    /// Whether the stacks of those who release locks are reported.
    fn wants_releasers(&self) -> bool {
        self.waker || self.stacks > 0 || self.common.json
    }

    /// Whether the profile of the waiters has them, too.
    pub(crate) fn profiles_releasers(&self) -> bool {
        self.waker || self.common.json
    }

    /// Fills the BPF side's constants; an option missing here does not compile.
    pub(crate) fn to_bpf(&self, targets: &Settings, rodata: &mut rodata) {
        rodata.targets = bpf::target_config!(bpf::lockstat::types, targets);
        rodata.comm_glob = bpf::comm_glob!(bpf::lockstat::types, &targets.comm);
        bpf::unwind_by!(rodata, self.unwind);
        rodata.calls_for_work = host::waits::for_work();
        rodata.config = lockstat_config {
            interrupts: self.targets.are_all().into(),
            holder_stacks: (self.stacks > 0 || self.common.json).into(),
            releasers: stack_config {
                no_user: (!self.wants_releasers()).into(),
                no_kernel: (!self.wants_releasers()).into(),
            },
            futexes: self.traces(Side::User).into(),
            kernel_locks: self.traces(Side::Kernel).into(),
        };
    }
}

impl Options for Args {
    const NAME: &'static str = "lockstat";
    const NEEDS: &'static [Need] = &[
        needs::TASK_STORAGE,
        needs::SWITCH_STATE,
        Need {
            feature: Feature::Contention,
            without: "kernel locks are not traced",
        },
        needs::TASK_REGISTERS,
        needs::MAPPING_TREE,
        Need {
            feature: Feature::TaskOfPid,
            without: "holders have no stacks, and the one of a program's lock is its waker",
        },
        Need {
            feature: Feature::TaskOfVpid,
            without: "the holder of a lock in a container is its waker",
        },
        Need {
            feature: Feature::SlabCache,
            without: "kernel locks in slab memory are named by their first caller",
        },
    ];

    fn asked(&self) -> Asked<'_> {
        Asked {
            common: &self.common,
            targets: &self.targets,
            budget: &self.budget,
            schedule: Schedule {
                interval: self.interval,
                ..self.window.into()
            },
            outputs: &self.output,
        }
    }

    fn narrow_to(&mut self, kernel: &Kernel) -> Result<()> {
        const SINCE: &str = "contention_begin came with Linux 5.19";
        if !self.traces(Side::Kernel) || kernel.has_tracepoint("contention_begin") {
            return Ok(());
        }
        ensure!(
            !self.kernel,
            "this kernel says nothing of its locks: {SINCE}; -U traces those of programs"
        );
        self.user = true;
        if !self.common.quiet {
            profile::say!("lockstat: kernel locks are not traced: {SINCE}");
        }
        Ok(())
    }

    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        let kernel_locks = self.traces(Side::Kernel) && kernel.has_tracepoint("contention_begin");
        let futexes = self.traces(Side::User);
        let mut programs = targets.programs(kernel);
        programs.extend([
            ("futex_entry", futexes),
            ("futex_exit", futexes),
            ("compat_entries", futexes),
            ("compat_returns", futexes),
            ("contention_begin", kernel_locks),
            ("contention_end", kernel_locks),
            ("unwind_fork", self.unwind != Method::Fp),
            ("unwind_exec", self.unwind != Method::Fp),
        ]);
        programs
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
