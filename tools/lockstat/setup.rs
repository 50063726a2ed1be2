//! Loads what the options ask for and this kernel has.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use bpf::lockstat::{LockstatSkel, LockstatSkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, TracepointCategory};
use trace::loader::{self, section};
use trace::probe::Kernel;
use trace::session::Setup;

use crate::args::Args;
use crate::row::Side;

/// Attached, but nothing counts yet.
pub(crate) fn load(
    args: &Args,
    setup: &Setup<'_>,
) -> Result<(LockstatSkel<'static>, FutexReturns)> {
    let builder = LockstatSkelBuilder::default();
    let skel = loader::load(builder, setup.programs, |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        args.to_bpf(setup.targets, rodata);
        bpf::keep_members!(open, setup.programs.contains(&("task_freed", true)));
        let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?)?;
        open.maps.run_queues.set_max_entries(cpus)?;
        open.progs.compat_entries.set_autoattach(false);
        open.progs.compat_returns.set_autoattach(false);
        Ok(())
    })?;
    let returns = FutexReturns::attach(args, setup.kernel, &skel)?;
    Ok((skel, returns))
}

/// Calls in which threads wait for futexes, but for futex(2) itself: of Linux 5.16, of 6.7, and what takes up timed waits.
const MORE_CALLS: [&str; 4] = [
    "futex_waitv",
    "futex_wait",
    "futex_requeue",
    "restart_syscall",
];

/// The hooks at the returns of futex calls. One program for all of them: each takes the verifier long.
#[derive(Default)]
pub(crate) struct FutexReturns {
    _links: Vec<Link>,
    /// The hooks that 32-bit calls need, and every other system call pays for: attached when a target is such a program.
    compat: Vec<Link>,
}

impl FutexReturns {
    pub(crate) fn attach(args: &Args, kernel: &Kernel, skel: &LockstatSkel<'_>) -> Result<Self> {
        let calls = MORE_CALLS
            .iter()
            .filter(|call| args.traces(Side::User) && kernel.has_syscall_exit(call));
        let links = calls.map(|call| {
            let exit = &skel.progs.futex_exit;
            exit.attach_tracepoint(TracepointCategory::Syscalls, format!("sys_exit_{call}"))
                .with_context(|| format!("attach BPF program to returns of {call}"))
        });
        Ok(Self {
            _links: links.collect::<Result<_>>()?,
            compat: Vec::new(),
        })
    }

    /// Looks whether it is time.
    pub(crate) fn follow_compat(&mut self, skel: &mut LockstatSkel<'_>) -> Result<()> {
        let bss = section(skel.maps.bss_data.as_deref_mut(), ".bss")?;
        if !self.compat.is_empty() || bss.futex_compat_tasks == 0 {
            return Ok(());
        }
        let exit = skel.progs.futex_exit.as_fd().as_raw_fd();
        skel.maps
            .futex_returns
            .update(&0_u32.to_ne_bytes(), &exit.to_ne_bytes(), MapFlags::ANY)
            .context("chain BPF programs")?;
        for program in [
            &mut skel.progs.compat_returns,
            &mut skel.progs.compat_entries,
        ] {
            let attached = program.attach();
            self.compat
                .push(attached.context("attach BPF programs to 32-bit calls")?);
        }
        bss.futex_compat_calls = 1;
        Ok(())
    }
}
