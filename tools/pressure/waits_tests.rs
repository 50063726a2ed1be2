//! Looks at threads, some of them made up.

use host::waits::{Wait, file_type};

use super::*;

const HOME: u64 = 0x7fff_0000;

fn blocked(call: libc::c_long, stack: u64) -> Blocked {
    Blocked {
        wait: Wait {
            syscall: i16::try_from(call).expect("a number"),
            file_type: if call == libc::SYS_recvfrom { 12 } else { 0 },
            ..Wait::default()
        },
        stack,
    }
}

fn lock(stack: u64) -> Blocked {
    let mut blocked = blocked(libc::SYS_futex, stack);
    blocked.wait.futex_value = 2;
    blocked
}

/// Looks every 100 ms at a thread that gets a CPU so many times between two.
fn thread(slices: u64, looks: &[Option<Blocked>]) -> Thread {
    let mut thread = Thread::default();
    for (at, look) in (1..).zip(looks) {
        thread.look(1 + at * slices, at * 100_000_000, *look);
    }
    thread
}

fn busy(thread: &Thread, shows_still: bool) -> Vec<(Reason, u64)> {
    let busy = thread.judged(shows_still).filter(|(.., is_busy)| *is_busy);
    let mut busy: Vec<_> = busy
        .map(|(blocked, times, _)| (blocked.wait.reason(), times))
        .collect();
    busy.rank_by_key(|(reason, _)| *reason);
    busy
}

#[test]
fn an_event_loop_is_idle_at_home_and_busy_with_its_database() {
    let (home, database) = (
        Some(blocked(libc::SYS_epoll_pwait, HOME)),
        Some(blocked(libc::SYS_ppoll, HOME - 4096)),
    );
    let both = thread(3, &[home, database, home, None, database]);
    assert_eq!(busy(&both, false), [(Reason::Poll, 2)]);
    let only = thread(3, &[home, home]);
    assert_eq!(busy(&only, true), []);
}

#[test]
fn a_client_is_waited_for_at_home_and_a_server_anywhere() {
    let client = Some(blocked(libc::SYS_recvfrom, HOME));
    let server = Some(blocked(libc::SYS_recvfrom, HOME - 4096));
    assert_eq!(
        busy(&thread(3, &[client, server, client]), false),
        [(Reason::Socket, 1)]
    );
    assert_eq!(
        busy(&thread(3, &[client, client, client]), false),
        [(Reason::Socket, 3)]
    );
    // It has moved once, as who reads a report does, or not at all.
    assert_eq!(busy(&thread(3, &[client, client]), false), []);
    assert_eq!(busy(&thread(0, &[client, client]), false), []);
    assert_eq!(
        busy(&thread(0, &[client, client]), true),
        [(Reason::Socket, 2)]
    );
}

#[test]
fn locks_are_never_idle_conditions_are_unless_they_are_brisk() {
    let still = thread(0, &[Some(lock(HOME)), Some(lock(HOME))]);
    assert_eq!(busy(&still, false), [(Reason::Futex, 2)]);
    assert!(is_lock(&lock(HOME)));
    let condition = blocked(libc::SYS_futex, HOME);
    assert!(!is_lock(&condition));
    let condition = Some(condition);
    let sedate = thread(500, &[condition; 3]);
    assert_eq!(busy(&sedate, false), []);
    // The first look tells no rate.
    let brisk = thread(501, &[condition; 3]);
    assert_eq!(busy(&brisk, false), [(Reason::Futex, 2)]);
}

/// A lock may be made of a semaphore: who ends its waits tells.
#[test]
fn a_thread_that_comes_back_to_a_futex_is_not_decided_of() {
    let condition = blocked(libc::SYS_futex, HOME);
    let sleep = Some(blocked(libc::SYS_clock_nanosleep, HOME));
    let works = thread(3, &[Some(condition), sleep, Some(condition)]);
    assert_eq!(busy(&works, true), []);
    assert!(works.comes_back_to_futex(&condition));
    assert!(!works.comes_back_to_futex(&lock(HOME)));
    assert!(!works.comes_back_to_futex(&blocked(libc::SYS_epoll_pwait, HOME)));
    assert!(!thread(0, &[Some(condition); 3]).comes_back_to_futex(&condition));
}

#[test]
fn sleeps_are_a_threads_own_choice() {
    let sleep = Some(blocked(libc::SYS_clock_nanosleep, HOME - 4096));
    assert_eq!(busy(&thread(3, &[sleep; 3]), true), []);
}

#[test]
fn a_thread_that_waits_for_a_lock_is_seen() {
    let (tell, told) = std::sync::mpsc::channel();
    let mutex = Arc::new(std::sync::Mutex::new(()));
    let held = mutex.lock().expect("nobody has panicked");
    let waiter = Arc::clone(&mutex);
    let thread = std::thread::spawn(move || {
        // SAFETY: it takes nothing and cannot fail.
        let tid = unsafe { libc::gettid() };
        tell.send(tid.cast_unsigned()).expect("somebody listens");
        drop(waiter.lock());
    });
    let waiter = told.recv().expect("its ID");
    let own_tgid = std::process::id();
    let mut looks = Looks::new();
    looks.rounds.own_tgid = 0;
    let found = loop {
        let filter = Filter {
            tids: vec![waiter],
            ..Filter::default()
        };
        looks.rounds.due_ns = 0;
        looks.step(&|tgid, tid| filter.chooses(tgid, tid));
        let waits = looks.take(&filter);
        if let Some(row) = waits.rows.first() {
            break row.clone();
        }
    };
    drop(held);
    thread.join().expect("an end");
    assert_eq!(
        (found.tgid, found.reason, found.is_lock, found.threads),
        (own_tgid, Reason::Futex, true, 1)
    );
    assert!((found.at_a_time - 1.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn a_thread_in_ever_new_places_takes_no_more_room() {
    let deeper = |at: u64| Some(lock(HOME - 16 * at));
    let looks: Vec<_> = (0..1000).map(deeper).collect();
    let thread = thread(3, &looks);
    assert_eq!(thread.seen.len(), MOST_KINDS);
    let all: u64 = busy(&thread, false).iter().map(|(_, times)| times).sum();
    assert_eq!(all, 1000);
}

#[test]
fn only_chosen_threads_are_said_to_be_missed() {
    let (tell, told) = std::sync::mpsc::channel();
    let others: Vec<_> = (0..3)
        .map(|_| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let tell = tell.clone();
            let thread = std::thread::Builder::new().name("missed".into());
            let thread = thread.spawn(move || {
                // SAFETY: it takes nothing and cannot fail.
                let tid = unsafe { libc::gettid() };
                tell.send(tid.cast_unsigned()).expect("somebody listens");
                stopped.recv().ok();
            });
            (stop, thread.expect("a thread"))
        })
        .collect();
    let tids: Vec<u32> = told.iter().take(others.len()).collect();
    let leader = std::process::id();
    // However long it takes, and where there is no time to ask.
    let missed = |filter: Filter| filter.count_of(leader, u64::MAX);
    let unasked = |filter: Filter| filter.count_of(leader, 0);
    let of = |tids: &[u32]| Filter {
        tids: tids.to_vec(),
        ..Filter::default()
    };
    assert_eq!(missed(of(&[leader])), 1);
    assert_eq!(missed(of(&tids[..2])), 2);
    assert_eq!(missed(of(&[leader, tids[0]])), 2);
    assert_eq!(missed(of(&[1])), 0);
    let comm = Filter {
        comm: Some("missed".parse().expect("a pattern")),
        ..Filter::default()
    };
    assert_eq!(missed(comm.clone()), 3);
    assert_eq!(unasked(comm), 1, "its first thread has another name");
    assert_eq!(unasked(of(&tids[..2])), 1);
    assert_eq!(unasked(of(&[1])), 0);
    let all = Filter {
        tgids: vec![leader],
        ..Filter::default()
    };
    assert!(missed(all) >= 4);
    drop(others);
}

#[test]
fn a_mere_reader_of_a_pipe_is_no_answer_for_the_machine() {
    let mut read = blocked(libc::SYS_read, HOME);
    read.wait.file_type = file_type::FIFO;
    let deeper = Some(blocked(libc::SYS_fsync, HOME - 4096));
    let read = Some(read);
    let only = thread(3, &[read, None, read, read]);
    assert_eq!(busy(&only, false), []);
    assert_eq!(busy(&only, true), [(Reason::Pipe, 3)]);
    let brisk = thread(3_000, &[read, read, read]);
    assert_eq!(
        busy(&brisk, false).first().map(|(reason, _)| *reason),
        Some(Reason::Pipe)
    );
    assert!(!busy(&thread(3, &[deeper, read, deeper]), false).is_empty());
}
