//! A process that goes into a cgroup, and out of it.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use host::clock::monotonic_ns;
use session::targets::cgroup2_mount;

use crate::kernel::skip;
use crate::prelude::*;
use crate::targets::{Membership, Tools, assert_phase, phase, stacks, start_phases};

/// A cgroup below the root of v2; gone when dropped, its processes moved back.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(parent: &Path, name: &str) -> Self {
        let path = parent.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    fn take(&self, tgid: u64) {
        fs::write(self.0.join("cgroup.procs"), tgid.to_string()).expect("the process moves");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// From before to after, on the tools' clock.
fn timed(act: impl FnOnce()) -> RangeInclusive<u64> {
    let before = monotonic_ns();
    act();
    before..=monotonic_ns()
}

/// The root of cgroup v2, if cgroups can be made in it.
fn cgroup_root() -> Option<PathBuf> {
    let root = PathBuf::from(cgroup2_mount()?);
    let probe = root.join(format!("usekit-probe-{}", std::process::id()));
    fs::create_dir(&probe).ok()?;
    fs::remove_dir(&probe).ok()?;
    Some(root)
}

#[test]
fn a_cgroup_counts_while_a_process_is_in_it_or_below() {
    let _machine = Machine::alone();
    let Some(root) = cgroup_root() else {
        return skip("cgroup v2 cannot be written");
    };
    let dir = tempfile::tempdir().expect("a directory");
    let outer = Cgroup::new(&root, &format!("usekit-test-{}", std::process::id()));
    let inner = Cgroup::new(&outer.0, "inner");
    let mut mover = start_phases(dir.path(), &["outside", "inside", "outside-again"]);
    let mut resident = start_phases(dir.path(), &["resident"]);
    let (mover_id, resident_id) = (u64::from(mover.pid()), u64::from(resident.pid()));
    outer.take(resident_id);

    let tools = Tools::start(&format!("--cgroup {}", outer.0.display()));
    phase(&mut mover);
    let moved_in = timed(|| inner.take(mover_id));
    let inside = phase(&mut mover);
    let moved_out = timed(|| {
        fs::write(root.join("cgroup.procs"), mover_id.to_string()).expect("the process moves");
    });
    phase(&mut mover);
    let resided = phase(&mut resident);
    let seen = tools.reports();
    mover.finish();
    resident.finish();
    drop(inner);
    let [offcputime, profile, _] = &seen.reports;
    let windows = seen.reports.iter();
    let windows = windows.map(|report| number(report, "start_ns")..number(report, "end_ns"));
    let start_ns = windows.clone().map(|window| window.start).min();
    let end_ns = windows.map(|window| window.end).max();
    let (start_ns, end_ns) = start_ns.zip(end_ns).expect("three tools");
    let moved = Membership {
        begins: moved_in,
        ends: moved_out,
    };
    let stayed = Membership {
        begins: start_ns..=start_ns,
        ends: end_ns..=end_ns,
    };
    assert_phase(&seen, mover_id, &moved, &inside);
    assert_phase(&seen, resident_id, &stayed, &resided);
    for stack in [stacks(offcputime), stacks(profile)].concat() {
        let tid = number(&stack, "tid");
        assert!(tid == mover_id || tid == resident_id, "{stack}");
    }
    let window = end_ns - start_ns;
    let lifetime = number(offcputime, "accounting.lifetime_ns") - window;
    assert_within("ns in that cgroup", lifetime, moved.length(), offcputime);
}
