//! Global locks of Python, for the BPF side: it puts together the waits that are one.

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::gils;
use libbpf_rs::{MapCore, MapFlags};
use loader::section;
use stacks::PythonLocks;

/// Tells where they lie in some processes.
pub(crate) fn tell(skel: &mut LockstatSkel<'_>, news: Vec<PythonLocks>) -> Result<()> {
    for locks in news {
        let told = gils {
            space: locks.space,
            at: locks.at,
            size: u32::try_from(locks.size).unwrap_or(0),
            tid_at: locks.tid_at,
        };
        // SAFETY: the type has no padding.
        let bytes = unsafe { plain::as_bytes(&told) };
        let key = locks.tgid.to_ne_bytes();
        skel.maps.gils.update(&key, bytes, MapFlags::ANY)?;
        section(skel.maps.bss_data.as_deref_mut(), ".bss")?.has_gils = 1;
    }
    Ok(())
}
