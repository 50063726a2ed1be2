//! What a trap into the kernel costs on this machine: 1 us on bare metal, tens of them in nested virtual machines.

use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bpf::profile::ProfileSkel;
use budget::meter::runs;
use libbpf_rs::{Link, UprobeMultiOpts, UprobeOpts};
use symbols::own_file_offset;

/// Measurements, of which the fastest counts: others were interrupted.
const MEASUREMENTS: u32 = 5;
/// Calls in each.
const CALLS: u32 = 50;

/// How a program is put on a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Method {
    /// Behind a perf event. Since ef1b808e3b7c (6.13) it goes on trapping for tens of milliseconds while it is taken away.
    #[default]
    Event,
    /// With uprobe_multi, which traps no more as soon as it is taken away.
    Multi,
}

impl Method {
    /// Puts the program at `offset` in a file, for one process or, with -1, all. By name libbpf finds no function for uprobe_multi in
    /// a file that has one of the two symbol tables alone.
    pub(crate) fn attach(
        self,
        skel: &ProfileSkel<'_>,
        pid: i32,
        file: &Path,
        offset: usize,
    ) -> libbpf_rs::Result<Link> {
        match self {
            Self::Event => {
                let program = &skel.progs.on_uprobe;
                program.attach_uprobe_with_opts(pid, file, offset, UprobeOpts::default())
            }
            Self::Multi => {
                let mut options = UprobeMultiOpts::default();
                options.offsets.push(offset);
                let program = &skel.progs.on_uprobe_multi;
                program.attach_uprobe_multi_with_opts(pid, file, "", options)
            }
        }
    }

    fn runs(self, skel: &ProfileSkel<'_>) -> u64 {
        match self {
            Self::Event => runs(&skel.progs.on_uprobe),
            Self::Multi => runs(&skel.progs.on_uprobe_multi),
        }
    }
}

/// Measured on a function of our own with the program that is going to run, before anything counts: how it is best put on functions,
/// and what a trap costs, ns. In another thread: uprobe_multi before 46ba0e49b642 (6.10) sees but one.
pub(crate) fn measure(skel: &ProfileSkel<'_>) -> Result<(Method, u64)> {
    let offset = own_file_offset(probed as *const () as u64)
        .context("measure a trap: our own function is in no file")?;
    let offset = usize::try_from(offset).context("file offset")?;
    let own = i32::try_from(std::process::id()).context("PID")?;
    let without_ns = in_another_thread();
    for method in [Method::Multi, Method::Event] {
        let before = method.runs(skel);
        let link = match method.attach(skel, own, Path::new("/proc/self/exe"), offset) {
            Err(_) if method == Method::Multi => continue,
            link => link.context("measure a trap: attach to our own function")?,
        };
        let with_ns = in_another_thread();
        drop(link);
        if method.runs(skel) - before >= u64::from(MEASUREMENTS * CALLS) {
            return Ok((method, with_ns.saturating_sub(without_ns)));
        }
    }
    bail!("measure a trap: no program ran on our own function: uprobes do not work here")
}

fn in_another_thread() -> u64 {
    thread::spawn(fastest_ns).join().unwrap_or(0)
}

#[inline(never)]
extern "C" fn probed(n: u32) -> u32 {
    black_box(n) + 1
}

/// A call's.
fn fastest_ns() -> u64 {
    let measured = (0..MEASUREMENTS).map(|_| {
        let start = Instant::now();
        for n in 0..CALLS {
            black_box(probed(black_box(n)));
        }
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) / u64::from(CALLS)
    });
    measured.min().unwrap_or(0)
}
