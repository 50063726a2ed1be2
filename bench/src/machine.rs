//! What the machine is, for the record, and what it did.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

/// How this run was set up.
pub(crate) struct Conditions {
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    pub(crate) cpu: usize,
    pub(crate) ours: PathBuf,
    pub(crate) self_check: bool,
}

/// Context switches since boot, of all CPUs.
pub(crate) fn context_switches() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    field(&stat, "ctxt ").context("/proc/stat has no ctxt line")
}

/// The CPU with the highest number: interrupts tend to go to the first.
pub(crate) fn last_cpu() -> usize {
    thread::available_parallelism().map_or(0, |count| count.get() - 1)
}

/// The head of the results: what ran where, and what the columns mean.
pub(crate) fn header(conditions: &Conditions) -> String {
    let Conditions {
        rounds,
        seconds,
        cpu,
        ours,
        self_check,
    } = conditions;
    let title = if *self_check {
        "Self-check: ours in all places"
    } else {
        "Ours, libbpf-tools, bpftrace and perf"
    };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = thread::available_parallelism().map_or(0, usize::from);
    format!(
        "# {title}\n\n\
         {date}; Linux {kernel}, {cpus} CPUs ({model}); ours: {ours}; libbpf-tools {theirs}; {bpftrace}; {perf}.\n\
         Load: `perf bench sched pipe`, for disks `fio --rw=randrw --bs=4k --direct=1` on a loop device over memory, \
         all on CPU {cpu}; {rounds} rounds, windows of {seconds} s, \
         in turns within one run.\n\n\
         Cells are min – **median** – max of the rounds; a ratio is ours / theirs of one round, so \
         below 1 is better.\n\
         BPF time is the kernel's own account; speed is measured with that account switched off.\n\n",
        date = said(Command::new("date").args(["-u", "+%F %H:%M UTC"])),
        kernel = kernel.trim(),
        model = cpu_model(),
        ours = said(Command::new(ours).arg("--version")),
        theirs = said(Command::new("dpkg-query").args(["-W", "-f", "${Version}", "libbpf-tools"])),
        bpftrace = said(Command::new("bpftrace").arg("--version")),
        perf = said(Command::new("perf").arg("--version")),
    )
}

fn cpu_model() -> String {
    let cpuinfo = fs::read_to_string(Path::new("/proc/cpuinfo")).unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    model
        .map_or("model unknown", |rest| {
            rest.trim_start_matches([' ', '\t', ':'])
        })
        .to_owned()
}

/// The first line that a command prints.
fn said(command: &mut Command) -> String {
    let output = command
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    text.lines()
        .next()
        .unwrap_or("version unknown")
        .trim()
        .to_owned()
}

/// Threads of a process, as directories of `/proc`; none of one that is gone.
pub(crate) fn threads(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.map(|entry| entry.path()).collect()
}

/// The number behind `name` at the start of a line of a `/proc` file.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "PPid:\t7\nnonvoluntary_ctxt_switches:\t3\nvoluntary_ctxt_switches:\t21\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(21));
        assert_eq!(field(status, "PPid:"), Some(7));
        assert_eq!(field(status, "VmHWM:"), None);
    }
}
