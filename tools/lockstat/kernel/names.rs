//! What a kernel lock is called: by its symbol, by what it lies in, else by who called.

use bpf::lockstat::types::lock_name;
use profile::escape::terminal;
use trace::task::comm_text;

use super::symbols::{self, Symbols};
use crate::row::{LockName, LockRow};

/// `enum lock_name_kind`.
mod kind {
    pub(super) const MMAP: u8 = 1;
    pub(super) const RUN_QUEUE: u8 = 2;
}

pub(crate) fn of(row: &LockRow, known: Option<&lock_name>, symbols: &mut Symbols) -> LockName {
    let address = row.identity.address;
    if let Some(name) = symbols.name(address) {
        return LockName {
            own: name,
            kind: String::new(),
        };
    }
    let Some(known) = known else {
        return by_caller(row, "");
    };
    let text = comm_text(&known.text);
    let text = terminal(&text);
    match known.kind {
        kind::MMAP => LockName {
            own: format!("mmap_lock of {text} {}", row.identity.tgid),
            kind: "mmap_lock".into(),
        },
        kind::RUN_QUEUE => LockName {
            own: format!("run queue of CPU {}", known.number),
            kind: "run queue".into(),
        },
        _ => by_slab(row, &terminal(&comm_text(&known.slab))),
    }
}

/// Locks that are alone of their class in what a slab cache allocates.
fn by_slab(row: &LockRow, slab: &str) -> LockName {
    let member = match (slab, row.class) {
        ("mm_struct", "rwsem") => "mmap_lock",
        ("sighand_cache", "spinlock") => "siglock",
        ("dentry", "spinlock") => "d_lock",
        ("anon_vma", "rwsem") => "anon_vma rwsem",
        ("files_cache", "spinlock") => "file_lock",
        ("page->ptl", "spinlock") => "page table lock",
        _ => return by_caller(row, slab),
    };
    LockName {
        own: member.into(),
        kind: member.into(),
    }
}

fn by_caller(row: &LockRow, slab: &str) -> LockName {
    let caller = row.first_caller.as_deref().unwrap_or("?");
    let what = match slab {
        "" if symbols::is_static(row.identity.address) => {
            return LockName {
                own: format!("{:#x} in {caller}", row.identity.address),
                kind: String::new(),
            };
        }
        "" => format!("in {caller}"),
        slab => format!("{slab} in {caller}"),
    };
    LockName {
        own: what.clone(),
        kind: what,
    }
}
