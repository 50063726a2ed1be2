//! Locks with system calls of their own: those of files, and semaphores of System V, and what stands for locks in calls that wait for
//! anything: eventfds, and tokens in pipes. The call says what they are.

use std::collections::HashMap;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{file_path, lock_id};
use host::paths::Path;
use host::semaphores::Sets;
use loader::maps;
use stacks::StackTable;

use super::caller;
use crate::lockstat::futex::{Class, Role, Rules, calls};
use crate::lockstat::known::forget_unused;
use crate::lockstat::row::{Identity, LockName, LockRow};

/// `CALL_FLOCK` and those behind it, in `enum futex_operation` of the BPF side, in its order.
const FIRST: u8 = 128;
const CLASSES: [Class; 6] = [
    Class::Flock,
    Class::Posix,
    Class::Ofd,
    Class::SysvSem,
    Class::Eventfd,
    Class::Token,
];

fn class(row: &LockRow) -> Option<Class> {
    let at = row.identity.class.checked_sub(FIRST)?;
    CLASSES.get(usize::from(at)).copied()
}

/// Looks whether a row of a program's lock is of such a call.
pub(super) fn is_one(row: &LockRow) -> bool {
    class(row).is_some()
}

/// Class, name and callers of each.
pub(super) fn judge(
    rows: Vec<LockRow>,
    skel: &LockstatSkel<'_>,
    stacks: &mut StackTable,
    rules: &Rules,
) -> Result<Vec<(Class, Role, LockRow)>> {
    let known = maps::entries::<lock_id, file_path>(&skel.maps.lock_files)?;
    let used = rows.iter().map(|row| row.identity);
    forget_unused(&skel.maps.lock_files, &known, used);
    let known = known.into_iter();
    let files: HashMap<Identity, file_path> = known
        .map(|(id, file)| (Identity::from(&id), file))
        .collect();
    let has_sets = rows.iter().any(|row| class(row) == Some(Class::SysvSem));
    let sets = if has_sets {
        Sets::read()
    } else {
        Sets::default()
    };
    let judged = rows.into_iter().filter_map(|row| {
        let class = class(&row)?;
        let name = match class {
            Class::SysvSem => name_of_set(row.identity, &sets),
            // Numbered by the kernel, as /proc/PID/fdinfo has them.
            Class::Eventfd => unlike_others(format!("id {}", row.identity.address)),
            Class::Token => unlike_others(format!("pipe {}", row.identity.address)),
            _ => name_of_file(row.identity, files.get(&row.identity)),
        };
        of(row, class, name, rules, stacks)
    });
    Ok(judged.collect())
}

/// `None`: a byte of a pipe that nobody knows for a token. A loop that waits for its own signals looks the same.
fn of(
    mut row: LockRow,
    class: Class,
    name: LockName,
    rules: &Rules,
    stacks: &mut StackTable,
) -> Option<(Class, Role, LockRow)> {
    for waiter in &mut row.waiters {
        waiter.caller = caller(rules, waiter.user, class, stacks);
    }
    let mut callers = row.waiters.iter().filter_map(|one| one.caller.clone());
    row.first_caller = callers.next();
    row.name = name;
    row.class = class.word();
    row.confidence = 100;
    if row.identity.is_files() {
        row.identity = Identity {
            address: 0,
            object: row.identity.address,
            device: Some(device(row.identity.object)),
            ..row.identity
        };
        return Some((class, Role::Trouble, row));
    }
    let named = row.waiters.iter().find_map(|waiter| {
        let frames = stacks.user_names(waiter.user);
        rules.named(calls(&frames))
    });
    if class == Class::Token {
        let (word, role) = named?;
        row.class = word;
        // A make waits for the end of its own children, too, and for nothing else if nobody ever gave one back.
        let role = match row.holders.is_empty() {
            true => Role::Work,
            false => role,
        };
        return Some((Class::Named, role, row));
    }
    let role = named.map_or(Role::Unsaid, |(_, role)| role);
    Some((class, role, row))
}

/// The kernel's numbers: MINORBITS of include/linux/kdev_t.h.
fn device(number: u64) -> (u32, u32) {
    let number = number as u32;
    (number >> 20, number & 0xf_ffff)
}

fn name_of_set(lock: Identity, sets: &Sets) -> LockName {
    let (id, namespace) = (lock.address, lock.object);
    unlike_others(match sets.key(namespace, id) {
        None => format!("set {id}"),
        Some(0) => format!("set {id} (private)"),
        Some(key) => format!("set {id} (key {key:#x})"),
    })
}

fn unlike_others(own: String) -> LockName {
    LockName {
        own,
        kind: String::new(),
    }
}

/// The path, or where it cannot be had what tells the file from others.
fn name_of_file(lock: Identity, file: Option<&file_path>) -> LockName {
    let (major, minor) = device(lock.object);
    let unnamed = || LockName {
        own: format!("inode {} on {major}:{minor}", lock.address),
        kind: format!("files on {major}:{minor}"),
    };
    file.and_then(path).unwrap_or_else(unnamed)
}

fn path(file: &file_path) -> Option<LockName> {
    let path = Path::of(&file.names, file.is_whole != 0)?;
    let kind = path.directory.as_ref();
    let kind = kind.map_or(String::new(), |directory| format!("files in {directory}/"));
    Some(LockName {
        own: path.to_string(),
        kind,
    })
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
