//! The cost of a run, as it is reported: BPF time, the tool's own CPU, memory.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use host::procs;
use host::scheduling::{self, Starved};
use libbpf_rs::Object;
use serde_json::{Value, json};

use crate::Summary;
use crate::meter::{Meter, cpus_online, program_info};

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Runs of the tool's BPF programs.
    pub runs: u64,
    /// Time spent in them, ns; `None` when the kernel refused to measure.
    pub bpf_ns: Option<u64>,
    /// CPU time of the tool itself, ns.
    pub own_cpu_ns: u64,
    /// Wall time, ns.
    pub wall_ns: u64,
    /// CPUs online.
    pub cpus: u64,
    /// Peak resident memory of the tool up to then, without BPF maps, bytes; reports take memory, too, and say what it is when they
    /// are written.
    pub peak_bytes: u64,
    /// Kernel memory of the tool's BPF maps, those that several objects share once, bytes.
    pub map_bytes: u64,
    /// When the machine did not run the tool.
    pub starved: Starved,
    /// What `--max-overhead` took.
    pub budget: Option<Summary>,
}

impl Cost {
    /// Reads the figures of these objects' programs and maps, of a collection that may have had a budget.
    pub fn read<'a>(
        meter: &Meter,
        objects: impl IntoIterator<Item = &'a Object>,
        budget: Option<Summary>,
    ) -> Self {
        let mut cost = Self {
            own_cpu_ns: meter.own_cpu_ns(),
            wall_ns: meter.wall_ns(),
            budget,
            cpus: cpus_online(),
            peak_bytes: peak_bytes(),
            starved: scheduling::starved(),
            bpf_ns: meter.is_measuring().then_some(0),
            ..Self::default()
        };
        let mut seen = HashSet::new();
        for object in objects {
            cost.add(object, &mut seen);
        }
        cost
    }

    fn add(&mut self, object: &Object, seen: &mut HashSet<u64>) {
        for program in object.progs() {
            let Some(info) = program_info(program.as_fd().as_raw_fd()) else {
                continue;
            };
            self.runs += info.run_cnt;
            self.bpf_ns = self.bpf_ns.map(|sum| sum + info.run_time_ns);
        }
        let maps = object.maps();
        let maps = maps.filter_map(|map| read_map(map.as_fd().as_raw_fd()));
        let new = maps.filter(|(id, _)| seen.insert(*id));
        self.map_bytes += new.map(|(_, bytes)| bytes).sum::<u64>();
    }

    /// Share of the machine's CPU time, and memory, in a few words.
    pub fn brief(&self) -> String {
        let machine_ns = (self.wall_ns * self.cpus).max(1) as f64;
        let all_ns = self.own_cpu_ns + self.bpf_ns.unwrap_or(0);
        let unknown = match self.bpf_ns {
            Some(_) => "",
            None => ", BPF not measured",
        };
        format!(
            "cost {:.2}% of {} CPUs{unknown}, {} MiB",
            100.0 * all_ns as f64 / machine_ns,
            self.cpus,
            (self.peak_bytes.max(peak_bytes()) + self.map_bytes) >> 20
        )
    }

    /// Parts of it, for `-v` and the comments of files.
    pub fn describe(&self) -> String {
        let machine_ns = (self.wall_ns * self.cpus).max(1) as f64;
        let share = |ns: u64| 100.0 * ns as f64 / machine_ns;
        let bpf = match self.bpf_ns {
            Some(ns) if self.runs > 0 => {
                format!("{} ns/run, BPF {:.2}% + ", ns / self.runs, share(ns))
            }
            Some(_) => String::new(),
            None => "BPF time not measured (BPF_ENABLE_STATS refused), ".into(),
        };
        format!(
            "cost {bpf}tool {:.2}% of {} CPUs, {} MiB + {} MiB of maps",
            share(self.own_cpu_ns),
            self.cpus,
            self.peak_bytes.max(peak_bytes()) >> 20,
            self.map_bytes >> 20
        )
    }

    /// For JSON.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "bpf_runs": self.runs,
            "bpf_ns": self.bpf_ns,
            "own_cpu_ns": self.own_cpu_ns,
            "wall_ns": self.wall_ns,
            "cpus": self.cpus,
            "peak_bytes": self.peak_bytes.max(peak_bytes()),
            "map_bytes": self.map_bytes,
            "starved_ns": self.starved.ns,
        });
        if let Some(budget) = &self.budget {
            object["budget"] = budget.to_json();
        }
        object
    }
}

/// A map's ID, and bytes of kernel memory.
fn read_map(fd: RawFd) -> Option<(u64, u64)> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let number = |title| procs::number(&info, title);
    Some((number("map_id:")?, number("memlock:")?))
}

/// Pages of maps that this process has mapped, a ring's twice, are resident from the loading on; the maps' memory has them already.
fn peak_bytes() -> u64 {
    let peak = procs::bytes(&procs::own_status(), "VmHWM:").unwrap_or(0);
    peak.saturating_sub(procs::own_resident("anon_inode:bpf-map"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_words_have_all_of_it() {
        let mut cost = Cost {
            runs: 7,
            bpf_ns: Some(10_000_000),
            own_cpu_ns: 40_000_000,
            wall_ns: 1_000_000_000,
            cpus: 2,
            // More than this process has.
            peak_bytes: 1 << 40,
            map_bytes: 3 << 20,
            ..Cost::default()
        };
        assert_eq!(cost.brief(), "cost 2.50% of 2 CPUs, 1048579 MiB");
        cost.bpf_ns = None;
        assert_eq!(
            cost.brief(),
            "cost 2.00% of 2 CPUs, BPF not measured, 1048579 MiB"
        );
    }
}
