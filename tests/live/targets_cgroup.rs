//! A process that goes into a cgroup, and out of it.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::clock::monotonic_ns;
use session::targets::cgroup2_mount;

use crate::beside::bare::TURNS;
use crate::c_program::compile;
use crate::kernel::skip;
use crate::prelude::*;
use crate::psi::bracketed;
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

    /// Its ID, which is the directory's inode.
    fn id(&self) -> u64 {
        fs::metadata(&self.0).expect("it is there").ino()
    }

    /// A program that is in it from its first instruction on.
    fn run(&self, program: &str) {
        let script = format!(
            "echo $$ > {}/cgroup.procs; exec {program}",
            self.0.display()
        );
        let status = Command::new("sh").args(["-c", &script]).status();
        assert!(status.expect("sh runs").success(), "{script}");
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
    // The tools' windows end when each of them hears of it: this is the resident's time in this one's.
    let window = number(offcputime, "end_ns") - number(offcputime, "start_ns");
    let lifetime = number(offcputime, "accounting.lifetime_ns") - window;
    assert_within("ns in that cgroup", lifetime, moved.length(), offcputime);
}

#[test]
fn locks_and_run_queues_of_a_cgroup_are_its_own() {
    let _machine = Machine::alone();
    let Some(root) = cgroup_root() else {
        return skip("cgroup v2 cannot be written");
    };
    let dir = tempfile::tempdir().expect("a directory");
    let inside = Cgroup::new(&root, &format!("usekit-test-{}", std::process::id()));
    let turns = compile(dir.path(), "turns", TURNS, ["-pthread"]);
    let turns = turns.to_str().expect("UTF-8");
    let both = || {
        inside.run(turns);
        let outside = Command::new(turns).status();
        assert!(outside.expect("it runs").success());
    };
    let target = format!("--cgroup {}", inside.0.display());
    let (output, ()) = during("lockstat", format!("-j -U {target}"), both);
    let report = output.report();
    let mutexes = list(&report, "locks").iter();
    let mutexes = mutexes.filter(|lock| lock["class"] == "mutex");
    // Emulated CPUs are in each other's way: who is late finds the lock free, and events are lost, and counted.
    let found = sum(mutexes.clone(), "contentions") + sum(mutexes, "raced");
    let losses = report["losses"].as_object().expect("losses").values();
    let lost = losses.filter_map(Value::as_u64).sum();
    assert_all("waits", found, lost, 23, &report);

    // The cgroup alone tells which of the two it was.
    let (output, ()) = during("runqlat", "-j --by-cgroup", both);
    let report = output.report();
    let groups = list(&report, "groups").iter();
    let own: Vec<&Value> = groups
        .filter(|group| group["cgroup"] == inside.id())
        .collect();
    let [group] = own[..] else {
        panic!("{} groups of it: {report:#}", own.len())
    };
    // The process' 23 threads are new once each, and the first thread naps.
    assert_within("waits", number(group, "count"), 46.., &report);
    let (output, ()) = during("runqlat", "--by-cgroup", both);
    let name = format!("\ncgroup = {}\n", inside.0.display());
    assert!(output.stdout.contains(&name), "{}", output.stdout);
    let (output, ()) = during("runqlat", format!("-j --by-cgroup {target}"), both);
    let report = output.report();
    assert_eq!(only(&report, "groups")["cgroup"], inside.id(), "{report:#}");
}

/// 23 calls, and a nap of 10 ms after each.
const NAPS: &str = r"
int main(void)
{
	for (int i = 0; i < 23; i++) {
		syscall(SYS_getppid);
		usleep(10000);
	}
	return 0;
}
";

#[test]
fn calls_and_naps_of_a_cgroup_are_its_own() {
    let _machine = Machine::alone();
    let Some(root) = cgroup_root() else {
        return skip("cgroup v2 cannot be written");
    };
    let dir = tempfile::tempdir().expect("a directory");
    let inside = Cgroup::new(&root, &format!("usekit-test-{}", std::process::id()));
    let [napping, elsewhere] =
        ["napping", "elsewhere"].map(|name| compile(dir.path(), name, NAPS, ""));
    let napping = napping.to_str().expect("UTF-8");
    let both = || {
        inside.run(napping);
        let outside = Command::new(&elsewhere).status();
        assert!(outside.expect("it runs").success());
    };
    let target = format!("-j --cgroup {}", inside.0.display());
    let event = "-e tracepoint:syscalls:sys_enter_getppid";
    let (output, ()) = during("profile", format!("{event} {target}"), both);
    let report = output.report();
    assert_eq!(number(&report, "events.samples"), 23, "{report:#}");
    let (output, ()) = during("offcputime", target, both);
    let report = output.report();
    let asleep = |stack: &&Value| stack["reason"] == "sleep";
    let (own, others): (Vec<&Value>, Vec<&Value>) = list(&report, "stacks")
        .iter()
        .filter(asleep)
        .partition(|stack| stack["comm"] == "napping");
    assert!(others.is_empty(), "{others:#?}");
    let slept = sum(own, "values.0");
    assert_within("ns asleep", slept, 230_000_000.., &report);
}

#[test]
fn the_cgroup_that_is_short_is_in_the_list_of_all() {
    let _machine = Machine::alone();
    let Some(root) = cgroup_root() else {
        return skip("cgroup v2 cannot be written");
    };
    let inside = Cgroup::new(&root, &format!("usekit-test-{}", std::process::id()));
    let mut workload = Workload::spinners(4, 2);
    inside.take(u64::from(workload.pid()));
    let path = inside.0.to_str().expect("UTF-8");
    let file = format!("{path}/cpu.pressure");
    let found = bracketed(&mut workload, "--cgroups", &file);
    workload.finish();
    let cgroups = list(&found.report, "cgroups").iter();
    let own: Vec<&Value> = cgroups.filter(|cgroup| cgroup["path"] == path).collect();
    let [cgroup] = own[..] else {
        panic!("{} rows of it: {:#}", own.len(), found.report)
    };
    let lost = number(cgroup, "cpu.some.lost_ns");
    assert_within("ns lost there", lost, found.some_ns, &found.report);
}
