use clap::Parser;

use crate::lockstat::answer::lines;
use crate::lockstat::args::Args;
use crate::lockstat::headline::worst;
use crate::lockstat::meanwhile::Meanwhile;
use crate::lockstat::next::next;
use crate::lockstat::row::tests::{row, waiter};
use crate::lockstat::row::{For, Holder, HolderKind, LockName, LockRow, Side};
use crate::made_up::task;
use crate::narrow::{COMMS, LONG_NS, assert_narrow};

/// A lock that threads waited for.
fn lock(class: &'static str, own: &str, threads: &[(u32, u32)], total_ns: u64) -> LockRow {
    let mut lock = row(total_ns);
    lock.identity.side = Side::User;
    lock.class = class;
    lock.name = LockName::new(own, "");
    let waiters = threads
        .iter()
        .map(|&(tgid, tid)| waiter(task("app", tgid, tid), 1 + u64::from(tgid)));
    lock.waiters = waiters.collect();
    lock
}

#[test]
fn the_first_line_names_the_lock_the_threads_and_their_time() {
    let two = [(7, 8), (7, 9)];
    let rows = [
        lock("mutex", "app.bss: queue", &two, 6_000_000_000),
        lock("rust", "[heap]", &[(7, 8)], 2_000_000_000),
    ];
    assert_eq!(
        lines(&rows, 4_000_000_000),
        [
            "2 threads of PID 7 (app) waited 6.00 thread-seconds for mutex app.bss: queue",
            "  75.0% of 8.00 thread-seconds for 2 locks in 4.00 s; 2.0 threads at any time"
        ]
    );
    assert_eq!(
        lines(&rows[1..], 100_000_000_000),
        [
            "app 8 waited 2.00 thread-seconds for Rust lock [heap]",
            "  the only lock waited for in 100 s; less than 0.1 threads at any time"
        ]
    );
    assert_eq!(
        lines(&rows, 1_000_000_000_000),
        [
            "No lock matters: threads waited 8.00 thread-seconds for 2 locks in 1,000 s;",
            "  the longest wait was 6.00 s"
        ]
    );
}

#[test]
fn waits_for_work_that_were_asked_for_come_before_locks_that_do_not_matter() {
    let mut work = lock("cond", "[heap]", &[(7, 8)], 3_000_000_000);
    work.what = For::Work;
    let rows = [work, lock("mutex", "app.bss: queue", &[(7, 8)], 1_000_000)];
    let said = lines(&rows, 1_000_000_000).join("\n");
    assert!(
        said.starts_with("app 8 waited 3.00 thread-seconds for condition variable"),
        "{said}"
    );
    let said = lines(&rows[1..], 1_000_000_000).join("\n");
    assert!(said.starts_with("No lock matters"), "{said}");
}

#[test]
fn a_guess_is_said_to_be_one_beside_what_is_known() {
    let mut guess = lock("mutex", "app+0x10", &[(7, 8)], 900_000);
    guess.confidence = 60;
    let known = lock("rwlock", "app.bss: table", &[(7, 8)], 80_000);
    let said = lines(&[guess, known], 1_000_000).join("\n");
    assert!(
        said.starts_with("app 8 waited 900 us of thread time for what is perhaps a mutex, app+0x10\n  a guess, 60% sure; most of a known kind: 8.2%, app.bss: table;"),
        "{said}"
    );
}

#[test]
fn a_guess_comes_behind_what_is_known_unless_it_is_much_longer() {
    let mut guess = lock("rwlock", "app+0x10", &[(7, 8)], 10_000);
    guess.confidence = 50;
    let mut unclear = lock("cond", "app+0x20", &[(7, 8)], 9_000);
    unclear.what = For::Unclear;
    let of = |known_ns| {
        let known = lock("mutex", "queue", &[(7, 8)], known_ns);
        let rows = [guess.clone(), unclear.clone(), known];
        worst(&rows).unwrap().name.own.clone()
    };
    assert_eq!(of(1_000), "queue");
    assert_eq!(of(999), "app+0x10");
}

/// Threads that wait for work, shown with `--class`, are not the answer where others wait for locks.
#[test]
fn a_lock_comes_before_work() {
    let rows = [
        work("idle", 9_000),
        lock("mutex", "queue", &[(7, 8)], 1_000),
    ];
    assert_eq!(worst(&rows).unwrap().name.own, "queue");
    assert_eq!(worst(&rows[..1]).unwrap().name.own, "idle");
}

/// A wait of a thread that has nothing to do.
fn work(name: &str, total_ns: u64) -> LockRow {
    let mut row = lock("cond", name, &[(7, 8)], total_ns);
    row.what = For::Work;
    row
}

/// Nothing is guessed of what nothing is known of.
#[test]
fn an_unknown_kind_is_no_guess() {
    let mut unknown = lock("unknown", "app+0x10", &[(7, 8)], 1_000);
    unknown.confidence = 0;
    assert_eq!(
        lines(&[unknown], 1_000),
        [
            "app 8 waited 1.00 us of thread time for futex of unknown kind app+0x10",
            "  the only lock waited for in 1.00 us; 1.0 threads at any time"
        ]
    );
}

/// Waits for work, shown with `--class`, are no part of the sums of those for locks.
#[test]
fn shares_are_of_what_the_line_names() {
    let rows = [
        work("idle", 9_000),
        lock("mutex", "queue", &[(7, 8)], 750),
        lock("rust", "[heap]", &[(7, 8)], 250),
    ];
    let said = lines(&rows, 1_000);
    let share = "  75.0% of 1.00 us of thread time for 2 locks in 1.00 us;";
    assert!(said[1].starts_with(share), "{said:?}");
}

#[test]
fn no_line_is_too_long_whatever_the_names_are() {
    let threads: Vec<(u32, u32)> = (0..29)
        .map(|n| (4_194_000 + n % 22, 4_194_100 + n))
        .collect();
    let classes = [
        "mutex",
        "parking_lot",
        "cond",
        "spinlock",
        "unknown",
        "park",
        "posix",
        "sysv-sem",
    ];
    let names = ["dir \u{1b}[31m: ".repeat(20), "run queue of CPU 1".into()];
    for (class, comm) in classes
        .iter()
        .flat_map(|class| COMMS.map(|comm| (class, comm)))
    {
        for (name, confidence) in names.iter().flat_map(|name| [(name, 100), (name, 60)]) {
            for threads in [
                &threads[..],
                &threads[..1],
                &[(4_194_000, 1), (4_194_000, 2)],
            ] {
                let mut long = lock(class, name, threads, 999_000_000);
                long.confidence = confidence;
                for waiter in &mut long.waiters {
                    waiter.task.comm = comm.into();
                }
                let mut known = lock("mutex", name, threads, 1_000);
                known.locks = 12_345;
                let rows = [long, known];
                for window_ns in [1, LONG_NS] {
                    assert_narrow(&lines(&rows, window_ns).join("\n"));
                }
            }
        }
    }
    let mut many = lock("spinlock", "run queue of CPU 1", &threads, 653_000);
    many.identity.side = Side::Kernel;
    for waiter in &mut many.waiters {
        waiter.task.comm = "after".into();
    }
    let rest = lock("mutex", "queue", &threads, 2_400_000);
    assert_eq!(
        lines(&[many, rest], 200_000_000),
        [
            "29 threads of 22 processes (mostly after 4194006)",
            "  waited 653 us of thread time for spinlock run queue of CPU 1",
            "  21.4% of 3.05 ms of thread time for 2 locks in 200 ms;",
            "    less than 0.1 threads at any time"
        ]
    );
}

/// The command after `next:`.
fn next_of(line: &str, rows: &[LockRow]) -> String {
    let args = Args::parse_from(line.split_whitespace());
    let line = next(&args, rows, 1_000, |pid| pid != 0 && pid != 66);
    let command = line.strip_prefix("next: ").unwrap();
    command.split("   #").next().unwrap().to_owned()
}

#[test]
fn a_holder_is_looked_at_by_what_it_did() {
    let with = |on_cpu, runnable, blocked, kind| {
        let mut held = lock("mutex", "queue", &[(7, 8)], 500);
        held.holders = vec![Holder {
            task: task("app", 11, 12),
            kind,
            waits: 1,
            caused_ns: 1,
            on_cpu,
            runnable,
            blocked,
            meanwhile: Meanwhile::default(),
            stack: 0,
        }];
        next_of("lockstat", &[held])
    };
    assert_eq!(with(3, 1, 2, HolderKind::Owner), "profile -p 11 10");
    assert_eq!(with(1, 1, 2, HolderKind::Owner), "offcputime -p 11 10");
    assert_eq!(with(1, 3, 2, HolderKind::Owner), "runqlat -p 11 5 1");
    assert_eq!(with(0, 0, 0, HolderKind::Waker), "lockstat -s 3 -p 7 10");
}

#[test]
fn there_is_always_a_next_command() {
    let mut hung = lock("mutex", "queue", &[(7, 8)], 500);
    assert_eq!(
        next_of("lockstat", &[hung.clone()]),
        "lockstat -s 3 -p 7 10"
    );
    let with_stacks = next_of("lockstat -s 3", &[hung.clone()]);
    assert_eq!(with_stacks, "offcputime --waker -p 7 10");
    hung.open = 1;
    assert_eq!(next_of("lockstat", &[hung]), "lockstat --now -p 7");
    let small = [lock("mutex", "queue", &[(7, 8)], 10)];
    assert_eq!(next_of("lockstat -p 1,2", &small), "offcputime -p 1,2 10");
    assert_eq!(next_of("lockstat", &[]), "offcputime 10");
    // Many small waits are as much as a long one.
    let many = vec![small[0].clone(), small[0].clone()];
    assert_eq!(next_of("lockstat", &many), "lockstat -s 3 -p 7 10");
    let idle = work("idle", 500);
    let next = next_of("lockstat --class cond", &[idle, small[0].clone()]);
    assert_eq!(next, "offcputime 10", "work is no contention");
}

#[test]
fn no_next_command_names_what_has_ended_or_was_interrupted() {
    let mut row = lock("mutex", "queue", &[(66, 66), (5, 5), (7, 8)], 500);
    row.waiters[1].in_interrupt = true;
    assert_eq!(
        next_of("lockstat", std::slice::from_ref(&row)),
        "lockstat -s 3 -p 7 10"
    );
    row.waiters.truncate(2);
    let rows = [row];
    assert_eq!(next_of("lockstat -p 66,9", &rows), "lockstat -s 3 -p 9 10");
    let next = next_of("lockstat -t 9 --comm app", &rows);
    assert_eq!(next, "lockstat -s 3 -t 9 --comm app 10");
    let next = next_of("lockstat -t 66 --comm app", &rows);
    assert_eq!(next, "pressure 5 1", "nothing is left of it");
    let next = next_of("lockstat --cgroup /a/b.slice", &[]);
    assert_eq!(next, "offcputime --cgroup /a/b.slice 10");
}
