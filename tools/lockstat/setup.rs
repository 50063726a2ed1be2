//! Loads what the options ask for and this kernel has.

use anyhow::{Context, Result, bail};
use bpf::lockstat::{LockstatSkel, LockstatSkelBuilder};
use libbpf_rs::Link;
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
        open.progs.compat_returns.set_autoattach(false);
        Ok(())
    })
}

/// The hook that returns of 32-bit futex calls need, and every other system call pays for: attached when a target is such a
/// program.
#[derive(Default)]
pub(crate) struct CompatReturns {
    link: Option<Link>,
}

impl CompatReturns {
    /// Looks whether it is time.
    pub(crate) fn follow(&mut self, skel: &mut LockstatSkel<'_>) -> Result<()> {
        let bss = section(skel.maps.bss_data.as_deref_mut(), ".bss")?;
        if self.link.is_some() || bss.futex_compat_tasks == 0 {
            return Ok(());
        }
        let attached = skel.progs.compat_returns.attach();
        self.link = Some(attached.context("attach BPF program to returns of 32-bit calls")?);
        bss.futex_compat_returns = 1;
        Ok(())
    }
}
