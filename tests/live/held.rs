//! What a process holds of the kernel, and whether that is gone with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kernel::tasks;

/// For what the kernel does a moment later, such as freeing programs.
const PATIENCE: Duration = Duration::from_secs(120);

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
        for (fd, info) in descriptors(pid) {
            let id = |name: &str| field(&info, name).and_then(|id| u32::try_from(id).ok());
            held.programs.extend(id("prog_id:"));
            held.links.extend(id("link_id:"));
            held.maps.extend(id("map_id:"));
            let is_event = |to: PathBuf| to.ends_with("anon_inode:[perf_event]");
            held.perf_events += usize::from(fs::read_link(fd).is_ok_and(is_event));
        }
        for task in tasks(pid) {
            let children = fs::read_to_string(task.join("children")).unwrap_or_default();
            let ids = children.split_whitespace().filter_map(|id| id.parse().ok());
            held.children.extend::<Vec<u32>>(ids.collect());
        }
        held
    }

    /// Memory of the maps that a process has descriptors of, bytes, by the kernel's account.
    pub(crate) fn map_bytes(pid: u32) -> u64 {
        let map =
            |(_, info): (PathBuf, String)| field(&info, "map_id:").zip(field(&info, "memlock:"));
        let maps: BTreeMap<u64, u64> = descriptors(pid).into_iter().filter_map(map).collect();
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

/// Each of a process's descriptors, and what the kernel says of it.
fn descriptors(pid: u32) -> Vec<(PathBuf, String)> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten();
    let infos = infos.flatten().map(|entry| {
        let fd = Path::new("/proc")
            .join(format!("{pid}/fd"))
            .join(entry.file_name());
        (fd, fs::read_to_string(entry.path()).unwrap_or_default())
    });
    infos.collect()
}

fn field(info: &str, name: &str) -> Option<u64> {
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok())
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
