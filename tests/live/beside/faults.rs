//! Killed in every phase, stopped and continued, short of descriptors, many at once: nothing is left behind, and what is
//! told is true.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use oracle::ticks::Ticks;
use oracle::{Below, Engine, Logs};

use crate::full_pipe::FullPipe;
use crate::held::Held;
use crate::kernel::until;
use crate::off_cpu::{Times, phases_ns, sees_hidden};
use crate::prelude::*;
use crate::ticks::{assert_all_ticks, clock};
use crate::tool::{COMMANDED, TRACERS};
use crate::traced::assert_no_gaps;

/// Stops it to see what it holds.
fn stop(tool: &Tool) -> Held {
    tool.signal(libc::SIGSTOP);
    Held::by(tool.pid())
}

/// Stops it to see what it holds, and kills it.
fn kill(tool: Tool) -> Held {
    let held = stop(&tool);
    assert!(held.is_there(), "{held:?}");
    finish(tool);
    held
}

/// Kills it.
fn finish(tool: Tool) {
    tool.signal(libc::SIGKILL);
    assert_eq!(tool.finish().code, 128 + libc::SIGKILL);
}

#[test]
fn killed_while_loading_nothing_stays() {
    let _machine = Machine::beside();
    for tool in TRACERS.iter().copied() {
        let running = Tool::start(tool, "");
        // As soon as it has a program and maps; it is not attached then, or not with all. Those that only try what the kernel
        // can do come and go before.
        let mut held = Held::default();
        until("it loads", || {
            if Held::by(running.pid()).programs.is_empty() {
                return false;
            }
            // A stop interrupts the verifier, which then begins anew.
            held = stop(&running);
            let is_loaded = !held.programs.is_empty() && !held.maps.is_empty();
            if !is_loaded {
                running.signal(libc::SIGCONT);
            }
            is_loaded
        });
        finish(running);
        held.assert_gone(tool);
    }
}

#[test]
fn killed_while_tracing_nothing_stays() {
    let _machine = Machine::beside();
    for tool in TRACERS.iter().copied() {
        let running = Tool::attached(tool, "");
        let held = kill(running);
        let is_loaded = !held.programs.is_empty() && !held.maps.is_empty();
        let is_attached = !held.links.is_empty() || held.perf_events > 0;
        assert!(is_loaded && is_attached, "{tool}: {held:?}");
        held.assert_gone(tool);
    }
}

/// Tools that write files, with options that have them write much.
const WRITERS: [(&str, &str); 3] = [
    ("profile", "-I -F 999"),
    ("offcputime", ""),
    ("lockstat", ""),
];

#[test]
fn killed_while_reporting_nothing_stays() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    for (tool, options) in WRITERS {
        let mut pipe = FullPipe::new(dir.path().join(format!("{tool}.json")));
        let running = Tool::attached(tool, format!("{options} -o {}", pipe.path().display()));
        pipe.fill();
        running.interrupt();
        pipe.await_writer(running.pid());
        let held = stop(&running);
        finish(running);
        held.assert_gone(tool);
        assert_eq!(pipe.drain(), b"", "{tool}");
    }
}

/// SIGXFSZ comes in the middle of writing and ends it as SIGKILL would.
#[test]
fn killed_while_writing_a_file_leaves_none() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let first = WRITERS.map(|writer| (writer, None));
    let again = [(WRITERS[0], Some("old"))];
    for ((tool, options), before) in first.into_iter().chain(again) {
        let path = dir.path().join("out.json");
        if let Some(text) = before {
            fs::write(&path, text).expect("a file");
        }
        let args = format!("{options} -q -o {} 300ms", path.display());
        let mut command = Tool::command(tool, args);
        // SAFETY: two system calls.
        unsafe {
            command.pre_exec(|| {
                for (what, most) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_FSIZE, 100)] {
                    let limit = libc::rlimit {
                        rlim_cur: most,
                        rlim_max: most,
                    };
                    libc::setrlimit(what, &raw const limit);
                }
                Ok(())
            });
        }
        Tool::spawn(tool, command)
            .finish()
            .status(128 + libc::SIGXFSZ);
        let left: Vec<_> = fs::read_dir(dir.path()).expect("a directory").collect();
        assert_eq!(left.len(), usize::from(before.is_some()), "{left:?}");
        if let Some(text) = before {
            assert_eq!(fs::read_to_string(&path).expect("a file"), text);
        }
    }
}

/// A process that does not outlive this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Its first word stands between the window's begin and the command's: with no room for it the tool goes no further.
#[test]
fn a_command_that_has_not_begun_goes_with_a_killed_tool() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    for tool in COMMANDED.iter().copied() {
        let mut said = FullPipe::new(dir.path().join(tool));
        said.fill();
        let stderr = fs::File::options().write(true).open(said.path());
        // It would outlast the wait for its end.
        let mut command = Tool::command(tool, "-- sleep 600");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let stderr = stderr.expect("a FIFO with a reader");
        let running = Killed(command.stderr(stderr).spawn().expect("a tool"));
        said.await_writer(running.0.id());
        let held = Held::by(running.0.id());
        drop(running);
        assert!(
            !held.programs.is_empty() && !held.children.is_empty(),
            "{tool}: {held:?}"
        );
        held.assert_gone(tool);
    }
}

#[test]
fn too_few_descriptors_are_one_line_with_the_remedy() {
    let _machine = Machine::beside();
    for tool in TRACERS.iter().copied() {
        for limit in [4, 12, 16, 20, 24, 32, 64, 127] {
            // Descriptors that the tests were started with are not the tool's.
            let script = format!(
                "exec 3>&- 4>&-; ulimit -n {limit}; exec {} 200ms 2>&1",
                crate::built(tool).display()
            );
            let mut command = Command::new("bash");
            command.args(["-c", &script]);
            let output = Tool::spawn(tool, command).finish();
            let said = format!("{tool} {limit}: {}", output.stdout);
            assert_eq!(output.code, 1, "{said}");
            assert_eq!(output.stdout.lines().count(), 1, "{said}");
            assert!(output.stdout.starts_with(&format!("{tool}: ")), "{said}");
            assert!(output.stdout.contains("ulimit -n"), "{said}");
        }
    }
}

/// The spinners' work: by the ticks of clocks, and by logs of the kernel's events from before and after the tools.
struct Spun {
    tids: Vec<u32>,
    ticks: Ticks,
    logs: Logs,
}

impl Spun {
    /// Runs them under tools that trace, which then end, `below` which the oracle is.
    fn under<T>(
        below: Below,
        workload: &mut Workload,
        stop: impl FnOnce(&mut Workload) -> (Vec<Value>, T),
    ) -> (Self, T) {
        let around = below.around().expect("the oracle");
        let clock = clock(997);
        let (results, told) = stop(workload);
        let spun = Self {
            tids: results.iter().map(|thread| id(thread, "tid")).collect(),
            ticks: clock.take().expect("a whole log"),
            logs: around.take().expect("whole logs"),
        };
        (spun, told)
    }

    /// Samples at 997 Hz.
    fn assert_sampled(&self, report: &Value) {
        let found = sum(list(report, "stacks"), "count");
        let main = id(&list(report, "stacks")[0], "pid");
        assert_all_ticks(found, &self.ticks, self.tids.iter().copied().chain([main]));
    }

    /// Times off the CPU, of at least 0 µs.
    fn assert_off(&self, report: &Value) {
        for tid in &self.tids {
            let times = Times::in_report(report, &self.logs, u64::from(*tid), sees_hidden());
            times.assert_inside(&times.bracket(|_| true), |_| true);
        }
    }
}

/// Two threads that compute for two seconds, and what is to be said of them.
fn two_spinners() -> (Workload, String) {
    let workload = Workload::start("spinner", "--threads 2 --seconds 2");
    let options = format!("-j -p {}", workload.pid());
    (workload, options)
}

/// Each reports what it would report alone.
#[test]
fn ten_at_once_all_tell_the_truth() {
    let _machine = Machine::alone();
    let (mut workload, options) = two_spinners();
    let ten = |tool: &str, own: &str| {
        let start = |_| Tool::start(tool, format!("{options} {own}"));
        (0..10).map(start).collect::<Vec<Tool>>()
    };
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let (profiles, waits) = (ten("profile", "-F 997"), ten("offcputime", "-m 0"));
    profiles.iter().chain(&waits).for_each(Tool::wait_attached);
    let (spun, (profiles, waits)) = Spun::under(below, &mut workload, |workload| {
        let results = workload.work();
        let told = [profiles, waits].map(|tools| tools.into_iter().map(Tool::report).collect());
        let [profiles, waits]: [Vec<Value>; 2] = told;
        (results, (profiles, waits))
    });
    for report in profiles {
        spun.assert_sampled(&report);
    }
    for report in waits {
        let lifetime = number(&report, "accounting.lifetime_ns");
        let off = phases_ns(&report).abs_diff(lifetime);
        assert_within("ns off", off, ..=lifetime / 100, &report);
        spun.assert_off(&report);
    }
    workload.finish();
}

/// Stopped for as long as a workload of two seconds takes: BPF goes on, and what it could not tell is counted.
#[test]
fn a_stopped_tool_goes_on_where_it_was() {
    let _machine = Machine::alone();
    let (mut workload, options) = two_spinners();
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let tools = [
        ("profile", "-F 997"),
        ("offcputime", "-m 0"),
        ("runqlat", "200ms"),
    ];
    let tools = tools.map(|(tool, own)| Tool::start(tool, format!("{own} {options}")));
    tools.iter().for_each(Tool::wait_attached);
    let (spun, told) = Spun::under(below, &mut workload, |workload| {
        tools.iter().for_each(|tool| tool.signal(libc::SIGSTOP));
        let results = workload.work();
        tools.iter().for_each(|tool| tool.signal(libc::SIGCONT));
        tools.iter().for_each(Tool::interrupt);
        (results, tools.map(|tool| tool.finish().ok()))
    });
    let [profile, offcputime, runqlat] = told;
    spun.assert_sampled(&profile.report());
    spun.assert_off(&offcputime.report());

    // One interval is as long as the stop, and says so; none overlaps another.
    let intervals = runqlat.reports();
    assert_no_gaps(&intervals);
    let length = |report: &Value| number(report, "end_ns") - number(report, "start_ns");
    let lengths: Vec<u64> = intervals.iter().map(length).collect();
    assert!(lengths.iter().any(|ns| *ns >= 1_900_000_000), "{lengths:?}");
}
