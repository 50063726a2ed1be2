//! Loads what the options ask for and this kernel has.

use anyhow::{Result, bail};
use bpf::lockstat::{LockstatSkel, LockstatSkelBuilder};
use trace::loader::{self, section};
use trace::probe::{self, Kernel};
use trace::targets::Settings;

use crate::args::{Args, NEEDS};
use crate::row::Side;

/// Attached, but nothing counts yet.
pub(crate) fn load(
    args: &Args,
    kernel: &Kernel,
    targets: &Settings,
) -> Result<LockstatSkel<'static>> {
    if args.traces(Side::Kernel) && !kernel.has_tracepoint("contention_begin") {
        bail!(
            "this kernel says nothing of its locks: contention_begin came with Linux 5.19; -U traces those of programs"
        );
    }
    let programs = args.programs(kernel, targets);
    if args.common.verbose {
        eprint!("{}", probe::describe("lockstat", kernel, &NEEDS, &programs));
    }
    loader::load(LockstatSkelBuilder::default(), &programs, |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        args.to_bpf(targets, rodata);
        bpf::keep_members!(open, programs.contains(&("task_freed", true)));
        let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?)?;
        open.maps.run_queues.set_max_entries(cpus)?;
        Ok(())
    })
}
