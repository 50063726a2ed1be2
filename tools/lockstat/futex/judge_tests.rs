use super::*;

fn judge(evidence: Evidence, functions: &[&str]) -> (Class, u8) {
    let functions = functions.iter().map(|name| (*name, None));
    let verdict = classify(Rules::ours(), &evidence, functions);
    (verdict.meaning.class.family(), verdict.confidence)
}

fn call(operation: Operation, value: u32, place: Place) -> Evidence {
    Evidence {
        operation,
        shared: false,
        realtime: false,
        value,
        place,
    }
}

#[test]
fn names_and_memory_that_agree_are_sure() {
    let mutex = call(Operation::Wait, 2, Place::Mutex);
    let stack = [
        "futex_wait",
        "__GI___lll_lock_wait",
        "___pthread_mutex_lock",
        "insert",
        "pthread_cond_wait_is_further_up",
    ];
    assert_eq!(judge(mutex, &stack), (Class::Mutex, 99));
    assert_eq!(judge(mutex, &["app+0x12"]), (Class::Mutex, 90));
    let timed = call(Operation::WaitBitset, 2, Place::Mutex);
    assert_eq!(judge(timed, &[]), (Class::Mutex, 90));
}

#[test]
fn a_wait_in_glibcs_way_for_a_number_above_0_is_for_a_semaphore_unless_names_say_else() {
    let with = |realtime, value| Evidence {
        realtime,
        ..call(Operation::WaitBitset, value, Place::Nowhere)
    };
    let nameless = ["libc.so.6+0x8ef04", "libc.so.6+0x99d74", "wait_sem"];
    assert_eq!(judge(with(true, 0), &nameless), (Class::Sem, 50));
    let cond = ["libc.so.6+0x8ef04", "pthread_cond_wait"];
    assert_eq!(judge(with(true, 0), &cond), (Class::Cond, 95));
    assert_eq!(judge(with(true, 7), &nameless).0, Class::Unknown);
    assert_eq!(judge(with(true, 0), &["static+0x1"]).0, Class::Unknown);
    assert_eq!(judge(with(true, 0), &[]).0, Class::Unknown);
    assert_eq!(judge(with(false, 0), &nameless).0, Class::Unknown);
}

/// From 2.43 on the word is no thread's ID.
#[test]
fn a_join_of_glibcs_is_no_lock() {
    let wait = |shared| Evidence {
        shared,
        realtime: true,
        ..call(Operation::WaitBitset, 2, Place::Nowhere)
    };
    assert_eq!(judge(wait(true), &["app+0x1"]), (Class::Join, 50));
    assert_eq!(judge(wait(true), &["pthread_clockjoin_ex"]).0, Class::Join);
    assert_eq!(judge(wait(false), &["app+0x1"]), (Class::Rwlock, 50));
}

#[test]
fn the_kernel_says_what_inherits_priority() {
    let pi = call(Operation::LockPi, 0, Place::Word);
    assert_eq!(judge(pi, &["___pthread_mutex_lock"]), (Class::Pi, 99));
    assert_eq!(
        judge(call(Operation::RequeuePi, 2, Place::Nowhere), &["app+0x1"]),
        (Class::Cond, 95)
    );
}

#[test]
fn a_mutex_taken_again_after_a_signal_is_a_mutex() {
    let relock = [
        "__lll_lock_wait",
        "__pthread_mutex_cond_lock",
        "___pthread_cond_wait",
    ];
    let evidence = call(Operation::Wait, 2, Place::Mutex);
    assert_eq!(judge(evidence, &relock).0, Class::Mutex);
    let requeued = call(Operation::Requeued, 2, Place::Nowhere);
    assert_eq!(
        judge(requeued, &["__timedwait_cp", "pthread_cond_timedwait"]).0,
        Class::Mutex
    );
}

#[test]
fn what_a_stack_says_overrules_numbers_that_happen_to_fit() {
    // A Rust mutex around a thread ID looks like glibc's.
    let evidence = call(Operation::WaitBitset, 2, Place::Mutex);
    let stack = [
        "syscall",
        "std::sys::pal::unix::futex::futex_wait",
        "std::sys::sync::mutex::futex::Mutex::lock_contended",
        "app::worker",
    ];
    assert_eq!(judge(evidence, &stack), (Class::Rust, 95));
    assert!(!Class::Rust.names_holder());
}

#[test]
fn every_library_is_known_by_its_functions() {
    let nothing = call(Operation::WaitBitset, 7, Place::Nowhere);
    for (function, class) in [
        ("___pthread_rwlock_rdlock", Class::Rwlock),
        ("___pthread_cond_timedwait64", Class::Cond),
        ("__new_sem_wait_slow64.constprop.0", Class::Sem),
        ("__pthread_clockjoin_ex", Class::Join),
        ("___pthread_barrier_wait", Class::Barrier),
        (
            "std::sys::sync::rwlock::futex::RwLock::read_contended",
            Class::Rust,
        ),
        ("std::sys::sync::condvar::futex::Condvar::wait", Class::Cond),
        (
            "std::sys::sync::thread_parking::futex::Parker::park",
            Class::Park,
        ),
        (
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            Class::ParkingLot,
        ),
        (
            "<parking_lot::raw_rwlock::RawRwLock as lock_api::rwlock::RawRwLock>::lock_shared",
            Class::ParkingLot,
        ),
        (
            "parking_lot::condvar::Condvar::wait_until_internal",
            Class::Cond,
        ),
        ("runtime.lock2", Class::Go),
        ("runtime.notesleep", Class::Park),
        ("absl::Mutex::LockSlowLoop", Class::Mutex),
        (
            "void std::__atomic_wait_address<std::__barrier_phase_t, std::barrier<>::wait(…)",
            Class::Barrier,
        ),
        (
            "void std::__atomic_wait_address_bare<std::__atomic_semaphore::_M_acquire()",
            Class::Sem,
        ),
        ("void std::__atomic_wait_address_v<int, …>", Class::Cond),
    ] {
        let stack = ["syscall", "parking_lot_core::parking_lot::park", function];
        assert_eq!(judge(nothing, &stack).0, class, "{function}");
    }
}

/// The same numbers mean other things in musl, whose functions have no names.
#[test]
fn musls_futexes_are_known_by_its_file() {
    let of = |value, file| {
        let evidence = call(Operation::Wait, value, Place::Nowhere);
        let leaf = [("libc.so+0x68bf5", Some(file))];
        let verdict = classify(Rules::ours(), &evidence, leaf.into_iter());
        (verdict.meaning.class, verdict.confidence)
    };
    let [musl, glibc] = ["/usr/lib/x86_64-linux-musl/libc.so", "/lib/libc.so.6"];
    assert_eq!(of(2, musl), (Class::Cond, 60));
    assert_eq!(of(2, "/lib/ld-musl-x86_64.so.1"), (Class::Cond, 60));
    assert_eq!(of(2, glibc).0, Class::LibraryLock);
    assert_eq!(of(0x8000_0010, musl), (Class::Mutex, 90));
}

#[test]
fn without_names_numbers_decide_and_say_how_sure() {
    for (evidence, expected) in [
        (call(Operation::Wait, 2, Place::Nowhere), (Class::Mutex, 60)),
        (
            call(Operation::Wait, 0x8000_0010, Place::Nowhere),
            (Class::Mutex, 60),
        ),
        (
            call(Operation::WaitBitset, u32::MAX, Place::Nowhere),
            (Class::Park, 50),
        ),
        (
            Evidence {
                realtime: true,
                ..call(Operation::WaitBitset, 2, Place::Nowhere)
            },
            (Class::Rwlock, 50),
        ),
        (
            call(Operation::WaitBitset, 3, Place::Phase),
            (Class::Rwlock, 80),
        ),
        (
            call(Operation::Wait, 0x8000_0042, Place::Word),
            (Class::Mutex, 85),
        ),
        (
            Evidence {
                shared: true,
                ..call(Operation::WaitBitset, 4711, Place::Joined)
            },
            (Class::Join, 90),
        ),
        (
            call(Operation::Wait, 17, Place::Nowhere),
            (Class::Unknown, 0),
        ),
    ] {
        assert_eq!(judge(evidence, &[]), expected, "{evidence:?}");
    }
}

#[test]
fn gos_locks_since_1_24_are_known_by_the_functions_of_the_runtime_that_take_them() {
    let spinbit = [
        "runtime.futex",
        "runtime.futexsleep",
        "runtime.semasleep",
        "runtime.lock2",
        "runtime.lockWithRank",
        "runtime.lock",
        "runtime.findRunnable",
        "runtime.schedule",
    ];
    assert_eq!(judge(Evidence::default(), &spinbit), (Class::Go, 95));
    assert_eq!(go_caller(spinbit.into_iter()), Some("runtime.findRunnable"));
    let cut_off = spinbit[..5].iter().copied();
    assert_eq!(go_caller(cut_off), Some("runtime.semasleep"));
    // Before, the lock's own word.
    let older = ["runtime.futex", "runtime.futexsleep", "runtime.lock2"];
    assert_eq!(go_caller(older.into_iter()), None);
}

#[test]
fn callers_are_outside_the_lock_library() {
    let frames = [
        (
            "__futex_abstimed_wait_common",
            Some("/lib/x86_64-linux-gnu/libc.so.6"),
        ),
        (
            "___pthread_mutex_lock",
            Some("/lib/x86_64-linux-gnu/libc.so.6"),
        ),
        ("std::mutex::lock", Some("/usr/bin/app")),
        ("Cache::insert", Some("/usr/bin/app")),
        ("main", Some("/usr/bin/app")),
    ];
    assert_eq!(
        first_caller(Rules::ours(), frames.into_iter()),
        Some("Cache::insert")
    );
    let caller = |frames: &[Call<'static>]| first_caller(Rules::ours(), frames.iter().copied());
    assert_eq!(caller(&frames[..2]), None);
    // One with a name, where one is near.
    let nameless = [
        frames[1],
        ("app+0x12ab", None),
        ("app+0x4f", None),
        frames[4],
    ];
    assert_eq!(caller(&nameless), Some("main"));
    assert_eq!(caller(&nameless[..3]), Some("app+0x12ab"));
    // A stripped program, below what starts it.
    let libc = frames[0].1;
    let started = [
        nameless[1],
        nameless[2],
        ("__libc_start_call_main", libc),
        ("_start", Some("/usr/bin/app")),
    ];
    assert_eq!(caller(&started[..3]), Some("app+0x12ab"));
}

#[test]
fn locks_are_these_families() {
    let contention: Vec<&str> = Class::FAMILIES
        .into_iter()
        .filter(|class| class.is_lock())
        .map(Class::word)
        .collect();
    assert_eq!(
        contention,
        [
            "mutex",
            "rwlock",
            "pi",
            "rust",
            "parking_lot",
            "go",
            "java-lock",
            "monitor",
            "flock",
            "posix",
            "ofd"
        ]
    );
}
