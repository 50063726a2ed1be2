//! What a process holds of the kernel, and whether that is gone with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

/// For what the kernel does a moment later, such as freeing programs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a process holds of the kernel, and whom it started.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) programs: BTreeSet<u32>,
    pub(crate) links: BTreeSet<u32>,
    pub(crate) maps: BTreeSet<u32>,
    pub(crate) children: BTreeSet<u32>,
    pub(crate) perf_events: usize,
}

impl Held {
    pub(crate) fn by(pid: u32) -> Self {
        let mut held = Self::default();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let id = |name: &str| {
                let value = text.lines().find_map(|line| line.strip_prefix(name));
                value.and_then(|value| value.trim().parse::<u32>().ok())
            };
            held.programs.extend(id("prog_id:"));
            held.links.extend(id("link_id:"));
            held.maps.extend(id("map_id:"));
            let fd = format!("/proc/{pid}/fd/{}", entry.file_name().to_string_lossy());
            let is_event =
                fs::read_link(fd).is_ok_and(|to| to.ends_with("anon_inode:[perf_event]"));
            held.perf_events += usize::from(is_event);
        }
        for task in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            held.children.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
        held
    }

    /// Memory of the maps that a process has descriptors of, bytes, by the kernel's account.
    pub(crate) fn map_bytes(pid: u32) -> u64 {
        let mut maps = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let number = |name: &str| {
                let value = text.lines().find_map(|line| line.strip_prefix(name));
                value.and_then(|value| value.trim().parse::<u64>().ok())
            };
            maps.extend(number("map_id:").zip(number("memlock:")));
        }
        maps.values().sum()
    }

    /// Whether the kernel shows anything of it.
    pub(crate) fn is_there(&self) -> bool {
        !self.left().is_empty()
    }

    /// What is still there. IDs are given out once, so that other users of BPF do not matter.
    fn left(&self) -> Vec<String> {
        let there = |kind: &str, ids: &BTreeSet<u32>, exists: fn(u32) -> bool| {
            let ids: Vec<u32> = ids.iter().copied().filter(|id| exists(*id)).collect();
            (!ids.is_empty()).then(|| format!("{kind} {ids:?}"))
        };
        [
            there("programs", &self.programs, |id| {
                exists(libbpf_rs::libbpf_sys::bpf_prog_get_next_id, id)
            }),
            there("links", &self.links, |id| {
                exists(libbpf_rs::libbpf_sys::bpf_link_get_next_id, id)
            }),
            there("maps", &self.maps, |id| {
                exists(libbpf_rs::libbpf_sys::bpf_map_get_next_id, id)
            }),
            there("children", &self.children, |id| {
                let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
                !stat.is_empty() && !stat.contains(") Z ")
            }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Living processes that have any of it.
    fn holders(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let holds = |pid: &u32| {
            let other = Self::by(*pid);
            !other.programs.is_disjoint(&self.programs) || !other.maps.is_disjoint(&self.maps)
        };
        let named = |pid: u32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{} {pid}", comm.trim_end())
        };
        ids.filter(holds).map(named).collect()
    }

    pub(crate) fn assert_gone(&self, what: &str) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(
                Instant::now() < give_up,
                "{what}: still there: {left:?}, {:?}",
                self.holders()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// By listing IDs, and not by opening what has them: a program array that is opened while the kernel clears it, since its last user
/// has gone, is never freed (prog_array_map_clear, here on 6.18).
fn exists(next: unsafe extern "C" fn(u32, *mut u32) -> i32, id: u32) -> bool {
    let Some(before) = id.checked_sub(1) else {
        return false;
    };
    let mut found = 0;
    // SAFETY: takes a number and fills one.
    let status = unsafe { next(before, &raw mut found) };
    status == 0 && found == id
}
