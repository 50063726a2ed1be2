use profile::style::Style;

use crate::lockstat::left_out;
use crate::lockstat::meanwhile::Meanwhile;
use crate::lockstat::row::LeftOut;
use crate::lockstat::row::tests::{arrivals, row};
use crate::lockstat::row::{For, Holder, HolderKind, LockName, LockRow, Side, Waiter};
use crate::lockstat::table::{Look, held_by, write};
use crate::made_up::task;
use crate::narrow::{COMMS, LONG_NS, MANY, assert_narrow};

fn waiter(tid: u32, caller: &str, total_ns: u64) -> Waiter {
    Waiter {
        caller: Some(caller.into()),
        kernel: 1,
        ..crate::lockstat::row::tests::waiter(task("app", 100, tid), total_ns)
    }
}

fn holder(comm: &str, tid: u32, kind: HolderKind, caused_ns: u64) -> Holder {
    Holder {
        task: task(comm, 100, tid),
        kind,
        waits: 1,
        caused_ns,
        on_cpu: 0,
        runnable: 1,
        blocked: 0,
        meanwhile: Meanwhile::default(),
        stack: 0,
    }
}

fn named(mut row: LockRow, own: &str) -> LockRow {
    row.name = LockName::new(own, "");
    row
}

fn text(rows: &[LockRow], top: usize) -> String {
    let look = Look {
        top: Some(top),
        hist: false,
        style: Style::from(false),
    };
    let mut out = Vec::new();
    write(rows, look, &mut out, |_, _| Ok(())).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn who_ended_the_waits_did_something_meanwhile() {
    let said = |meanwhile: [[u64; 6]; 2]| {
        let mut queue = row(90_000_000);
        queue.holders = [7, 8]
            .map(|tid| holder("disk", tid, HolderKind::Waker, 45_000_000))
            .to_vec();
        for (holder, ns) in queue.holders.iter_mut().zip(meanwhile) {
            (holder.runnable, holder.meanwhile) = (0, Meanwhile(ns));
        }
        text(&[queue], 1)
    };
    // More than a line has room for.
    let long = said([[30, 9, 20, 8, 7, 0], [0, 0, 0, 0, 0, 25]]);
    assert!(!long.contains('…') && long.contains(",\n"), "{long}");
    // Half a per cent is not worth a word.
    let said_of_it = said([[100, 5, 600, 0, 0, 0], [100, 0, 195, 0, 0, 0]]);
    let line = ";\n          meanwhile waiting for disk 80%, on a CPU 20%\n";
    assert!(said_of_it.ends_with(line), "{said_of_it}");
    let unknown = said([[100, 0, 0, 0, 0, 300], [0; 6]]);
    assert!(!unknown.contains("meanwhile"), "{unknown}");
    assert!(!said([[0; 6]; 2]).contains("meanwhile"));
}

#[test]
fn a_barrier_has_those_who_came_last() {
    let mut barrier = row(90_000_000);
    barrier.class = "barrier";
    barrier.holders = vec![holder("team", 8, HolderKind::Waker, 90_000_000)];
    barrier.holders[0].runnable = 0;
    barrier.last = arrivals(&[39, 2]);
    let said = text(&[barrier], 1);
    assert!(
        said.ends_with("last to come: team 8, 39 of 41 times, in work; team 9, 2 times, in work\n"),
        "{said}"
    );
    assert!(!said.contains("released by"), "{said}");
}

#[test]
fn a_lock_has_its_callers_its_holder_and_what_that_was_doing() {
    let mut map = named(row(40_000_000), "mmap_lock of app 100");
    map.class = "rwsem";
    map.waiters = vec![
        waiter(101, "__vm_munmap", 30_000_000),
        waiter(102, "exc_page_fault", 10_000_000),
    ];
    map.holders = vec![
        holder("app", 103, HolderKind::Reader, 30_000_000),
        holder("app", 104, HolderKind::Owner, 10_000_000),
    ];
    map.open = 1;
    let owner = &mut map.holders[1];
    (owner.runnable, owner.blocked) = (0, 1);
    map.holders[0].runnable = 3;
    let mut mutex = named(row(2_000_000), "pipe:[7]");
    mutex.waiters = vec![waiter(101, "anon_pipe_read", 2_000_000)];
    (mutex.spin_ns, mutex.block_ns) = (500_000, 1_500_000);
    let rest = named(row(1_000), "siglock");
    let expected = "  TOTAL  WAITS      AVG      P99      MAX  LOCK
40.0 ms      1  40.0 ms  40.0 ms  40.0 ms  rwsem mmap_lock of app 100
        waiters in __vm_munmap 75%, exc_page_fault 25%; 1 still waiting
        held by reader app 103 75%, app 104 25%;
          which were waiting for a CPU 75%, asleep 25%
2.00 ms      1  2.00 ms  2.00 ms  2.00 ms  mutex pipe:[7]
        waiters in anon_pipe_read; 25% of the time spinning
1.00 us in 1 other lock (-n 3 shows all)
";
    assert_eq!(text(&[map, mutex, rest], 2), expected);
}

#[test]
fn threads_that_wait_at_words_of_their_own_were_in_the_queue_themselves() {
    let mut lock = named(row(40_000_000), "log");
    lock.locks = 3;
    lock.holders = [101, 102]
        .map(|tid| holder("app", tid, HolderKind::Waker, 9))
        .into();
    for holder in &mut lock.holders {
        (holder.runnable, holder.meanwhile) = (0, Meanwhile([0, 0, 1, 3, 0, 0]));
    }
    let mut said = |waiters: &[u32]| {
        let of = |tid: &u32| waiter(*tid, "log", 10_000_000);
        lock.waiters = waiters.iter().map(of).collect();
        held_by(&lock).join(", ")
    };
    let both = said(&[101, 102, 103]);
    let words = "meanwhile waiting for it or others 75%, waiting for disk 25%";
    assert!(both.ends_with(words), "{both}");
    let one = said(&[101, 103]);
    assert!(one.contains("waiting for others 75%"), "{one}");
}

#[test]
fn time_in_the_run_queue_is_said_from_one_per_cent_on() {
    let said = |run_queue_ns| {
        let mut lock = row(2_000_000);
        lock.run_queue_ns = run_queue_ns;
        text(&[lock], 1)
    };
    let queued = said(20_000);
    assert!(
        queued.ends_with("1% of the time woken, without a CPU\n"),
        "{queued}"
    );
    assert!(!said(19_999).contains("without a CPU"));
}

#[test]
fn lists_of_who_waits_and_who_holds_add_up() {
    let mut map = row(40_000_000);
    let callers = ["a", "b", "c", "d"].into_iter().zip([20, 8, 4, 2]);
    map.waiters = callers
        .map(|(caller, ms)| waiter(1, caller, ms * 1_000_000))
        .collect();
    let holders = (1..).zip([50, 20, 10, 15, 5]);
    map.holders = holders
        .map(|(tid, ms)| holder("app", tid, HolderKind::Owner, ms * 1_000_000))
        .collect();
    let said = text(&[map.clone()], 1);
    let waiters = "waiters in a 50%, b 20%, c 10%, others 20%\n";
    assert!(said.contains(waiters), "{said}");
    assert!(said.contains(", 2 more 15%;\n"), "{said}");
    let long = map.waiters[0]
        .caller
        .replace(format!("{}run", "rustc::do_thin_lto::".repeat(9)).into());
    let said = text(&[map.clone()], 1);
    let cut = "        waiters in …rustc::do_thin_lto::rustc::do_thin_lto::run 50%, b 20%,\n";
    assert!(said.contains(cut), "{said}");
    // A thread for each request: no name says anything.
    let holders = std::mem::take(&mut map.holders);
    map.holders = (1..=21)
        .map(|tid| holder("app", tid, HolderKind::Waker, 1_000_000))
        .collect();
    let said = text(&[map.clone()], 1);
    let many = "        released by 21 threads, each less than 5% of the time";
    assert!(said.contains(many), "{said}");
    map.holders[0].caused_ns = 1_100_000;
    let said = text(&[map.clone()], 1);
    assert!(said.contains("released by app 1 5%, 20 more 95%"), "{said}");
    map.holders = holders;
    map.waiters[0].caller = long;
    map.waiters.truncate(1);
    for holder in &mut map.holders {
        (holder.on_cpu, holder.runnable, holder.blocked) = (1, 999, 0);
    }
    let said = text(&[map], 1);
    assert!(said.contains("  which were waiting for a CPU\n"), "{said}");
    assert!(said.contains("waiters in a 50%, others 50%\n"), "{said}");
}

#[test]
fn no_line_is_longer_than_80_columns_and_no_name_reaches_the_terminal_raw() {
    let mut long = named(row(360_000_000_000_000), &"dir \u{1b}[31m".repeat(20));
    long.class = "percpu-rwsem";
    long.locks = 10_000;
    let callers = ["a", "b", "c"].map(|letter| letter.repeat(80));
    long.waiters = callers.iter().map(|name| waiter(1, name, 5)).collect();
    for comm in COMMS {
        let holders = 4_194_295..4_194_304;
        long.holders = holders
            .map(|tid| holder(comm, tid, HolderKind::Reader, 7))
            .collect();
        let many = vec![long.clone(); 30];
        assert_narrow(&text(&many, 20));
    }
    let classes = ["cond", "sem", "join", "park", "unknown"].map(|class| LeftOut {
        class,
        waits: MANY,
        total_ns: LONG_NS,
        unended_ns: LONG_NS,
    });
    let mut out = Vec::new();
    left_out::write(&classes, &mut out).unwrap();
    assert_narrow(&String::from_utf8(out).unwrap());
}

/// Without a number of locks to show, those with a hundredth of all waiting have rows.
#[test]
fn small_locks_are_one_line() {
    let locks = [row(990_000), row(9_950), row(40), row(10)];
    let title = |text: &str| text.lines().count();
    let text_of = |rows: &[LockRow], top| {
        let look = Look {
            top,
            hist: false,
            style: Style::from(false),
        };
        let mut out = Vec::new();
        write(rows, look, &mut out, |_, _| Ok(())).unwrap();
        String::from_utf8(out).unwrap()
    };
    let text = text_of(&locks, None);
    let rest = "10.0 us in 3 other locks, each below 1% of all waiting (-n 4 shows all)\n";
    assert!(text.ends_with(rest) && title(&text) == 3, "{text}");
    assert_eq!(title(&text_of(&locks, Some(4))), 5);
    let same = vec![row(100); 300];
    let text = text_of(&same, None);
    assert!(
        text.contains("\n29.9 us in 299 other locks, each"),
        "{text}"
    );
}

/// The lock that the first line names has a row, however little of all waiting it has.
#[test]
fn the_lock_of_the_answer_is_in_the_table() {
    let mut idle = named(row(990_000), "idle");
    idle.identity.side = Side::User;
    idle.class = "cond";
    idle.what = For::Work;
    let mut rows = vec![idle; 30];
    rows.push(named(row(10), "queue"));
    rows.push(named(row(5), "other"));
    for top in [None, Some(1), Some(25), Some(31)] {
        let look = Look {
            top,
            hist: false,
            style: Style::from(false),
        };
        let mut out = Vec::new();
        write(&rows, look, &mut out, |_, _| Ok(())).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("mutex queue\n"), "{text}");
        let shown = top.unwrap_or(20);
        assert_eq!(text.lines().count(), 1 + shown + 1, "{text}");
        let rest = format!(" in {} other lock", rows.len() - shown);
        assert!(text.contains(&rest) && !text.contains("each"), "{text}");
    }
}

/// A wait that did not spin to speak of has no share of spinning.
#[test]
fn moments_of_spinning_are_not_worth_a_word() {
    let said = |spin_ns| {
        let mut mutex = row(1_000_000);
        (mutex.spin_ns, mutex.block_ns) = (spin_ns, 1_000_000 - spin_ns);
        text(&[mutex], 1).contains("spinning")
    };
    assert!(!said(0) && !said(9_999) && said(10_000));
}

#[test]
fn a_long_files_name_gives_way_to_the_variables() {
    let file = "libLLVM.so.22.1-rust-1.95.0-stable";
    let lock = named(row(1_000), &format!("{file}: ManagedStatics"));
    let text = text(&[lock], 1);
    assert!(
        text.contains(" libLLVM.so.22.…: ManagedStatics\n"),
        "{text}"
    );
}

/// Waits that neither began nor ended are no waits of 0 ns.
#[test]
fn what_is_not_known_has_no_number() {
    let mut hung = row(3_000_000_000);
    (hung.contentions, hung.open) = (1, 1);
    hung.identity.side = Side::User;
    hung.identity.tgid = 4711;
    let mut released = named(row(2_000_000), "app.bss: queue");
    let mut waker = holder("app", 103, HolderKind::Waker, 2_000_000);
    waker.runnable = 0;
    released.holders = vec![waker];
    // Of an interval in which it neither began nor ended.
    let mut across = row(1_000_000_000);
    across.contentions = 0;
    let expected = "  TOTAL  WAITS      AVG      P99      MAX  LOCK
 3.00 s      1   3.00 s   3.00 s   3.00 s  mutex
        1 still waiting; holder not seen
2.00 ms      1  2.00 ms  2.00 ms  2.00 ms  mutex app.bss: queue
        released by app 103
 1.00 s      0        -        -   1.00 s  mutex
";
    let found = text(&[hung, released, across], 3);
    let lines = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    };
    assert_eq!(lines(&found), lines(expected));
}
