//! Loads what the options ask for and this kernel has.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use bpf::lockstat::{LockstatSkel, LockstatSkelBuilder, OpenLockstatMaps};
use libbpf_rs::{Link, MapCore, MapFlags};
use loader::section;
use loader::tracefs;
use session::Setup;
use session::probe::Kernel;

use crate::lockstat::args::Args;
use crate::lockstat::row::Side;

/// Attached, but nothing counts yet.
pub(crate) fn load(args: &Args, setup: &Setup<'_>) -> Result<(LockstatSkel<'static>, FutexHooks)> {
    let builder = LockstatSkelBuilder::default();
    let skel = loader::load(builder, &setup.programs, &[], |open| {
        let rodata = section(open.maps.rodata_data.as_deref_mut(), ".rodata")?;
        args.to_bpf(setup.targets, rodata);
        bpf::share_unwind_maps!(open, &setup.tables);
        if setup.tables.is_some() {
            make_small(&mut open.maps)?;
        }
        bpf::keep_members!(open, setup.programs.contains(&("task_freed", true)));
        let cpus = u32::try_from(loader::maps::possible_cpus()?)?;
        open.maps.run_queues.set_max_entries(cpus)?;
        let progs = &mut open.progs;
        for program in [
            &mut progs.futex_entry,
            &mut progs.futex_exit,
            &mut progs.compat_entries,
            &mut progs.compat_returns,
        ] {
            program.set_autoattach(false);
        }
        Ok(())
    })?;
    let hooks = FutexHooks::attach(args, setup.kernel, &skel)?;
    Ok((skel, hooks))
}

/// Locks, waiters in places, and rows of histograms that there is room for beside other engines.
const LOCKS: u32 = 8192;
const WAITERS: u32 = 16_384;
const ROWS: u32 = 16_384;
const HOLDERS: u32 = 4096;
/// The same of stacks, and of bytes of those that are on their way.
const STACKS: u32 = 16_384;
const RING: u32 = 2 << 20;

fn make_small(maps: &mut OpenLockstatMaps<'_>) -> Result<()> {
    maps.lock_buckets.set_max_entries(ROWS)?;
    maps.waiters.set_max_entries(WAITERS)?;
    maps.locks.set_max_entries(LOCKS)?;
    maps.stacks_sent.set_max_entries(STACKS)?;
    maps.stack_ring.set_max_entries(RING)?;
    maps.holders.set_max_entries(HOLDERS)?;
    maps.lock_names.set_max_entries(LOCKS)?;
    Ok(maps.futex_locks.set_max_entries(LOCKS)?)
}

/// Calls in which threads wait for locks of programs, but for futex(2) itself: of Linux 5.16, of 6.7, what takes up timed waits, and those
/// of file locks and of semaphores.
const MORE_CALLS: [&str; 8] = [
    "futex_waitv",
    "futex_wait",
    "futex_requeue",
    "restart_syscall",
    "flock",
    "fcntl",
    "semop",
    "semtimedop",
];

/// The hooks at futex calls and their returns. One program serves all returns: each takes the verifier long.
#[derive(Default)]
pub(crate) struct FutexHooks {
    _links: Vec<Link>,
    /// The hooks that 32-bit calls need, and every other system call pays for: attached when a target is such a program.
    compat: Vec<Link>,
}

impl FutexHooks {
    pub(crate) fn attach(args: &Args, kernel: &Kernel, skel: &LockstatSkel<'_>) -> Result<Self> {
        if !args.traces(Side::User) {
            return Ok(Self::default());
        }
        let (entry, exit) = (&skel.progs.futex_entry, &skel.progs.futex_exit);
        let mut links = vec![tracefs::attach(entry, "syscalls", "sys_enter_futex")?];
        let more = MORE_CALLS
            .iter()
            .filter(|call| kernel.has_syscall_exit(call));
        for call in [&"futex"].into_iter().chain(more) {
            let name = format!("sys_exit_{call}");
            links.push(tracefs::attach(exit, "syscalls", &name)?);
        }
        Ok(Self {
            _links: links,
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
        let returns = tracefs::attach(&skel.progs.compat_returns, "raw_syscalls", "sys_exit")?;
        let entries = skel.progs.compat_entries.attach();
        self.compat.push(returns);
        self.compat
            .push(entries.context("attach BPF program to 32-bit calls")?);
        bss.futex_compat_calls = 1;
        Ok(())
    }
}
