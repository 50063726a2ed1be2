//! Idleness of made-up rows.

use host::waits::{Wait, file_type, flags};

use super::*;
use crate::made_up::{frame, task};
use crate::offcputime::details::Lengths;

const MS: u64 = 1_000_000;

/// A wait of a thread in a call, at a depth, for some time in as many pieces.
fn row(tid: u32, call: libc::c_long, user: u64, ns: u64, count: u64) -> Row {
    Row {
        task: task("a", 1, tid),
        wait: Wait {
            syscall: call.try_into().expect("a small number"),
            ..Wait::default()
        },
        endpoint: 0,
        user,
        kernel: 9,
        waker: 0,
        blocked_ns: ns,
        runqueue_ns: 0,
        count,
        is_open: false,
        open_number: None,
        lengths: Lengths::default(),
    }
}

/// Stacks are called by their depths.
fn marked(rows: &[Row]) -> Vec<bool> {
    let depths = rows.iter().map(|row| Some(row.user as usize));
    mark(
        rows,
        &depths.collect::<Vec<_>>(),
        Traced::Families,
        |_| false,
        |_| false,
    )
}

#[test]
fn an_event_loop_is_idle_at_home_and_busy_with_its_database() {
    let rows = [
        row(1, libc::SYS_epoll_pwait, 3, 71 * MS, 5),
        row(1, libc::SYS_ppoll, 7, 18 * MS, 5),
        row(1, libc::SYS_write, 8, 11 * MS, 5),
    ];
    assert_eq!(marked(&rows), [true, false, false]);
}

#[test]
fn an_event_loop_is_not_idle_where_its_database_answers() {
    let mut asked = row(1, libc::SYS_epoll_pwait, 3, 18 * MS, 5);
    asked.wait.file_type = file_type::SOCKET;
    let rows = [row(1, libc::SYS_epoll_pwait, 3, 71 * MS, 5), asked];
    assert_eq!(marked(&rows), [true, false]);
}

#[test]
fn a_thread_that_serves_a_client_is_not_idle_in_its_database() {
    // It reads its client's requests at the outermost frames.
    let rows = [
        row(1, libc::SYS_recvfrom, 4, 5 * MS, 5),
        row(1, libc::SYS_ppoll, 7, 95 * MS, 5),
    ];
    assert_eq!(marked(&rows), [false, false]);
    // A wait that happened once, at its start, says nothing.
    let rows = [
        row(1, libc::SYS_flock, 2, MS / 2, 1),
        row(1, libc::SYS_epoll_pwait, 3, 80 * MS, 5),
        row(1, libc::SYS_ppoll, 7, 19 * MS, 5),
        row(1, libc::SYS_wait4, 1, MS / 2, 1),
    ];
    assert_eq!(marked(&rows), [false, true, false, false]);
    // A worker writes what it is given, in the function where it waits for more.
    let rows = [
        row(1, libc::SYS_futex, 3, 97 * MS, 50),
        row(1, libc::SYS_fsync, 3, 3 * MS, 50),
    ];
    assert_eq!(marked(&rows), [true, false]);
}

#[test]
fn a_thread_that_waits_for_its_client_is_idle_and_not_in_its_database() {
    let for_client = |user| {
        let mut row = row(1, libc::SYS_recvfrom, user, 5 * MS, 5);
        row.wait.file_type = file_type::ACCEPTED;
        row
    };
    let rows = [
        for_client(4),
        row(1, libc::SYS_ppoll, 7, 95 * MS, 5),
        row(1, libc::SYS_recvfrom, 7, MS, 5),
    ];
    assert_eq!(marked(&rows), [true, false, false]);
    // Deeper than other work it is a part of that: a body that is read by its handler.
    let rows = [row(1, libc::SYS_recvfrom, 4, 5 * MS, 5), for_client(9)];
    assert_eq!(marked(&rows), [false, false]);
}

#[test]
fn a_thread_whose_client_asks_at_once_is_not_idle_where_it_waits_for_its_pool() {
    let for_client = |count| {
        let mut row = row(1, libc::SYS_read, 4, MS / 10, count);
        row.wait.file_type = file_type::ACCEPTED;
        row
    };
    let for_pool = |depth| row(1, libc::SYS_futex, depth, 9_000 * MS, 90);
    let is_idle = |client, pool| marked(&[client, pool])[1];
    assert!(!is_idle(for_client(90), for_pool(5)), "below a request");
    assert!(is_idle(for_client(90), for_pool(3)), "between connections");
    assert!(is_idle(for_client(9), for_pool(5)), "one client of many");
}

#[test]
fn a_pools_thread_is_idle_between_requests_of_the_client_that_it_serves() {
    let polls_client = |user| {
        let mut row = row(1, libc::SYS_ppoll, user, 40 * MS, 5_000);
        row.wait.file_type = file_type::ACCEPTED;
        row
    };
    let own = |served| {
        [
            row(1, libc::SYS_futex, 3, 20 * MS, 5),
            served,
            row(1, libc::SYS_fsync, 8, 10 * MS, 5),
            // It is in the middle of a request.
            polls_client(9),
        ]
    };
    // 8 us each: it asks often.
    assert_eq!(marked(&own(polls_client(6))), [true, true, false, false]);
    // A poll that began before the window was, too.
    let mut earlier = polls_client(6);
    earlier.wait.file_type = 0;
    let mut rows = Vec::from(own(polls_client(6)));
    rows.extend(own(earlier));
    assert!(marked(&rows)[5], "{:?}", marked(&rows));
    // Its own server is no client.
    let mut peer = polls_client(6);
    peer.wait.file_type = file_type::SOCKET;
    assert!(!marked(&own(peer))[1]);
}

#[test]
fn a_server_is_idle_where_it_reads_requests_from_a_pipe() {
    let from_pipe = |user, count| {
        let mut row = row(1, libc::SYS_read, user, 50 * MS, count);
        row.wait.file_type = file_type::FIFO;
        row
    };
    let query = |user| row(1, libc::SYS_ppoll, user, 40 * MS, 5);
    assert_eq!(marked(&[from_pipe(3, 5), query(7)]), [true, false]);
    // An answer that is waited for: its thread has nothing else, or comes from outside.
    assert_eq!(marked(&[from_pipe(3, 5)]), [false]);
    assert!(!marked(&[from_pipe(7, 5), query(3)])[0]);
    assert!(!marked(&[from_pipe(3, 5), query(3)])[0]);
    // Another pipe, which it reads below.
    assert_eq!(
        marked(&[from_pipe(3, 5), query(7), from_pipe(9, 5)]),
        [true, false, false]
    );
    // A token that goes to and fro.
    assert_eq!(marked(&[from_pipe(3, 1000), query(7)]), [false, false]);
}

#[test]
fn threads_that_pass_a_token_are_not_idle() {
    let rows = [
        row(1, libc::SYS_futex, 3, 10 * MS, 1000),
        row(2, libc::SYS_read, 3, 10 * MS, 99),
    ];
    assert_eq!(marked(&rows), [false, true]);
}

#[test]
fn a_server_is_idle_however_often_its_clients_ask() {
    let brisk = |call, file_type| {
        let mut row = row(1, call, 3, 10 * MS, 1000);
        row.wait.file_type = file_type;
        row
    };
    let of = |row, sockets| mark(&[row], &[Some(3)], Traced::Families, |_| false, |_| sockets)[0];
    let epoll = || brisk(libc::SYS_epoll_pwait, 0);
    assert_eq!([of(epoll(), true), of(epoll(), false)], [true, false]);
    let client = brisk(libc::SYS_recvfrom, file_type::ACCEPTED);
    assert!(of(client, false));
    // A token is none of these, whatever else its process has.
    assert!(!of(brisk(libc::SYS_futex, 0), true));
    assert!(!of(brisk(libc::SYS_read, file_type::EVENTFD), true));
    assert!(
        !of(brisk(libc::SYS_recvfrom, file_type::SOCKET), true),
        "an answer"
    );
}

#[test]
fn a_reader_of_a_pipe_says_nothing_of_the_machine() {
    let from_pipe = |tid, count| {
        let mut row = row(tid, libc::SYS_read, 3, 90 * MS, count);
        row.wait.file_type = file_type::FIFO;
        row
    };
    let stopped = |tid, is_open| {
        let mut row = row(tid, libc::SYS_read, 3, 90 * MS, 1);
        row.wait.flags = flags::STOPPED;
        row.is_open = is_open;
        row
    };
    let rows = [
        from_pipe(1, 5),
        // A token goes to and fro.
        from_pipe(2, 1000),
        // Another wait is as long.
        from_pipe(3, 5),
        row(3, libc::SYS_fsync, 3, 90 * MS, 5),
        stopped(4, true),
        stopped(5, false),
    ];
    let of = |traced| mark(&rows, &[Some(3); 6], traced, |_| false, |_| false);
    assert_eq!(of(Traced::All), [true, false, false, false, true, false]);
    assert_eq!(of(Traced::Families), [false; 6]);
}

#[test]
fn whose_threads_are_traced_is_told_by_the_options() {
    let of = |targets: Targets| Traced::of(&targets, true);
    let pids = Targets {
        pids: vec![7],
        ..Targets::default()
    };
    let comm = Targets {
        comm: Some("make".parse().expect("a pattern")),
        ..Targets::default()
    };
    let cgroup = Targets {
        cgroup: Some("/sys/fs/cgroup/a".into()),
        ..Targets::default()
    };
    let command = Targets {
        command: vec!["make".into()],
        ..Targets::default()
    };
    assert_eq!([of(pids), of(comm)], [Traced::Chosen; 2]);
    assert_eq!([of(cgroup), of(command)], [Traced::Families; 2]);
    // A program that was chosen from all.
    assert_eq!(of(Targets::default()), Traced::Chosen);
    assert_eq!(Traced::of(&Targets::default(), false), Traced::All);
}

#[test]
fn children_that_end_have_worked_for_their_parent() {
    let for_child = |tid, count, is_open| Row {
        is_open,
        ..row(tid, libc::SYS_wait4, 3, 90 * MS, count)
    };
    let rows = [
        for_child(1, 5, false),
        for_child(1, 1, true),
        // It may be there for good.
        for_child(2, 1, true),
        // One has ended in an earlier window.
        for_child(3, 2, true),
    ];
    let of = |traced| mark(&rows, &[Some(3); 4], traced, |_| false, |_| false);
    assert_eq!(of(Traced::Chosen), [false, false, true, false]);
    // Their work is told beside it.
    assert_eq!(of(Traced::Families), [true; 4]);
    assert_eq!(of(Traced::All), [true; 4]);
}

#[test]
fn a_kernel_thread_that_is_no_load_has_nothing_to_do() {
    let at = |kernel| {
        let mut row = row(2, 0, 0, MS, 5);
        row.wait.flags = flags::KERNEL_THREAD | flags::NOLOAD;
        row.wait.syscall = -1;
        row.kernel = kernel;
        row
    };
    let depths = [Some(4), Some(9)];
    assert_eq!(
        mark(
            &[at(4), at(9)],
            &depths,
            Traced::Families,
            |_| false,
            |_| false
        ),
        [true; 2]
    );
}

#[test]
fn a_thread_that_waited_once_and_left_did_not_come_back() {
    let once = row(1, libc::SYS_futex, 3, 90 * MS, 1);
    let twice = row(2, libc::SYS_futex, 3, 90 * MS, 2);
    let open = Row {
        is_open: true,
        ..row(3, libc::SYS_futex, 3, 90 * MS, 1)
    };
    let rows = [once, twice, open];
    assert_eq!(marked(&rows), [true, true, true]);
    let depths = [Some(3); 3];
    assert_eq!(
        mark(&rows, &depths, Traced::Families, |_| true, |_| false),
        [false, true, true]
    );
}

#[test]
fn kernel_threads_are_idle_where_they_begin() {
    let kernel = |kernel, ns| Row {
        wait: Wait {
            flags: flags::KERNEL_THREAD,
            syscall: -1,
            ..Wait::default()
        },
        kernel,
        ..row(2, 0, 0, ns, 1)
    };
    let rows = [kernel(4, 60 * MS), kernel(9, 40 * MS)];
    assert_eq!(
        mark(
            &rows,
            &[Some(4), Some(9)],
            Traced::Families,
            |_| false,
            |_| false
        ),
        [true, false]
    );
}

#[test]
fn a_habit_tells_where_a_stack_is_not_complete() {
    let rows = [
        row(1, libc::SYS_epoll_pwait, 3, 95 * MS, 5),
        row(1, libc::SYS_ppoll, 7, 5 * MS, 5),
    ];
    assert_eq!(
        mark(&rows, &[None, None], Traced::Families, |_| false, |_| false),
        [true, false]
    );
}

#[test]
fn a_thread_of_go_without_a_goroutine_rests_wherever_it_parks() {
    let rests = |wait, names: &[&str]| {
        let frames: Vec<Frame> = names.iter().map(|name| frame(name)).collect();
        rests_in_go(wait, &frames)
    };
    let parked = ["runtime.mcall", "runtime.exitsyscall0", "runtime.stopm"];
    let futex = row(1, libc::SYS_futex, 3, MS, 1).wait;
    assert!(rests(futex, &parked));
    assert!(is_in_go(&parked.map(frame)) && !is_in_go(&["main.main"].map(frame)));
    let nap = row(1, libc::SYS_nanosleep, 3, MS, 1).wait;
    assert!(rests(nap, &["runtime.sysmon", "runtime.usleep"]));
    // A program that sleeps of its own accord, and the runtime's own lock.
    assert!(!rests(nap, &["main.main", "runtime.usleep"]));
    assert!(!rests(futex, &["main.main", "runtime.futex"]));
    let lock = Wait {
        futex_value: 2,
        ..futex
    };
    assert!(!rests(lock, &parked));
}
