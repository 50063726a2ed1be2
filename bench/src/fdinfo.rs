//! Which BPF programs and maps a process holds, read from the descriptors it has open.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use crate::machine::field;

/// Programs and maps of a process, or of several together.
#[derive(Default)]
pub(crate) struct Holdings {
    programs: BTreeSet<u32>,
    map_bytes: BTreeMap<u64, u64>,
}

impl Holdings {
    pub(crate) fn of(pids: &[u32]) -> Result<Self> {
        let mut holdings = Self::default();
        for pid in pids {
            let dir = format!("/proc/{pid}/fdinfo");
            for entry in fs::read_dir(&dir).context("the tool ended early")? {
                // A descriptor may be closed between the listing and the look.
                holdings.add(&fs::read_to_string(entry?.path()).unwrap_or_default());
            }
        }
        Ok(holdings)
    }

    /// IDs of its programs.
    pub(crate) fn programs(&self) -> Vec<u32> {
        self.programs.iter().copied().collect()
    }

    /// Memory that the kernel charges for its maps.
    pub(crate) fn map_bytes(&self) -> u64 {
        self.map_bytes.values().sum()
    }

    fn add(&mut self, fdinfo: &str) {
        // Links name their program too, so one whose own descriptor was closed is still found.
        let program: Option<u32> = field(fdinfo, "prog_id:").and_then(|id| id.try_into().ok());
        self.programs.extend(program);
        if let Some(id) = field(fdinfo, "map_id:") {
            self.map_bytes
                .insert(id, field(fdinfo, "memlock:").unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Holdings;

    #[test]
    fn two_descriptors_of_one_map_count_once() {
        let mut holdings = Holdings::default();
        holdings.add("pos:\t0\nmemlock:\t4096\nmap_id:\t70\n");
        holdings.add("pos:\t0\nmemlock:\t4096\nmap_id:\t70\n");
        holdings.add("link_id:\t89\nprog_id:\t194\n");
        assert_eq!(holdings.map_bytes(), 4096);
        assert_eq!(holdings.programs(), [194]);
    }
}
