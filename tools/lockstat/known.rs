//! Tables of what is known about locks, which outlive an interval.

use std::collections::HashSet;

use bpf::lockstat::types::lock_id;
use libbpf_rs::MapCore;

use crate::lockstat::row::Identity;

/// Makes room in such a table for later intervals' locks; one that comes back is described again. `used`: locks of this interval.
pub(crate) fn forget_unused<V>(
    map: &impl MapCore,
    known: &[(lock_id, V)],
    used: impl Iterator<Item = Identity>,
) {
    let is_crowded = known.len() >= map.max_entries() as usize / 2;
    if !is_crowded {
        return;
    }
    let used: HashSet<Identity> = used.collect();
    for (id, _) in known {
        if !used.contains(&Identity::from(id)) {
            // SAFETY: a plain key is as many initialised bytes.
            let key = unsafe { plain::as_bytes(id) };
            // It is there, for nobody else deletes any.
            let _ = map.delete(key);
        }
    }
}
