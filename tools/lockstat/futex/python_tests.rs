use super::*;
use crate::lockstat::futex::Rules;
use crate::made_up::frame;

fn native(name: &str) -> Frame {
    Frame {
        module: Some("/usr/bin/python3".into()),
        ..frame(name)
    }
}

fn python(name: &str, path: &str, line: u32) -> Frame {
    Frame {
        kind: FrameKind::Jit,
        module: Some(path.into()),
        line: Some((path.into(), line)),
        ..native(name)
    }
}

/// Root first: the program's function, those of the library's, each with its file, and what is native.
fn stack(library: &[(&str, &str)], natives: &[&str]) -> Vec<Frame> {
    let mut frames = vec![native("main"), python("Till.pay", "/srv/shop.py", 12)];
    let dir = "/usr/lib/python3.11";
    let of_library = |(name, file): &(&str, &str)| python(name, &format!("{dir}/{file}"), 300);
    frames.extend(library.iter().map(of_library));
    frames.extend(natives.iter().map(|name| native(name)));
    frames
}

const SEM: [&str; 3] = [
    "PyThread_acquire_lock_timed",
    "sem_clockwait",
    "__futex_abstimed_wait",
];
const PARKED: [&str; 3] = [
    "PyMutex_LockTimed",
    "_PyParkingLot_Park",
    "_PySemaphore_Wait",
];

#[test]
fn locks_are_told_from_what_is_made_of_them() {
    let thread = |name| (name, "threading.py");
    let cases: [(&[_], Class, Role); 10] = [
        (&[], Class::Named, Role::Trouble),
        (
            &[thread("Condition.__enter__")],
            Class::Named,
            Role::Trouble,
        ),
        (&[("Queue.get", "queue.py")], Class::Named, Role::Trouble),
        (&[thread("Condition.wait")], Class::Cond, Role::Unsaid),
        (
            &[("Queue.get", "queue.py"), thread("Condition.wait")],
            Class::Cond,
            Role::Unsaid,
        ),
        (
            &[("get", "queue.py"), thread("wait")],
            Class::Cond,
            Role::Unsaid,
        ),
        (
            &[thread("Semaphore.acquire"), thread("Condition.wait")],
            Class::Sem,
            Role::Unsaid,
        ),
        (
            &[thread("Barrier._wait"), thread("Condition.wait_for")],
            Class::Barrier,
            Role::Trouble,
        ),
        (
            &[thread("Thread._wait_for_tstate_lock")],
            Class::Join,
            Role::Unsaid,
        ),
        (
            &[("_worker", "concurrent/futures/thread.py")],
            Class::Cond,
            Role::Unsaid,
        ),
    ];
    for (library, class, role) in cases {
        for natives in [SEM, PARKED] {
            let judged = judge(&stack(library, &natives)).expect("a lock of Python's");
            let meaning = judged.meaning;
            assert_eq!((meaning.class, meaning.role), (class, role), "{library:?}");
            let is_own = class != Class::Named || natives == PARKED;
            assert_eq!((meaning.is_own, judged.confidence), (is_own, BY_NAME));
        }
    }
    let queue = ["_queue_SimpleQueue_get_impl", "PyThread_acquire_lock_timed"];
    let judged = judge(&stack(&[], &queue)).expect("a queue");
    assert_eq!(
        (judged.meaning.class, judged.meaning.role),
        (Class::Cond, Role::Unsaid)
    );
}

#[test]
fn other_waits_in_python_are_none_of_its_locks() {
    assert_eq!(judge(&stack(&[], &["pthread_mutex_lock"])), None);
    let outside = [native("main"), native("PyThread_acquire_lock_timed")];
    assert_eq!(judge(&outside), None);
    let mut unread = stack(&[("[Python: code not read]", "")], &SEM);
    unread[2].module = None;
    assert_eq!(judge(&unread), None);
    // A function that Python has called waits, and not for a lock of Python's.
    let mut inside = stack(&[], &["PyThread_acquire_lock_timed"]);
    inside.push(python("callback", "/srv/shop.py", 7));
    inside.push(native("pthread_cond_wait"));
    assert_eq!(judge(&inside), None);
}

#[test]
fn who_waits_is_named_with_its_place() {
    let library = [
        ("Queue.get", "queue.py"),
        ("Condition.wait", "threading.py"),
    ];
    let frames = stack(&library, &SEM);
    assert_eq!(
        caller(&frames, true).as_deref(),
        Some("Till.pay (shop.py:12)")
    );
    assert_eq!(
        caller(&frames, false).as_deref(),
        Some("Till.pay (shop.py)")
    );
    let own = &frames[3..];
    assert_eq!(
        caller(own, true).as_deref(),
        Some("Condition.wait (threading.py:300)")
    );
    assert_eq!(caller(&[native("main")], true), None);
}

/// SQLAlchemy's pool has a queue of its own, with a condition variable of the library's.
#[test]
fn a_rule_knows_what_a_program_has_made_of_a_condition_variable() {
    let rules = Rules::ours();
    let waits_in = |callers: &[(&str, &str)]| {
        let library = callers
            .iter()
            .copied()
            .chain([("threading.Condition.wait", "threading.py")]);
        let stack = stack(&library.collect::<Vec<_>>(), &SEM);
        let verdict = judge(&stack)
            .expect("a lock of Python's")
            .made_into(rules, &stack);
        (verdict.meaning.word, verdict.meaning.role)
    };
    let pool = [
        ("sqlalchemy.pool.impl.QueuePool._do_get", "impl.py"),
        ("sqlalchemy.util.queue.Queue.get", "queue.py"),
    ];
    assert_eq!(waits_in(&pool), ("conn-pool", Role::Trouble));
    assert_eq!(waits_in(&[]), ("cond", Role::Unsaid));
}
