use super::*;
use crate::lockstat::row::{Side, tests::row};
use symbols::places::InFile;

fn futex(address: u64, class: Class, place: Place, contentions: u64) -> Lock {
    let mut row = row(1_000);
    row.identity = Identity {
        side: Side::User,
        address,
        object: 0,
        device: None,
        tgid: 7,
        class: 9,
    };
    row.class = class.word();
    row.contentions = contentions;
    row.total_ns *= contentions.min(1);
    row.confidence = if contentions > 0 { 99 } else { 0 };
    Lock {
        row,
        class,
        role: Role::Unsaid,
        evidence: Evidence {
            place,
            ..Evidence::default()
        },
        is_hidden: class == Class::ParkingLot,
        java: None,
        behind: 0,
        in_glibc: true,
        is_python: false,
        place: Some(Memory {
            name: format!("app.bss: lock+{:#x}", address - 0x1000),
            is_variable: true,
            file: None,
        }),
    }
}

#[test]
fn both_words_of_a_rwlock_are_one_lock() {
    let rows = unite(vec![
        futex(0x1008, Class::Rwlock, Place::Phase, 2),
        futex(0x100c, Class::Rwlock, Place::Writers, 3),
        futex(0x1008, Class::Rwlock, Place::Nowhere, 5),
    ]);
    let [(Class::Rwlock, _, row)] = &rows[..] else {
        panic!("one lock, not {}", rows.len())
    };
    assert_eq!(row.identity.address, 0x1000);
    assert_eq!((row.contentions, row.locks), (10, 1));
    assert_eq!(row.name.own, "app.bss: lock");
}

/// Readers wait for the first word, writers for the second.
#[test]
fn both_words_of_a_rwlock_of_rust_are_one_lock() {
    let mut writers = futex(0x1004, Class::Rust, Place::Nowhere, 3);
    writers.behind = 4;
    let rows = unite(vec![
        futex(0x1000, Class::Rust, Place::Nowhere, 2),
        writers,
        futex(0x1008, Class::Rust, Place::Nowhere, 1),
    ]);
    let mut locks: Vec<_> = rows
        .iter()
        .map(|(_, _, row)| (row.identity.address, row.contentions, &*row.name.own))
        .collect();
    locks.sort_unstable();
    assert_eq!(
        locks,
        [
            (0x1000, 5, "app.bss: lock"),
            (0x1008, 1, "app.bss: lock+0x8")
        ]
    );
}

/// glibc moved the words that are waited on from 40 to 32.
#[test]
fn both_words_of_a_condition_variable_are_one_by_its_name_in_either_layout() {
    let cond = |address: u64| futex(address, Class::Cond, Place::Nowhere, 1);
    for words in [[0x1020, 0x1024], [0x1028, 0x102c]] {
        let rows = unite(words.map(cond).into());
        let [(Class::Cond, _, row)] = &rows[..] else {
            panic!("one condition variable, not {}", rows.len())
        };
        assert_eq!(row.identity.address, 0x1000);
        assert_eq!((row.contentions, &*row.name.own), (2, "app.bss: lock"));
    }
    // Somewhere in a structure, or on the heap.
    for words in [[0x1048, 0x104c], [0x1050, 0x1054]] {
        let rows = unite(words.map(cond).into());
        let [(Class::Cond, _, row)] = &rows[..] else {
            panic!("one condition variable, not {}", rows.len())
        };
        assert_eq!(row.identity.address, words[0]);
        let name = format!("app.bss: lock+{:#x}", words[0] - 0x1000);
        assert_eq!((row.contentions, &row.name.own), (2, &name));
        let heap = words.map(|word| {
            let mut lock = cond(word);
            let place = lock.place.as_mut().expect("a place");
            (place.name, place.is_variable) = ("[heap]".into(), false);
            lock
        });
        let rows = unite(heap.into());
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].2.name.own, format!("[heap] {:#x}", words[0]));
    }
}

/// An interpreter's lock of which the place is not known is a condition variable in a structure.
#[test]
fn both_words_of_what_a_rule_names_are_one() {
    let gil = |address: u64| futex(address, Class::Gil, Place::Nowhere, 1);
    let rows = unite([0x11b0, 0x11b4].map(gil).into());
    let [(Class::Gil, _, row)] = &rows[..] else {
        panic!("one lock, not {}", rows.len())
    };
    assert_eq!((row.identity.address, row.contentions), (0x11b0, 2));
    let others = [0x11b0, 0x11b8].map(gil);
    assert_eq!(unite(others.into()).len(), 2);
}

/// All that threads wait on within an interpreter's lock is one: condition variables, and their mutexes.
#[test]
fn all_words_of_an_interpreters_lock_are_one() {
    let gil = |behind: u64| Lock {
        behind,
        ..futex(0x1104 + behind, Class::Gil, Place::Nowhere, 1)
    };
    let rows = unite([32, 36, 80, 164].map(gil).into());
    let [(Class::Gil, _, row)] = &rows[..] else {
        panic!("one lock, not {}", rows.len())
    };
    assert_eq!((row.identity.address, row.contentions), (0x1104, 4));
    assert!(row.name.own.starts_with("GIL of "), "{:?}", row.name);
    assert_eq!(row.name.kind, "GIL");
}

/// A program's lock in Python is called by who asks for it, and has its own row.
#[test]
fn locks_of_python_are_called_by_who_waits() {
    let lock = |address: u64| {
        let mut lock = futex(address, Class::Named, Place::Nowhere, 1);
        lock.is_python = true;
        lock.row.first_caller = Some("Till.pay (shop.py:12)".into());
        lock
    };
    let rows = unite([0x1000, 0x2000].map(lock).into());
    let names: Vec<&str> = rows.iter().map(|(_, _, row)| &*row.name.own).collect();
    assert_eq!(names, ["in Till.pay (shop.py:12)"; 2]);
}

#[test]
fn a_race_belongs_to_the_lock_at_its_address() {
    let mut race = futex(0x1000, Class::Unknown, Place::Nowhere, 0);
    race.row.raced = 11;
    let rows = unite(vec![race, futex(0x1000, Class::Mutex, Place::Mutex, 3)]);
    let [(Class::Mutex, _, row)] = &rows[..] else {
        panic!("one mutex, not {}", rows.len())
    };
    assert_eq!((row.raced, row.contentions), (11, 3));
}

/// The word on which parking_lot lets a thread wait for everything.
#[test]
fn waits_carried_over_keep_their_own_class_whatever_else_the_thread_waits_for() {
    let parked = || {
        let mut carried = futex(0x1000, Class::Cond, Place::Nowhere, 0);
        carried.row.identity.object = 1;
        (carried.row.total_ns, carried.row.open) = (500, 1);
        let mut ended = futex(0x1000, Class::ParkingLot, Place::Nowhere, 3);
        ended.row.identity.object = 2;
        (carried.row.confidence, ended.row.confidence) = (95, 95);
        (carried.in_glibc, ended.in_glibc) = (false, false);
        let mut race = futex(0x1000, Class::Unknown, Place::Nowhere, 0);
        (race.row.identity.object, race.row.raced) = (0, 1);
        [carried, ended, race]
    };
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut locks = parked().map(Some);
        let in_order = order.map(|n| locks[n].take().expect("each once"));
        let mut rows: Vec<_> = unite(in_order.into())
            .into_iter()
            .map(|(class, _, row)| (class, row.contentions, row.open, row.raced, row.total_ns))
            .collect();
        rows.sort_unstable();
        assert_eq!(
            rows,
            [
                (Class::ParkingLot, 3, 0, 1, 1_000),
                (Class::Cond, 0, 1, 0, 500)
            ],
            "{order:?}"
        );
    }
}

#[test]
fn processes_share_a_lock_by_device_file_and_offset() {
    let shared = |tgid: u32, address: u64, minor: u32| {
        let mut lock = futex(address, Class::Mutex, Place::Mutex, 1);
        lock.row.identity.tgid = tgid;
        lock.evidence.shared = true;
        lock.place = Some(Memory {
            name: "pool+0x40".into(),
            is_variable: false,
            file: Some(InFile {
                device: (0, minor),
                inode: 4711,
                offset: 0x40,
            }),
        });
        lock
    };
    let rows = unite(vec![shared(1, 0x2040, 40), shared(2, 0x9040, 40)]);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].2.identity.device, Some((0, 40)));
    assert_eq!(rows[0].2.name.own, "pool+0x40");
    assert_eq!(rows[0].2.identity.object, 4711);
    // Another container's file of the same number.
    let rows = unite(vec![shared(1, 0x2040, 40), shared(2, 0x9040, 41)]);
    assert_eq!(rows.len(), 2);
}

#[test]
fn waiters_on_words_of_their_own_meet_where_they_wait() {
    meet(
        Class::ParkingLot,
        true,
        &[("in evict", 1), ("in insert", 2)],
    );
    // A thread's word is for all of the runtime's locks, whoever waits there first.
    meet(Class::Go, true, &[("locks of Go's runtime", 3)]);
    // Older Go's wait on the lock.
    let own = [("app.bss: lock+0x10", 2), ("app.bss: lock+0x1020", 1)];
    meet(Class::Go, false, &own);
}

/// Three threads' waits, two of them on one word, two of them from one function: as the names say.
fn meet(class: Class, is_hidden: bool, expected: &[(&str, u64)]) {
    let parked = |address: u64, caller: &str| {
        let mut lock = futex(address, class, Place::Nowhere, 1);
        lock.is_hidden = is_hidden;
        lock.row.first_caller = Some(caller.into());
        lock
    };
    let rows = unite(vec![
        parked(0x1010, "insert"),
        parked(0x2020, "insert"),
        parked(0x1010, "evict"),
    ]);
    let mut names: Vec<_> = rows
        .iter()
        .map(|(_, _, row)| (row.name.own.as_str(), row.contentions))
        .collect();
    names.sort_unstable();
    assert_eq!(names, expected);
}
