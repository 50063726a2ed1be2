//! What a walk by unwind tables costs beside one by frame pointers, of the same stack.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::locks::compile;
use crate::measure::Plan;
use crate::table::{markdown, spread};

const PROGRAM: &str = include_str!("deep.c");
/// Frames of the program's own; libc and its loader add three.
const DEPTHS: [u32; 2] = [15, 60];
/// Without a user stack, by frame pointers, by tables.
const METHODS: [&[&str]; 3] = [&["-K"], &["--unwind", "fp"], &["--unwind", "auto"]];

/// The table, from `rounds` rounds of all methods in turns.
pub(crate) fn table(plan: &Plan, rounds: u32) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let program = dir.path().join("deep");
    compile(PROGRAM, &program, &["-O1", "-fno-omit-frame-pointer"])?;
    let mut rows = Vec::new();
    for depth in DEPTHS {
        let load = Load::start(&program, depth, plan.cpu)?;
        let (mut pointers, mut tables) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let [without, fp, auto] = [0, 1, 2].map(|method| {
                ns_per_sample(plan, load.0.id(), METHODS[method])
                    .with_context(|| format!("profile {}", METHODS[method].join(" ")))
            });
            let without = without?;
            pointers.push(fp? - without);
            tables.push(auto? - without);
        }
        let ratios = pointers.iter().zip(&tables).map(|(fp, auto)| auto / fp);
        let ratios: Vec<f64> = ratios.collect();
        rows.push([
            format!("{depth} calls deep"),
            spread(tables, 0),
            spread(pointers, 0),
            spread(ratios, 2),
        ]);
    }
    let table = markdown(
        ["ns per user stack", "tables", "frame pointers", "ratio"].map(str::to_owned),
        &rows,
    );
    Ok(format!(
        "\n## unwinding\n\n`profile -e tracepoint:syscalls:sys_enter_getppid -p PID`, with `--unwind auto` and \
         `--unwind fp`, less the same with `-K`, of a program that has both\n\n{table}"
    ))
}

struct Load(Child);

impl Load {
    fn start(program: &Path, depth: u32, cpu: usize) -> Result<Self> {
        let child = Command::new("taskset")
            .args(["-c", &cpu.to_string()])
            .arg(program)
            .arg(depth.to_string())
            .spawn()
            .context("run taskset")?;
        Ok(Self(child))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It ends in no other way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Mean time of a sample that is taken as the load asks for its parent.
pub(crate) fn ns_per_sample(plan: &Plan, pid: u32, method: &[&str]) -> Result<f64> {
    let output = Command::new(plan.ours_dir.join("profile"))
        .args(["-q", "-j", "-e", "tracepoint:syscalls:sys_enter_getppid"])
        .args(["-p", &pid.to_string()])
        .args(method)
        .arg(plan.window.as_secs_f64().to_string())
        .stderr(Stdio::inherit())
        .output()?;
    let report: Value = serde_json::from_slice(&output.stdout).context("JSON")?;
    let number = |field: &str| report["cost"][field].as_f64().context("the cost");
    let runs = number("bpf_runs")?;
    ensure!(runs > 1000.0, "the load stands still");
    Ok(number("bpf_ns")? / runs)
}
