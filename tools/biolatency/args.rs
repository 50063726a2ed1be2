//! What can be asked of biolatency.

use std::time::Duration;

use anyhow::Result;
use bpf::biolatency::types::{biolatency_config, phase, request_flags, rodata};
use budget::Budget;
use clap::Parser;
use host::clock::nanoseconds;
use session::cgroups;
use session::options::{Common, Histograms};
use session::probe::{Feature, Kernel, Need};
use session::schedule::{Every, parse_duration};
use session::targets::{Settings, Targets};
use session::{Asked, Options};

use crate::biolatency::disks::Disk;

const EXAMPLES: &str = "\
Examples:
  biolatency                    # until Ctrl-C
  biolatency 1 10               # ten one-second reports
  biolatency -d vda --phases 5  # one disk: waiting and device apart
  biolatency -F 10 1            # by operation and flags
  biolatency -P -d /dev/sda1    # who uses that partition?
  biolatency --slower 50ms      # each I/O of 50 ms and more, as it ends
  biolatency -Q -- sync         # a command and its children";

/// How long block I/O takes, queued and in the device; how busy disks are
#[derive(Parser, Debug)]
#[command(name = "biolatency", version, after_help = EXAMPLES, max_term_width = 80)]
#[command(mut_arg("cgroup", |arg| arg.help(
    "Only I/O charged to this cgroup directory and below"
)))]
#[command(mut_arg("max_overhead", |arg| arg.help(
    "Limit overhead to PCT % of the machine's CPU time; if necessary\nend the run early"
)))]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) every: Every,

    /// Only this disk or partition: vda, /dev/sda1 (repeatable)
    #[arg(short, long = "disk", value_name = "DISK", help_heading = "Targets")]
    pub(crate) disks: Vec<Disk>,

    #[command(flatten)]
    pub(crate) targets: Targets,

    /// From the request's start to its completion, not in the device only
    #[arg(
        short = 'Q',
        long,
        conflicts_with = "phases",
        help_heading = "Histograms"
    )]
    pub(crate) queued: bool,

    /// A histogram for each phase: before the queue, queued, device
    #[arg(long, help_heading = "Histograms")]
    pub(crate) phases: bool,

    /// A histogram per disk
    #[arg(short = 'D', long, help_heading = "Histograms")]
    pub(crate) by_disk: bool,

    /// A histogram per operation and its flags
    #[arg(short = 'F', long, help_heading = "Histograms")]
    pub(crate) by_flags: bool,

    /// A histogram per process: the submitter
    #[arg(short = 'P', long, help_heading = "Histograms")]
    pub(crate) by_process: bool,

    /// A histogram per cgroup: the one that the I/O is charged to
    #[arg(long, help_heading = "Histograms")]
    pub(crate) by_cgroup: bool,

    /// Print each I/O of TIME or more as it ends (50ms, 500us)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Histograms")]
    pub(crate) slower: Option<Duration>,

    #[command(flatten)]
    pub(crate) histograms: Histograms,

    #[command(flatten)]
    pub(crate) budget: Budget,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// A part of a request's life; the values of the BPF side's `enum phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Device = 0,
    Queued = 1,
    Before = 2,
    Total = 3,
}

impl Phase {
    /// The one that the BPF side's number stands for.
    pub(crate) fn of(number: u32) -> Self {
        let all = [Self::Device, Self::Queued, Self::Before, Self::Total];
        all.get(number as usize).copied().unwrap_or(Self::Total)
    }

    /// The word for it in JSON.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Queued => "queued",
            Self::Before => "before",
            Self::Total => "total",
        }
    }

    /// The words for it before a histogram.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Device => "in the device",
            Self::Queued => "queued",
            Self::Before => "before the queue",
            Self::Total => "from start to completion",
        }
    }
}

impl Args {
    /// What there are histograms of, in the order of a request's life.
    pub(crate) fn measured(&self) -> &'static [Phase] {
        match (self.queued, self.phases) {
            (true, _) => &[Phase::Total],
            (_, true) => &[Phase::Before, Phase::Queued, Phase::Device],
            _ => &[Phase::Device],
        }
    }

    /// Whether histograms are of groups.
    pub(crate) fn is_grouped(&self) -> bool {
        self.by_disk || self.by_flags || self.by_process || self.by_cgroup
    }

    /// Looks whether groups are disks, which have an order that people know.
    pub(crate) fn is_by_disk_only(&self) -> bool {
        !(self.by_flags || self.by_process || self.by_cgroup)
    }

    /// Looks whether a group may have both reads and writes, and is not all there is.
    pub(crate) fn splits_groups(&self) -> bool {
        self.is_grouped() && !self.by_flags
    }

    /// Whether submitters are chosen.
    fn by_submitter(&self) -> bool {
        let targets = &self.targets;
        !targets.pids.is_empty()
            || !targets.tids.is_empty()
            || targets.comm.is_some()
            || targets.user_threads
            || targets.kernel_threads
            || !targets.command.is_empty()
    }

    /// Whether more is wanted of a request than the kernel keeps in it.
    pub(crate) fn tracks(&self) -> bool {
        self.by_submitter()
            || self.by_process
            || self.by_flags
            || self.phases
            || self.slower.is_some()
    }

    /// Whether a total ends where the kernel's own account does; the request's cgroup is not known there any more.
    fn ends_at_done(&self, kernel: &Kernel) -> bool {
        self.queued
            && kernel.has_tracepoint("block_io_done")
            && !self.by_cgroup
            && self.targets.cgroup.is_none()
    }

    /// Whether all I/O of the disks is asked for.
    pub(crate) fn is_everyones(&self) -> bool {
        !self.by_submitter() && self.targets.cgroup.is_none()
    }

    /// The disks and partitions that were chosen, as the kernel numbers them.
    pub(crate) fn devs(&self) -> Result<Vec<u32>> {
        self.disks.iter().map(Disk::dev).collect()
    }

    /// The cgroup that I/O is charged to, not its submitter's; 0: any.
    pub(crate) fn cgroup_id(&self) -> Result<u64> {
        let id = self.targets.cgroup.as_deref().map(cgroups::block_cgroup_id);
        Ok(id.transpose()?.unwrap_or(0))
    }

    /// Fills the BPF side's constants; an option missing here does not compile.
    pub(crate) fn to_bpf(
        &self,
        (targets, cgroup_id): (&Settings, u64),
        kernel: &Kernel,
        rodata: &mut rodata,
    ) {
        rodata.targets = bpf::target_config!(bpf::biolatency::types, targets);
        rodata.comm_glob = bpf::comm_glob!(bpf::biolatency::types, &targets.comm);
        let flag = |name| kernel.enumerator(name).map(|bit| 1 << bit);
        rodata.request_flags = request_flags {
            // Macros until 6.10, this one always the same.
            flush_seq: flag("__RQF_FLUSH_SEQ").unwrap_or(1 << 4),
            io_stat: flag("__RQF_IO_STAT").unwrap_or(0),
        };
        rodata.config = biolatency_config {
            phases: self
                .measured()
                .iter()
                .map(|measured| 1 << (*measured as u32))
                .sum(),
            by_disk: self.by_disk.into(),
            by_flags: self.by_flags.into(),
            by_process: self.by_process.into(),
            by_cgroup: self.by_cgroup.into(),
            by_dev: (!self.disks.is_empty()).into(),
            by_submitter: self.by_submitter().into(),
            track: self.tracks().into(),
            slower_ns: self.slower.map_or(0, nanoseconds),
            slower_phase: if self.queued || self.phases {
                phase::PHASE_TOTAL
            } else {
                phase::PHASE_DEVICE
            },
            total_at_done: self.ends_at_done(kernel).into(),
            stats_flag: kernel
                .enumerator("QUEUE_FLAG_STATS")
                .and_then(|bit| u32::try_from(bit + 1).ok())
                .unwrap_or(0),
            has_start: kernel.has_tracepoint("block_io_start").into(),
            cgroup_id,
        };
    }
}

impl Options for Args {
    const NAME: &'static str = "biolatency";
    const NEEDS: &'static [Need] = &[Need {
        feature: Feature::BlockAccounting,
        without: "requests begin where they are inserted or issued, which is when their submitter is looked up",
    }];

    fn asked(&self) -> Asked<'_> {
        Asked::new(&self.targets, self.every, &self.budget, &self.common)
    }

    fn resolve(&self) -> Result<Settings> {
        self.devs()?;
        self.cgroup_id()?;
        let submitters = Targets {
            cgroup: None,
            ..self.targets.clone()
        };
        submitters.resolve()
    }

    fn programs(&self, kernel: &Kernel, targets: &Settings) -> Vec<(&'static str, bool)> {
        let tracks = self.tracks();
        let has_start = kernel.has_tracepoint("block_io_start");
        // Both before 5.11 and where that change was taken over, arguments tell.
        let has_queue = kernel.tracepoint_arguments("block_rq_issue") == Some(2);
        let twin = |name, old_name, wanted| {
            [
                (name, wanted && !has_queue),
                (old_name, wanted && has_queue),
            ]
        };
        let mut programs = vec![
            ("block_io_start", has_start && (tracks || self.queued)),
            ("block_io_done", self.ends_at_done(kernel)),
        ];
        programs.extend(twin(
            "block_rq_insert",
            "block_rq_insert_pre_5_11",
            tracks && !has_start,
        ));
        programs.extend(twin(
            "block_rq_issue",
            "block_rq_issue_pre_5_11",
            tracks || !self.queued || !has_start,
        ));
        programs.extend(twin("block_rq_merge", "block_rq_merge_pre_5_11", tracks));
        programs.extend(twin("block_rq_requeue", "block_rq_requeue_pre_5_11", true));
        let before = self.phases && has_start;
        programs.extend(twin("block_bio_queue", "block_bio_queue_pre_5_11", before));
        programs.extend(twin("block_split", "block_split_pre_5_11", before));
        programs.push(("sched_process_fork", targets.has_ids()));
        programs.push(("sched_process_exec", targets.follow));
        programs.push(("sched_process_exit", targets.follow));
        programs.push(("sched_process_free", targets.follow));
        programs
    }
}
