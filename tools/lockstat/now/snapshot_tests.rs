use bpf::lockstat_now::types::now_thread;

use super::super::lock::{Identity, Told, Waited};
use super::super::thread::KernelKind;
use super::*;
use crate::lockstat::futex::Class;

/// One look at sleeping threads: ID, switches so far, whether it was asked for.
fn look(threads: &[(u32, u64, bool)]) -> Threads {
    let mut bytes = Vec::new();
    for &(tid, switches, wanted) in threads {
        let raw = now_thread {
            task: tid.into(),
            tid,
            own_tid: tid,
            switches,
            wanted: wanted.into(),
            phase: 2,
            ..now_thread::default()
        };
        // SAFETY: a plain record is as many initialised bytes.
        bytes.extend_from_slice(unsafe { plain::as_bytes(&raw) });
    }
    Threads::decode(&bytes).unwrap()
}

fn wait(waiter: usize, kind: Waited, holder: Holder) -> Found {
    Found {
        wait: Wait {
            waiter,
            kind,
            lock: Identity::Hidden { waiter, space: 0 },
            name: String::new(),
            holder,
            timed: false,
            private: true,
            is_over: false,
            told: Told::default(),
        },
        unsure: None,
    }
}

#[test]
fn waits_for_locks_that_end_are_counted_and_those_for_events_are_not() {
    let first = look(&[
        (10, 1, true),
        (11, 1, true),
        (12, 1, true),
        (13, 1, false),
        (14, 1, true),
    ]);
    // All but the last one have run since, and one has gone.
    let last = look(&[(14, 1, true), (10, 2, true), (11, 2, true), (13, 2, false)]);
    let found = vec![
        wait(0, Waited::Program(Class::Mutex), Holder::Unrecorded),
        wait(1, Waited::Program(Class::Unknown), Holder::Unrecorded),
        wait(2, Waited::Kernel(KernelKind::Mutex), Holder::Unrecorded),
        wait(3, Waited::Program(Class::Mutex), Holder::Unrecorded),
        wait(4, Waited::Program(Class::Mutex), Holder::Thread(0)),
    ];
    let (standing, ended) = standing(&first, &last, found);
    assert_eq!(ended.locks, 2, "neither the event's nor the stranger's");
    assert_eq!(ended.restless, HashSet::from([first.all[1].task.tgid]));
    let left: Vec<_> = standing
        .iter()
        .map(|found| (found.wait.waiter, found.wait.holder))
        .collect();
    assert_eq!(left, [(0, Holder::Thread(1))]);
}

#[test]
fn a_thread_that_began_between_the_looks_has_not_exited() {
    let first = look(&[(10, 1, true)]);
    let last = look(&[(10, 1, true), (11, 1, true)]);
    let holder = |tid| {
        let found = wait(0, Waited::Program(Class::Mutex), Holder::Gone(tid));
        standing(&first, &last, vec![found]).0[0].wait.holder
    };
    assert_eq!(holder(11), Holder::Thread(1));
    assert_eq!(holder(12), Holder::Gone(12));
}
