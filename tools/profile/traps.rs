//! Ways to put a program on a function, and what a trap costs in each.

use std::path::Path;

use anyhow::{Result, bail};
use bpf::profile::ProfileSkel;
use budget::meter::runs;
use libbpf_rs::{Link, UprobeMultiOpts, UprobeOpts};
use session::traps;

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
/// and what a trap costs, ns.
pub(crate) fn measure(skel: &ProfileSkel<'_>) -> Result<(Method, u64)> {
    for method in [Method::Multi, Method::Event] {
        let put = |pid, file: &Path, offset| method.attach(skel, pid, file, offset);
        let trap_ns = match traps::trap_ns(put, || method.runs(skel)) {
            Err(_) if method == Method::Multi => continue,
            trap_ns => trap_ns?,
        };
        if let Some(trap_ns) = trap_ns {
            return Ok((method, trap_ns));
        }
    }
    bail!("measure a trap: no program ran on our own function: uprobes do not work here")
}
