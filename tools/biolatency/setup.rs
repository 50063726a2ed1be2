//! From options to programs at work.

use anyhow::Result;
use bpf::biolatency::{BiolatencySkel, BiolatencySkelBuilder};
use trace::cgroups;
use trace::loader::{self, section};
use trace::privileges;
use trace::probe::{self, Kernel};
use trace::targets::{Settings, Targets};
use trace::window::monotonic_ns;

use crate::args::{Args, NEEDS};

/// The submitters, and the cgroup, which is not theirs but that of the I/O.
pub(crate) fn resolve(targets: &Targets) -> Result<(Settings, u64)> {
    let submitters = Targets {
        cgroup: None,
        ..targets.clone()
    };
    let cgroup_id = targets.cgroup.as_deref().map(cgroups::block_cgroup_id);
    Ok((submitters.resolve()?, cgroup_id.transpose()?.unwrap_or(0)))
}

/// Loads and attaches what the options need.
pub(crate) fn load(
    args: &Args,
    (targets, cgroup_id): (&Settings, u64),
    kernel: &Kernel,
) -> Result<BiolatencySkel<'static>> {
    let programs = args.programs(kernel, targets);
    if args.common.verbose {
        probe::say("biolatency", kernel, &NEEDS, &programs);
    }
    loader::load(BiolatencySkelBuilder::default(), &programs, |open| {
        args.to_bpf(
            (targets, cgroup_id),
            kernel,
            section(open.maps.rodata_data.as_deref_mut(), ".rodata")?,
        );
        // Preallocated, and not used.
        if !args.is_grouped() {
            open.maps.groups.set_max_entries(1)?;
            open.maps.buckets.set_max_entries(1)?;
        }
        if !args.tracks() {
            // Only for what the kernel does not stamp.
            open.maps.started.set_max_entries(16_384)?;
        }
        if !args.phases {
            open.maps.submitted.set_max_entries(1)?;
        }
        Ok(())
    })
}

/// Says what is asked for; from now on less privilege will do.
pub(crate) fn seed(args: &Args, skel: &BiolatencySkel<'_>, targets: &Settings) -> Result<()> {
    targets.fill(&skel.maps.target_tgids, &skel.maps.target_tids)?;
    privileges::keep_for_tracing("biolatency", args.targets.capabilities());
    Ok(())
}

/// Time counts from now on.
pub(crate) fn open_window(skel: &mut BiolatencySkel<'_>) -> Result<u64> {
    let start_ns = monotonic_ns();
    section(skel.maps.bss_data.as_deref_mut(), ".bss")?.window_start_ns = start_ns;
    Ok(start_ns)
}

/// Says that from now on everything counts.
pub(crate) fn announce(args: &Args) {
    if !args.common.quiet {
        let measured: Vec<&str> = args.measured().iter().map(|phase| phase.title()).collect();
        trace::say!(
            "biolatency: tracing block I/O, time {}; Ctrl-C ends",
            measured.join(", ")
        );
    }
}
