use super::*;

/// Memory that begins at 0x1000.
fn memory(words: &[u32]) -> impl Fn(u64, &mut [u32]) -> bool {
    move |address, buffer| {
        let Some(at) = address.checked_sub(0x1000) else {
            return false;
        };
        let at = usize::try_from(at / 4).unwrap();
        let Some(found) = words.get(at..at + buffer.len()) else {
            return false;
        };
        buffer.copy_from_slice(found);
        true
    }
}

fn named(tid: u32) -> Named {
    match tid {
        100..200 => Named::Own(tid as usize - 100),
        200..300 => Named::Stranger(tid as usize - 100),
        300..400 => Named::Unsure,
        _ => Named::Nobody,
    }
}

/// What the words of a program say, and whose.
fn lock_in(
    layout: Layout,
    futex: &Futex,
    read: ReadWords<'_>,
    named: &dyn Fn(u32) -> Named,
) -> Option<(Class, Holder)> {
    lock_at(futex, layout, read, named).map(|known| (known.class, known.holder))
}

fn lock_at64(
    futex: &Futex,
    read: ReadWords<'_>,
    named: &dyn Fn(u32) -> Named,
) -> Option<(Class, Holder)> {
    lock_in(Layout::NATIVE, futex, read, named)
}

fn wait(operation: Operation, address: u64, value: u32) -> Futex {
    Futex {
        operation,
        address,
        value,
        private: true,
        realtime: true,
        timed: false,
    }
}

#[test]
fn a_mutex_names_its_owner() {
    let at = |words: &[u32], futex| lock_at64(&futex, &memory(words), &named);
    let plain = wait(Operation::Wait, 0x1000, 2);
    assert_eq!(
        at(&[2, 0, 101, 1, 0], plain),
        Some((Class::Mutex, Holder::Thread(1)))
    );
    assert_eq!(
        at(&[2, 0, 999, 1, 0], plain),
        Some((Class::Mutex, Holder::Gone(999)))
    );
    assert_eq!(at(&[2, 0, 201, 1, 0], plain), None, "another process's");
    let shared = Futex {
        private: false,
        ..plain
    };
    assert_eq!(
        at(&[2, 0, 201, 1, 0x80], shared),
        Some((Class::Mutex, Holder::Thread(101)))
    );
    assert_eq!(
        at(&[2, 0, 301, 1, 0x80], shared),
        Some((Class::Mutex, Holder::Unrecorded)),
        "a number of who knows which namespace"
    );
    assert_eq!(at(&[2, 0, 101, 0, 0], plain), None, "no users");
    assert_eq!(at(&[2, 0, 101, 1, 0x7777], plain), None, "no mutex");
    // Rust's mutex is one word; what follows is its data.
    let rust = wait(Operation::WaitBitset, 0x1000, 2);
    assert_eq!(at(&[2, 0, 101, 1, 0], rust), None);
    let timed = Futex {
        timed: true,
        ..rust
    };
    assert_eq!(
        at(&[2, 0, 101, 1, 0], timed),
        Some((Class::Mutex, Holder::Thread(1)))
    );
    let robust = wait(Operation::Wait, 0x1000, WAITERS | 102);
    assert_eq!(
        at(&[WAITERS | 102, 0, 102, 1, 0x10], robust),
        Some((Class::Mutex, Holder::Thread(2)))
    );
}

#[test]
fn a_pi_lock_is_the_owners_id() {
    let futex = wait(Operation::LockPi, 0x1000, 0);
    assert_eq!(
        lock_at64(&futex, &memory(&[WAITERS | 103]), &named),
        Some((Class::Pi, Holder::Thread(3)))
    );
}

#[test]
fn a_join_waits_for_the_thread_in_the_word() {
    let shared = Futex {
        private: false,
        ..wait(Operation::WaitBitset, 0x1000, 104)
    };
    assert_eq!(
        lock_at64(&shared, &memory(&[104]), &named),
        Some((Class::Join, Holder::Thread(4)))
    );
    let private = Futex {
        private: true,
        ..shared
    };
    assert_eq!(lock_at64(&private, &memory(&[104]), &named), None);
    // A lock's 2 is not thread 2 of somebody else.
    let lock = Futex {
        value: 204,
        ..shared
    };
    assert_eq!(lock_at64(&lock, &memory(&[204]), &named), None);
}

#[test]
fn a_rwlock_names_its_writer_and_counts_its_readers() {
    let phase = |value| wait(Operation::WaitBitset, 0x1008, value);
    // A reader behind a writer.
    assert_eq!(
        lock_at64(&phase(3), &memory(&[3, 1, 3, 1, 0, 0, 105, 0]), &named),
        Some((Class::RwlockRead, Holder::Thread(5)))
    );
    // A writer behind three readers.
    assert_eq!(
        lock_at64(
            &phase(2),
            &memory(&[(3 << 3) | 2, 1, 2, 1, 0, 0, 0, 0]),
            &named
        ),
        Some((Class::RwlockWrite, Holder::Readers(3)))
    );
    // The same words behind a counter of Rust's, which does not wait by CLOCK_REALTIME.
    let rust = Futex {
        realtime: false,
        ..phase(2)
    };
    let words = [(3 << 3) | 2, 1, 2, 1, 0, 0, 0, 0];
    assert_eq!(lock_at64(&rust, &memory(&words), &named), None);
    // A writer behind a writer.
    let writers = wait(Operation::WaitBitset, 0x100c, 3);
    assert_eq!(
        lock_at64(&writers, &memory(&[3, 2, 1, 3, 0, 0, 106, 0]), &named),
        Some((Class::RwlockWrite, Holder::Thread(6)))
    );
    // Shared, and an odd number of writers: at the next word the lock would look like one, too.
    let shared = Futex {
        private: false,
        ..writers
    };
    assert_eq!(
        lock_at64(&shared, &memory(&[3, 1, 1, 3, 0, 0, 106, 1, 0]), &named),
        Some((Class::RwlockWrite, Holder::Thread(6)))
    );
    // As they are by default: nobody counts writers that wait.
    assert_eq!(
        lock_at64(&writers, &memory(&[3, 0, 1, 3, 0, 0, 106, 0]), &named),
        Some((Class::RwlockWrite, Holder::Thread(6)))
    );
    assert_eq!(
        lock_at64(&phase(3), &memory(&[0, 0, 3, 0, 77, 0, 105, 0]), &named),
        None,
        "no rwlock"
    );
    assert_eq!(
        lock_at64(&writers, &memory(&[3, 2, 1, 3, 0, 0, 0, 0]), &named),
        None,
        "no writer: the stack has to tell"
    );
}

#[test]
fn a_32_bit_programs_locks_have_their_words_in_another_order() {
    let at = |words: &[u32], futex: Futex| {
        let known = lock_at(&futex, Layout::COMPAT, &memory(words), &named)?;
        Some((known.class, known.holder, known.address))
    };
    let mutex = wait(Operation::Wait, 0x1000, 2);
    assert_eq!(
        at(&[2, 0, 101, 0, 1], mutex),
        Some((Class::Mutex, Holder::Thread(1), 0x1000))
    );
    assert_eq!(at(&[2, 0, 101, 1, 0], mutex), None, "no users");
    let robust = wait(Operation::Wait, 0x1000, WAITERS | 102);
    assert_eq!(
        at(&[WAITERS | 102, 0, 102, 0x10, 1], robust),
        Some((Class::Mutex, Holder::Thread(2), 0x1000))
    );
    // Shared, and writers first.
    let phase = wait(Operation::WaitBitset, 0x1008, 3);
    assert_eq!(
        at(&[3, 1, 3, 1, 0, 0, 0x102, 105], phase),
        Some((Class::RwlockRead, Holder::Thread(5), 0x1000))
    );
    let writers = wait(Operation::WaitBitset, 0x1010, 3);
    assert_eq!(
        at(&[9, 3, 2, 1, 3, 0, 0, 0, 106], writers),
        Some((Class::RwlockWrite, Holder::Thread(6), 0x1004)),
        "such a lock may begin at any word"
    );
    assert_eq!(at(&[3, 1, 3, 1, 0, 0, 0x1000_0000, 105], phase), None);
}
