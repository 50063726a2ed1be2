//! Tables by file, for the BPF side to find when it meets a process that is not listed yet.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::tables::Module;
use crate::mappings::FileKey;

/// As the BPF side's `struct unwind_file`, bytes of it.
type Key = [u8; 32];

/// What has been published.
#[derive(Debug)]
pub(super) struct Files {
    map: MapHandle,
    /// By the symbolizer's number and the mapping's offset; the second part is the first word of the table. `None`: nobody
    /// could find it, or there was no room. That is no loss: its processes are listed a little later.
    published: HashMap<(u32, u64), (Option<Key>, u32)>,
}

impl Files {
    /// `map` is the BPF side's table of files.
    pub(super) fn new(map: MapHandle) -> Self {
        Self {
            map,
            published: HashMap::new(),
        }
    }

    pub(super) fn has(&self, id: u32, offset: u64) -> bool {
        self.published.contains_key(&(id, offset))
    }

    /// Makes a table known for mappings of `file` (`None`: the vDSO) from `offset` on; `shift` as a mapping's, less its begin.
    pub(super) fn publish(
        &mut self,
        id: u32,
        offset: u64,
        backing: Option<(FileKey, &File)>,
        shift: u64,
        module: &Module,
    ) {
        let stored = &module.stored;
        let key = match backing {
            None => Some([0; 32]),
            Some((key, file)) => encode(key, file, offset),
        };
        let key = key.filter(|key| {
            let mut value = [0; 16];
            value[..8].copy_from_slice(&shift.to_ne_bytes());
            value[8..12].copy_from_slice(&stored.pages_at.to_ne_bytes());
            value[12..].copy_from_slice(&stored.pages.to_ne_bytes());
            self.map.update(key, &value, MapFlags::ANY).is_ok()
        });
        self.published.insert((id, offset), (key, stored.pages_at));
    }

    /// Before tables are given up: forgets those whose first word is not among these.
    pub(super) fn keep(&mut self, in_use: impl Fn(u32) -> bool) {
        let map = &self.map;
        self.published.retain(|_, (key, pages_at)| {
            let kept = in_use(*pages_at);
            if let Some(key) = key.filter(|_| !kept) {
                // It was put there; a failure would leave a wrong table for a file that nobody has.
                let _ = map.delete(&key);
            }
            kept
        });
    }
}

/// `None`: the file says nothing of itself.
fn encode(key: FileKey, file: &File, offset: u64) -> Option<Key> {
    let metadata = file.metadata().ok()?;
    let seconds = u64::try_from(metadata.ctime()).ok()?;
    let changed_ns =
        seconds.checked_mul(1_000_000_000)? + u64::try_from(metadata.ctime_nsec()).ok()?;
    let device = key.major << 20 | key.minor;
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&key.inode.to_ne_bytes());
    bytes[8..16].copy_from_slice(&offset.to_ne_bytes());
    bytes[16..24].copy_from_slice(&changed_ns.to_ne_bytes());
    bytes[24..28].copy_from_slice(&device.to_ne_bytes());
    Some(bytes)
}
