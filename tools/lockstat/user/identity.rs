//! Which futexes are one lock, and what it is called.
//!
//! A lock may be waited for in several ways (with and without a timeout) and at several of its words (a rwlock's); processes
//! may share it; and waiters of parking_lot's and newer Go's wait on words of their own, so that only the place in the code is common.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use host::task::comm_of;
use profile::rank::Rank;
use symbols::places::Place as Memory;

use super::add_to_same;
use super::java::Object;
use crate::lockstat::futex::{Class, Evidence, Place, Role};
use crate::lockstat::row::{Identity, LockName, LockRow, SURE};

/// A futex that has been judged.
pub(super) struct Lock {
    pub(super) row: LockRow,
    pub(super) class: Class,
    pub(super) role: Role,
    pub(super) evidence: Evidence,
    /// The words waited on are the waiters', not the lock's, which is nowhere to be seen.
    pub(super) is_hidden: bool,
    /// It is a program's in Python, and known by who asks for it.
    pub(super) is_python: bool,
    /// An object of a Java virtual machine's that is waited for.
    pub(super) java: Option<Object>,
    /// Bytes from the lock's beginning to the futex, by the rule; 0: its class tells, if it is not the beginning.
    pub(super) behind: u64,
    /// It is glibc's that waits.
    pub(super) in_glibc: bool,
    /// What lies at its address.
    pub(super) place: Option<Memory>,
}

/// Where the words that are waited on lie in glibc's locks.
const RWLOCK_PHASE: u64 = 8;
const RWLOCK_WRITERS: u64 = 12;
/// Both groups' words of a condition variable: at 32 without __g_refs (glibc 2.41, and older ones' later patches), else at 40. In a
/// structure nobody can tell which.
const COND_GROUPS: std::ops::Range<u64> = 32..48;

/// One row per lock, named; waits first seen in one way come with those seen in another.
pub(super) fn unite(mut locks: Vec<Lock>) -> Vec<(Class, Role, LockRow)> {
    settle_classes(&mut locks);
    // Those who know where their lock begins come before those who have to guess.
    locks.rank_by_key(|lock| (lock.evidence.place == Place::Nowhere, lock.row.identity));
    let mut united: HashMap<Identity, (Class, Role, LockRow)> = HashMap::new();
    for mut lock in locks {
        let inside = offset_inside(&lock, &united);
        lock.row.identity = identity(&lock, inside);
        lock.row.name = name(&lock, inside);
        match united.get_mut(&lock.row.identity) {
            Some((_, _, sum)) => add_to_same(sum, &lock.row),
            None => drop(united.insert(lock.row.identity, (lock.class, lock.role, lock.row))),
        }
    }
    let mut rows: Vec<(Class, Role, LockRow)> = united.into_values().collect();
    for (_, _, row) in &mut rows {
        row.waiters
            .rank_by_key(|waiter| Reverse((waiter.total_ns, waiter.task.tid)));
    }
    rows
}

/// How sure a class is; of those that are as sure, the one that was waited for longest counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Settled {
    confidence: u8,
    total_ns: u64,
    class: Class,
    role: Role,
    word: &'static str,
    is_hidden: bool,
}

/// What is judged without any stack or memory, calls that raced, is what its surest neighbour at the same address is. An earlier
/// interval has counted waits that go on; they have time.
fn settle_classes(locks: &mut [Lock]) {
    let mut surest = HashMap::new();
    for lock in locks.iter() {
        let at = word_of(lock);
        let settled = Settled {
            confidence: lock.row.confidence,
            total_ns: lock.row.total_ns,
            class: lock.class,
            role: lock.role,
            word: lock.row.class,
            is_hidden: lock.is_hidden,
        };
        let best = surest.entry(at).or_insert(settled);
        *best = settled.max(*best);
    }
    for lock in locks.iter_mut() {
        let at = word_of(lock);
        let best = surest[&at];
        let only_raced = lock.row.contentions == 0 && lock.row.total_ns == 0;
        if only_raced || lock.row.confidence < SURE {
            (lock.class, lock.role, lock.is_hidden) = (best.class, best.role, best.is_hidden);
            (lock.row.class, lock.row.confidence) = (best.word, best.confidence);
        }
    }
}

/// The word that a lock is waited on at. One of a thread of Java's serves for all that it waits for.
fn word_of(lock: &Lock) -> (u32, u64, Option<(u8, u64)>) {
    let identity = &lock.row.identity;
    let object = lock.java.as_ref();
    let object = object.map(|_| (identity.class, identity.object));
    (identity.tgid, identity.address, object)
}

/// How far the futex word is behind the lock's beginning.
fn offset_inside(lock: &Lock, known: &HashMap<Identity, (Class, Role, LockRow)>) -> u64 {
    let address = lock.row.identity.address;
    match (lock.class, lock.evidence.place) {
        _ if lock.behind > 0 => lock.behind,
        (Class::Rwlock, Place::Phase) => RWLOCK_PHASE,
        (Class::Rwlock, Place::Writers) => RWLOCK_WRITERS,
        (Class::Rwlock, _) => {
            let is_known = |inside: &u64| known.contains_key(&identity(lock, *inside));
            let guess = [RWLOCK_PHASE, RWLOCK_WRITERS].into_iter().find(is_known);
            // A rwlock is aligned to 8 bytes.
            guess.unwrap_or(if address.is_multiple_of(8) {
                RWLOCK_PHASE
            } else {
                RWLOCK_WRITERS
            })
        }
        // A lock that a rule names may be made of any of them, a condition variable with its two words most of all.
        (Class::Barrier | Class::Named | Class::Gil, _) if lock.in_glibc => address % 8,
        // One of its own in a variable of its own; else the words are all that is known.
        (Class::Cond, _) if lock.in_glibc => offset_in_variable(lock)
            .filter(|offset| COND_GROUPS.contains(offset))
            .unwrap_or(address % 8),
        _ => 0,
    }
}

fn offset_in_variable(lock: &Lock) -> Option<u64> {
    let place = lock.place.as_ref().filter(|place| place.is_variable)?;
    split(&place.name).map(|(_, offset)| offset)
}

fn identity(lock: &Lock, inside: u64) -> Identity {
    let futex = lock.row.identity;
    let shared = lock.place.as_ref().and_then(|place| place.file);
    let private = Identity {
        address: futex.address.wrapping_sub(inside),
        object: 0,
        class: lock.class as u8,
        ..futex
    };
    match shared {
        // A thread's word is that of all locks that it waits for: which waits are for one lock, nothing says.
        _ if lock.is_hidden && lock.class == Class::Go => Identity {
            address: 0,
            object: hash(lock, None),
            ..private
        },
        _ if lock.is_hidden => Identity {
            address: 0,
            object: hash(lock, lock.row.first_caller.as_deref()),
            // Processes that share it have a word each.
            tgid: if lock.evidence.shared { 0 } else { futex.tgid },
            ..private
        },
        Some(at) if lock.evidence.shared => Identity {
            address: at.offset.wrapping_sub(inside),
            object: at.inode,
            device: Some(at.device),
            tgid: 0,
            ..private
        },
        _ => private,
    }
}

fn hash(lock: &Lock, caller: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let object = lock.java.as_ref().map(Object::name);
    (lock.row.class, caller, object).hash(&mut hasher);
    hasher.finish()
}

/// A variable's name; else where its memory is, and for many like it who waits there.
fn name(lock: &Lock, inside: u64) -> LockName {
    let caller = lock.row.first_caller.as_deref();
    if lock.is_hidden && lock.class == Class::Go {
        return LockName {
            own: "locks of Go's runtime".to_owned(),
            kind: String::new(),
        };
    }
    if lock.class == Class::Gil {
        let tgid = lock.row.identity.tgid;
        let waiter = lock.row.waiters.first();
        let comm = comm_of(tgid).or_else(|| waiter.map(|waiter| Arc::clone(&waiter.task.comm)));
        return LockName {
            own: format!("GIL of {} {tgid}", comm.as_deref().unwrap_or("PID")),
            kind: "GIL".to_owned(),
        };
    }
    if let Some(object) = &lock.java {
        let at = || format!("{} {:#x}", object.name(), lock.row.identity.address);
        let kind = caller.map_or_else(
            || object.name().into(),
            |name| format!("{} in {name}", object.name()),
        );
        return match object.is_seen {
            true => LockName::new(at(), kind),
            false => LockName::new(kind, ""),
        };
    }
    if lock.is_hidden || lock.is_python {
        let unknown = || format!("[{}]", lock.row.class);
        let own = caller.map_or_else(unknown, |name| format!("in {name}"));
        return LockName {
            own,
            kind: String::new(),
        };
    }
    let address = lock.row.identity.address.wrapping_sub(inside);
    match &lock.place {
        Some(place) if place.is_variable || place.file.is_some() => LockName {
            own: before(&place.name, inside),
            kind: String::new(),
        },
        place => {
            let memory = place.as_ref().map_or("[gone]", |place| &place.name);
            let kind = caller.map(|caller| format!("{memory} in {caller}"));
            LockName {
                own: format!("{memory} {address:#x}"),
                kind: kind.unwrap_or_default(),
            }
        }
    }
}

/// `name+0x1c` with `inside` less behind the plus.
fn before(name: &str, inside: u64) -> String {
    let parsed = split(name);
    match parsed.and_then(|(start, offset)| Some((start, offset.checked_sub(inside)?))) {
        Some((start, 0)) => start.into(),
        Some((start, offset)) => format!("{start}+{offset:#x}"),
        None => name.into(),
    }
}

/// `name+0x1c` as the name and the offset.
fn split(name: &str) -> Option<(&str, u64)> {
    let (start, digits) = name.rsplit_once("+0x")?;
    Some((start, u64::from_str_radix(digits, 16).ok()?))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
