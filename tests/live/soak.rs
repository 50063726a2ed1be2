//! Loads that are as heavy as the machine allows, and what a tool does meanwhile: how much memory it takes, how much it
//! slows the load down, whether it rests when the load does, how soon it ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::held::Held;
use crate::kernel::tasks;
use crate::prelude::*;

const TOGETHER: &str = include_str!("../workloads/soak/together.h");

/// Within which the report is there after Ctrl-C. `make soak` asserts it; on a machine that others use it says more of them.
const TO_REPORT: Duration = Duration::from_secs(2);
/// What SECURITY.md promises: peak resident memory, and memory of BPF maps, in MiB.
const MOST_RESIDENT_MIB: u64 = 384;
const MOST_MAPS_MIB: u64 = 192;
/// How long a tool is watched while there is nothing to do, and what it may do then: look at its rings every 50 ms.
const SILENCE: Duration = Duration::from_secs(1);
const MOST_WAKEUPS: u64 = 60;
const MOST_TICKS: u64 = 10;

/// `make soak` says how many times longer the loads are.
const SECONDS: &str = "SOAK_SECONDS";

fn is_long() -> bool {
    std::env::var_os(SECONDS).is_some()
}

/// Number of times that a load is longer than in the gate.
pub(crate) fn scale() -> u64 {
    let seconds = std::env::var(SECONDS).ok();
    seconds.map_or(1, |text| text.parse().expect("SOAK_SECONDS: a number"))
}

/// A program of `tests/workloads/soak`, compiled.
pub(crate) struct Load {
    name: &'static str,
    program: Program,
    arguments: Vec<String>,
}

/// What became of a tool and a load.
pub(crate) struct Soaked {
    /// The tool's only report.
    pub(crate) report: Value,
    /// What the load says of itself.
    pub(crate) load: Value,
}

impl Load {
    pub(crate) fn new(name: &'static str, source: &str, arguments: &[String]) -> Self {
        let source = format!("{TOGETHER}{source}");
        Self {
            name,
            program: Program::c_on_disk(name, &source, "-pthread"),
            arguments: arguments.to_vec(),
        }
    }

    fn start(&self) -> Workload {
        self.program.start(&self.arguments)
    }

    /// How long it takes on its own, per unit of what it does, ns.
    pub(crate) fn alone_ns(&self) -> f64 {
        let mut load = self.start();
        unit_ns(&load.work()[0])
    }

    /// Runs it under a tool; `options` get its process ID for `PID`. Everything that holds for every load is asserted.
    pub(crate) fn under(&self, tool: &str, options: &str, alone_ns: f64) -> Soaked {
        let mut load = self.start();
        let options = options.replace("PID", &load.pid().to_string());
        let running = Tool::attached(tool, format!("-j {options}"));
        let results = load.work();
        let rest = silence(running.pid());
        let maps_kib = Held::map_bytes(running.pid()) >> 10;
        let what = format!("{tool} {options} under {}", self.name);
        let (output, ended, peak_kib) = end(running);
        let output = output.ok();
        load.finish();
        eprintln!("{what}: {}", output.stderr);
        let times = unit_ns(&results[0]) / alone_ns;
        eprintln!("{what}: load {times:.2} times as long");
        for (figure, found, most) in [
            ("wakeups at rest", rest.wakeups, MOST_WAKEUPS),
            ("ticks at rest", rest.ticks, MOST_TICKS),
            ("MiB", peak_kib >> 10, MOST_RESIDENT_MIB),
            ("MiB of maps", maps_kib >> 10, MOST_MAPS_MIB),
        ] {
            assert_within(figure, found, ..=most, &what);
        }
        eprintln!("{what}: {ended:?} to the report");
        if is_long() {
            assert_within("to the report", ended, ..=TO_REPORT, &what);
        }
        Soaked {
            report: output.report(),
            load: results[0].clone(),
        }
    }
}

fn unit_ns(load: &Value) -> f64 {
    number(load, "wall_ns") as f64 / number(load, "done") as f64
}

/// Ctrl-C, and the way to the end: how long it took, and the most memory that the tool ever had, KiB.
pub(crate) fn end(tool: Tool) -> (crate::tool::Output, Duration, u64) {
    let pid = tool.pid();
    let watch = thread::spawn(move || {
        let mut most = 0;
        // A zombie has no memory any more.
        while let Some(kib) = status(Path::new(&format!("/proc/{pid}/status"))).get("VmHWM:") {
            most = most.max(*kib);
            thread::sleep(Duration::from_millis(2));
        }
        most
    });
    let (output, took) = tool.finish_timed();
    (output, took, watch.join().expect("no panic"))
}

/// What a tool did while nothing happened to its targets.
#[derive(Debug)]
struct Rest {
    wakeups: u64,
    ticks: u64,
}

fn silence(pid: u32) -> Rest {
    // What the load left in rings and queues is worked off first; a loop that spins never has done.
    let give_up = Instant::now() + Duration::from_secs(5);
    let mut before = doings(pid);
    loop {
        thread::sleep(SILENCE);
        let after = doings(pid);
        let rest = Rest {
            wakeups: after.wakeups - before.wakeups,
            ticks: after.ticks - before.ticks,
        };
        let rests = rest.wakeups <= MOST_WAKEUPS && rest.ticks <= MOST_TICKS;
        if rests || Instant::now() >= give_up {
            return rest;
        }
        before = after;
    }
}

/// Since its start: times that its threads slept, and CPU time in hundredths of a second.
fn doings(pid: u32) -> Rest {
    let tasks = tasks(pid).into_iter();
    let wakeups = tasks.filter_map(|task| {
        let status = status(&task.join("status"));
        status.get("voluntary_ctxt_switches:").copied()
    });
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    // utime and stime, the 14th and 15th; the third is the first here.
    let ticks = fields.split(' ').skip(11).take(2);
    Rest {
        wakeups: wakeups.sum(),
        ticks: ticks.map(|n| n.parse::<u64>().expect("a number")).sum(),
    }
}

/// Numbers out of a `status` file; empty when there is none.
pub(crate) fn status(path: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let number = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(number).collect()
}

/// Sum of the counters of that name, of events that were seen and are nowhere else.
pub(crate) fn lost(report: &Value, keys: &[&str]) -> u64 {
    let losses = &report["losses"];
    keys.iter().map(|key| number(losses, key)).sum()
}
