//! The cost of Python's functions: a stack by their number, and the program that is sampled, beside py-spy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::machine;
use crate::measure::Plan;
use crate::running::{Load, on_cpu_ns};
use crate::table::{markdown, spread};
use crate::tool::Tool;
use crate::unwind::ns_per_sample;

const PROGRAM: &str = include_str!("deep.py");
const PYTHON: &str = "/usr/bin/python3";
/// Functions below the one that asks, and two of the program's own.
const DEPTHS: [u32; 3] = [0, 20, 40];
/// Samples a second.
const RATES: [u32; 2] = [100, 1000];
/// py-spy reads the interpreter's tables before its first sample.
const STARTS: Duration = Duration::from_secs(2);

/// An error unless there is a py-spy, before anything is measured.
pub(crate) fn has(py_spy: &Path) -> Result<()> {
    let version = Command::new(py_spy).arg("--version").output();
    let version = version.with_context(|| format!("run {} (setup/py-spy)", py_spy.display()))?;
    ensure!(version.status.success(), "py-spy does not work here");
    Ok(())
}

/// Both tables, from `rounds` rounds in turns.
pub(crate) fn tables(plan: &Plan, py_spy: &Path, rounds: u32) -> Result<String> {
    Ok(stacks(plan, rounds)? + &sampled(plan, py_spy, rounds)?)
}

fn stacks(plan: &Plan, rounds: u32) -> Result<String> {
    let mut costs = DEPTHS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (depth, costs) in DEPTHS.iter().zip(&mut costs) {
            // One at a time: the event of another would be looked at, too.
            let load = Deep::start(*depth, plan.cpu)?;
            let without = ns_per_sample(plan, load.pid(), &["-K"])?;
            costs.push(ns_per_sample(plan, load.pid(), &[])? - without);
        }
    }
    let first = costs[0].clone();
    let rows = DEPTHS.iter().zip(costs).map(|(depth, costs)| {
        let more = costs.iter().zip(&first).map(|(cost, first)| cost - first);
        let more: Vec<f64> = more.collect();
        let more = if *depth == 0 {
            String::new()
        } else {
            spread(more, 0)
        };
        [format!("{depth} calls deep"), spread(costs, 0), more]
    });
    let rows: Vec<_> = rows.collect();
    let head = ["ns per user stack", "whole", "more than without them"];
    let table = markdown(head.map(str::to_owned), &rows);
    Ok(format!(
        "\n## python\n\n`profile -e tracepoint:syscalls:sys_enter_getppid -p PID`, less the same with `-K`, of a program of \
         {PYTHON}\n\n{table}"
    ))
}

/// A sampler, and what it did to the program.
struct Sampled {
    /// Share of the program's turns that were lost, %.
    slow_down: f64,
    /// CPU time of its own, %.
    cpu: f64,
}

fn sampled(plan: &Plan, py_spy: &Path, rounds: u32) -> Result<String> {
    let load = Deep::start(20, plan.cpu)?;
    let mut rows = Vec::new();
    for rate in RATES {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(beside_ours(plan, &load, rate)?);
            theirs.push(beside_theirs(plan, py_spy, &load, rate)?);
        }
        for (name, samples) in [("ours", ours), ("py-spy", theirs)] {
            let of = |value: fn(&Sampled) -> f64| samples.iter().map(value).collect();
            rows.push([
                format!("{rate} samples a second, {name}"),
                spread(of(|sample| sample.slow_down), 2),
                spread(of(|sample| sample.cpu), 1),
            ]);
        }
    }
    let head = [
        "of a program 20 calls deep",
        "slow-down, %",
        "CPU of its own process, %",
    ];
    let table = markdown(head.map(str::to_owned), &rows);
    Ok(format!(
        "\n`profile -F RATE -p PID` and `py-spy record -r RATE -p PID`\n\n{table}"
    ))
}

fn beside_ours(plan: &Plan, load: &Deep, rate: u32) -> Result<Sampled> {
    let args = [
        "-F",
        &rate.to_string(),
        "-p",
        &load.pid().to_string(),
        "3600",
    ]
    .map(str::to_owned);
    beside(plan, load, &plan.ours_dir.join("profile"), &args)
}

fn beside_theirs(plan: &Plan, py_spy: &Path, load: &Deep, rate: u32) -> Result<Sampled> {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").context("make a file in memory")?;
    let output = file.path().display().to_string();
    let args = "record --format raw --duration 3600 --rate RATE --pid PID --output FILE";
    let args = args.split(' ').map(|word| match word {
        "RATE" => rate.to_string(),
        "PID" => load.pid().to_string(),
        "FILE" => output.clone(),
        word => word.to_owned(),
    });
    beside(plan, load, py_spy, &args.collect::<Vec<_>>())
}

/// Turns of the load without the tool and with it, in windows of one length.
fn beside(plan: &Plan, load: &Deep, program: &Path, args: &[String]) -> Result<Sampled> {
    let before = load.rate(plan.window)?;
    let mut tool = Tool::start(program, args)?;
    thread::sleep(STARTS);
    let used = || on_cpu_ns(&machine::threads(tool.pid()));
    let (before_ns, begun) = (used()?, Instant::now());
    let with = load.rate(plan.window)?;
    let cpu_ns = used()?.saturating_sub(before_ns) as f64;
    let cpu = cpu_ns / begun.elapsed().as_nanos() as f64;
    tool.must_run()?;
    tool.finish()?;
    let without = f64::midpoint(before, load.rate(plan.window)?);
    Ok(Sampled {
        slow_down: 100.0 * (1.0 - with / without),
        cpu: 100.0 * cpu,
    })
}

/// The program. Dropping it ends it.
struct Deep {
    program: Child,
    turns: PathBuf,
    _dir: tempfile::TempDir,
}

impl Deep {
    /// Starts it, pinned to `cpu`, and waits until it takes turns.
    fn start(depth: u32, cpu: usize) -> Result<Self> {
        let dir = tempfile::tempdir_in("/dev/shm").context("make a directory in memory")?;
        let (script, turns) = (dir.path().join("deep.py"), dir.path().join("turns"));
        fs::write(&script, PROGRAM)?;
        fs::write(&turns, [0; 8])?;
        let program = Command::new("taskset")
            .args(["-c", &cpu.to_string(), PYTHON, "-I"])
            .arg(script)
            .arg(depth.to_string())
            .arg(&turns)
            .stdin(Stdio::null())
            .spawn()
            .context("start taskset (package util-linux)")?;
        let mut load = Self {
            program,
            turns,
            _dir: dir,
        };
        while load.events()? == 0 {
            ensure!(load.program.try_wait()?.is_none(), "the load ended");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(load)
    }
}

impl Load for Deep {
    fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Its turns.
    fn events(&self) -> Result<u64> {
        let bytes = fs::read(&self.turns)?;
        let bytes = bytes.try_into().ok().context("the load's count")?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn events_around(&self) -> Result<u64> {
        self.events()
    }

    fn threads(&self) -> Vec<PathBuf> {
        machine::threads(self.pid())
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        // It ends in no other way.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
