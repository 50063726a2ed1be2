//! Tables by file, for the BPF side to find when it meets a process that is not listed yet.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use symbols::mappings::FileKey;

use super::tables::Module;

/// As the BPF side's `struct unwind_file`, bytes of it.
type Key = [u8; 32];

/// What has been published. What could not be is no loss: its processes are listed a little later.
#[derive(Debug)]
pub(super) struct Files {
    map: MapHandle,
    /// The first word of the table.
    published: HashMap<Key, u32>,
    /// By the symbolizer's number and the mapping's offset; the first word of the table.
    seen: HashMap<(u32, u64), u32>,
}

impl Files {
    /// `map` is the BPF side's table of files.
    pub(super) fn new(map: MapHandle) -> Self {
        Self {
            map,
            published: HashMap::new(),
            seen: HashMap::new(),
        }
    }

    /// Whether this file's mappings from `offset` on have not been published yet; from now on they have.
    pub(super) fn is_new(&mut self, id: u32, offset: u64, module: &Module) -> bool {
        let pages_at = module.stored.pages_at;
        self.seen.insert((id, offset), pages_at) != Some(pages_at)
    }

    /// The vDSO's table; `shift` as a mapping's, less its begin.
    pub(super) fn publish_vdso(&mut self, shift: u64, module: &Module) {
        self.put([0; 32], shift, module);
    }

    /// Makes a table known for mappings of a file from `offset` on.
    pub(super) fn publish(&mut self, key: FileKey, file: &File, offset: u64, module: &Module) {
        let shift = module.shift(0, offset);
        if let Some((key, shift)) = encode(key, file, offset).zip(shift) {
            self.put(key, shift, module);
        }
    }

    /// The same for a file that nobody has mapped yet, if its device and inode are as stat(2) says.
    pub(super) fn publish_ahead(&mut self, file: &File, module: &Module) {
        let Ok(metadata) = file.metadata() else {
            return;
        };
        let key = FileKey {
            major: libc::major(metadata.dev()),
            minor: libc::minor(metadata.dev()),
            inode: metadata.ino(),
        };
        for offset in module.code_offsets() {
            self.publish(key, file, offset, module);
        }
    }

    fn put(&mut self, key: Key, shift: u64, module: &Module) {
        let stored = &module.stored;
        let mut value = [0; 16];
        value[..8].copy_from_slice(&shift.to_ne_bytes());
        value[8..12].copy_from_slice(&stored.pages_at.to_ne_bytes());
        value[12..].copy_from_slice(&stored.pages.to_ne_bytes());
        if self.map.update(&key, &value, MapFlags::ANY).is_ok() {
            self.published.insert(key, stored.pages_at);
        }
    }

    /// Before tables are given up: forgets those whose first word is not among these.
    pub(super) fn keep(&mut self, in_use: impl Fn(u32) -> bool) {
        let map = &self.map;
        self.seen.retain(|_, pages_at| in_use(*pages_at));
        self.published.retain(|key, pages_at| {
            let kept = in_use(*pages_at);
            if !kept {
                // It was put there; a failure would leave a wrong table for a file that nobody has.
                let _ = map.delete(key);
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
