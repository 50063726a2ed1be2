//! What a kernel lock is called: by its symbol, by what it lies in, else by who called.

use bpf::lockstat::types::lock_name;
use host::task::comm_text;
use profile::escape::terminal;

use super::symbols::Symbols;
use crate::lockstat::row::{LockName, LockRow};

/// `enum lock_name_kind`.
mod kind {
    pub(super) const MMAP: u8 = 1;
    pub(super) const RUN_QUEUE: u8 = 2;
    pub(super) const PIPE: u8 = 3;
    pub(super) const INODE: u8 = 4;
    /// From `INODE` on, in the enum's order.
    pub(super) const OF_INODE: [&str; 6] = [
        "i_rwsem",
        "i_rwsem's queue",
        "i_lock",
        "i_mmap_rwsem",
        "invalidate_lock",
        "page cache",
    ];
}

pub(crate) fn of(row: &LockRow, known: Option<&lock_name>, symbols: &mut Symbols) -> LockName {
    if let Some(own) = symbols.name(row.identity.address) {
        return LockName::new(own, "");
    }
    let is_static = symbols.is_static(row.identity.address);
    let Some(known) = known else {
        return by_caller(row, "", is_static);
    };
    match known.kind {
        kind::MMAP => LockName::new(
            format!("mmap_lock of {} {}", text(&known.text), row.identity.tgid),
            "mmap_lock",
        ),
        kind::RUN_QUEUE => LockName::new(format!("run queue of CPU {}", known.number), "run queue"),
        kind::PIPE => LockName {
            own: match known.number {
                0 => "pipe".into(),
                inode => format!("pipe:[{inode}]"),
            },
            kind: "pipe".into(),
        },
        _ => of_inode(known).unwrap_or_else(|| by_slab(row, &text(&known.slab), is_static)),
    }
}

/// Another process's words: as they may be shown.
fn text(bytes: &[u8]) -> String {
    terminal(&comm_text(bytes)).into_owned()
}

fn of_inode(known: &lock_name) -> Option<LockName> {
    let index = usize::from(known.kind).checked_sub(kind::INODE.into())?;
    let lock = *kind::OF_INODE.get(index)?;
    let what = match known.file_type {
        0o4 => "dir",
        0o10 => "file",
        0o6 => "disk",
        0o14 => "socket",
        0o1 => "pipe",
        _ => "inode",
    };
    let (name, device) = (text(&known.text), text(&known.device));
    let own = match &*name {
        "" => format!("{lock} of {what} {} on {device}", known.number),
        name => format!("{lock} of {what} {name} on {device}"),
    };
    Some(LockName::new(own, format!("{lock} of {what} on {device}")))
}

/// Locks that are alone of their class in what a slab cache allocates.
fn by_slab(row: &LockRow, slab: &str, is_static: bool) -> LockName {
    let member = match (slab, row.class) {
        ("mm_struct", "rwsem") => "mmap_lock",
        ("sighand_cache", "spinlock") => "siglock",
        ("dentry", "spinlock") => "d_lock",
        ("anon_vma", "rwsem") => "anon_vma rwsem",
        ("files_cache", "spinlock") => "file_lock",
        ("filp", "mutex") => "f_pos_lock",
        ("signal_cache", "rwsem") => "exec_update_lock",
        ("signal_cache", "mutex") => "cred_guard_mutex",
        ("page->ptl", "spinlock") => "page table lock",
        _ => return by_caller(row, slab, is_static),
    };
    LockName::new(member, member)
}

/// Locks that lie among much else, or in memory of any use, by their class and by how the functions begin that alone take them.
const BY_FUNCTION: [(&str, &str, &str); 11] = [
    ("mutex", "lock_rename", "s_vfs_rename_mutex"),
    ("mutex", "do_renameat2", "s_vfs_rename_mutex"),
    ("mutex", "filename_renameat2", "s_vfs_rename_mutex"),
    ("rwsem", "ext4_map_blocks", "i_data_sem"),
    ("rwsem", "ext4_da_map_blocks", "i_data_sem"),
    ("rwsem", "ext4_truncate", "i_data_sem"),
    ("spinlock", "__percpu_counter_", "percpu_counter lock"),
    ("spinlock", "percpu_counter_", "percpu_counter lock"),
    ("spinlock", "dd_", "mq-deadline lock"),
    ("spinlock", "futex_", "futex bucket"),
    ("spinlock", "__futex_", "futex bucket"),
];

/// `own` is what all locks taken there are called.
fn by_caller(row: &LockRow, slab: &str, is_static: bool) -> LockName {
    let caller = row.first_caller.as_deref().unwrap_or("unknown code");
    let mut known = BY_FUNCTION.iter();
    let is_its =
        |(class, begin, _): &&(&str, &str, &str)| row.class == *class && caller.starts_with(*begin);
    let is_of_any_use =
        slab.is_empty() || slab.starts_with("kmalloc") || slab.contains("inode_cache");
    if is_of_any_use
        && !is_static
        && let Some((_, _, member)) = known.find(is_its)
    {
        return LockName::new(*member, *member);
    }
    if is_static {
        return LockName::new(format!("static, in {caller}"), "");
    }
    let own = match slab {
        "" => format!("in {caller}"),
        slab => format!("{slab}, in {caller}"),
    };
    LockName::new(own.clone(), own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockstat::row::tests::row;

    #[test]
    fn locks_in_memory_of_any_use_are_called_by_who_takes_them() {
        let name = |class, caller: &str| {
            let mut row = row(1);
            row.class = class;
            row.first_caller = Some(caller.into());
            by_slab(&row, "kmalloc-2k", false).own
        };
        assert_eq!(name("mutex", "do_renameat2"), "s_vfs_rename_mutex");
        assert_eq!(name("rwsem", "ext4_map_blocks"), "i_data_sem");
        assert_eq!(name("spinlock", "futex_q_lock"), "futex bucket");
        assert_eq!(
            name("mutex", "ext4_map_blocks"),
            "kmalloc-2k, in ext4_map_blocks"
        );
    }
}
