//! Waits in the report of an interval made by hand.

use host::waits::Reason;

use super::*;
use crate::pressure::waits::{Waiting, Waits};

fn waiting(tgid: u32, reason: Reason, is_lock: bool, at_a_time: f64) -> Waiting {
    Waiting {
        tgid,
        comm: "db".into(),
        reason,
        is_lock,
        threads: 3,
        at_a_time,
    }
}

/// This process is one that is there.
pub(super) fn with_waits(interval: Interval) -> Interval {
    let own = std::process::id();
    Interval {
        waits: Waits {
            looks: 18,
            not_looked_at: 0,
            undecided: Vec::new(),
            rows: vec![
                waiting(own, Reason::Socket, false, 2.5),
                waiting(own, Reason::Futex, true, 1.25),
                waiting(u32::MAX, Reason::FileLock, true, 0.5),
                waiting(9, Reason::Semaphore, true, 0.04),
            ],
        },
        ..interval
    }
}

#[test]
fn locks_are_told_beside_what_is_short() {
    let own = std::process::id();
    let mut short = with_waits(example());
    short.task_ns[0] = 6 * SECOND_NS;
    let text = text(&short, Look::default());
    let mut lines = text.lines();
    let first = lines.next().expect("a verdict");
    assert_eq!(&first[8..], "  2.00 s: short of CPU (50% of the time);");
    let second = format!("  db {own} waits for locks (1.25 threads at a time)");
    assert_eq!(lines.next(), Some(second.as_str()));
    let (_, waits) = text.split_once("\n\nwaits ").expect("a section");
    let expected = format!(
        "for locks and semaphores, from 18 looks at all threads:
   THREADS  FOR                    PROCESS
      1.25  locks                  db {own}
      0.50  file locks             db 4294967295
    next: lockstat -p {own} 10"
    );
    assert_eq!(
        waits.split(" #").next().map(str::trim_end),
        Some(&*expected)
    );
}

/// A process is judged by its own loss, whatever the machine's is.
#[test]
fn the_larger_of_loss_and_waits_goes_first_in_thread_seconds() {
    let own = std::process::id();
    let verdict = |cpu_ns, disk_ns, is_filtered, at_a_time| {
        let mut interval = Interval {
            task_ns: [cpu_ns, 0, disk_ns],
            is_filtered,
            ..example()
        };
        interval.psi[0] = lost(100_000_000, 0);
        interval.waits.rows = vec![
            // It may wait for work.
            waiting(own, Reason::Futex, false, 9.0),
            waiting(own, Reason::BlockIo, false, 1.5),
            waiting(own, Reason::Socket, false, at_a_time),
        ];
        if cpu_ns < SECOND_NS / 10 {
            interval.waits.rows.remove(0);
        }
        let text = text(&interval, Look::default());
        let (verdict, rest) = text.split_once("        UTILISATION").expect("a table");
        let [cpu, waits] = ["\nCPU: threads lost", "\nwaits that are not"].map(|s| rest.find(s));
        let order = match (cpu, waits) {
            (Some(cpu), Some(waits)) if waits < cpu => "waits, CPU",
            (Some(_), Some(_)) => "CPU, waits",
            (Some(_), None) => "CPU",
            _ => "waits",
        };
        let verdict = verdict.trim_end().replace("\n  ", " ");
        let (_, answer) = verdict.split_once("2.00 s: ").expect("an answer");
        (answer.to_owned(), order)
    };
    let waits = |what: &str| format!("db {own} waits for {what} threads at a time)");
    let (answer, order) = verdict(200_000_000, SECOND_NS, true, 0.75);
    // The disk's own loss is what explains waits for it.
    let of_disk = "short of disk (0.50 threads waiting), CPU (0.10 threads waiting)";
    assert_eq!(answer, format!("{}; {of_disk}", waits("sockets (0.75")));
    assert_eq!(order, "waits, CPU");
    // 5% of the time there is somebody who waits for a CPU.
    let (answer, order) = verdict(200_000_000, 0, false, 0.75);
    let short = "short of CPU (5% of the time)";
    assert_eq!(answer, format!("{}; {short}", waits("disks (1.50")));
    assert_eq!(order, "waits, CPU");
    let (answer, order) = verdict(4 * SECOND_NS, 0, false, 0.75);
    assert_eq!((answer.as_str(), order), (short, "CPU"));
    // The machine is short, and this process is not.
    let (answer, order) = verdict(10_000_000, 0, true, 0.75);
    assert_eq!(
        answer,
        format!("nothing is short; {}", waits("disks (1.50"))
    );
    assert_eq!(order, "waits");
}

#[test]
fn where_nothing_is_short_the_largest_wait_is_the_answer() {
    let own = std::process::id();
    let calm = with_waits(Interval {
        end_ns: SECOND_NS,
        ..Interval::default()
    });
    let text = text(&calm, Look::default());
    let first = text.lines().next().expect("a verdict");
    let answer = format!("nothing is short; db {own} waits for sockets (2.50 threads at a time)");
    let whole = format!("  1.00 s: {answer}");
    assert_eq!(
        text.lines()
            .take(2)
            .collect::<Vec<_>>()
            .join("")
            .replace(";  ", "; ")[8..],
        whole
    );
    assert!(first.len() <= WIDTH, "{first}");
    assert!(text.contains(" 18 looks at all threads:\n"), "{text}");
    for row in ["2.50  sockets  ", "1.25  locks  ", "0.50  file locks  "] {
        assert!(text.contains(row), "no {row}: {text}");
    }
    let next = format!("next: why -p {own} 10 ");
    assert!(text.contains(&next), "{text}");
}

#[test]
fn waits_that_may_be_for_work_lead_to_who_can_tell() {
    let undecided = |at_a_time, rows: Vec<Waiting>| {
        let mut interval = example();
        interval.waits.rows = rows;
        interval.waits.undecided = vec![waiting(7, Reason::Futex, false, at_a_time)];
        text(&interval, Look::default())
    };
    let said = "\n\n  db 7: 1.90 threads at a time wait for a futex:\n    for work, or for a lock \
        made of it\n    next: lockstat -p 7 10 ";
    let short = undecided(1.9, Vec::new());
    assert!(short.contains(said), "{short}");
    assert!(!short.contains("offcputime"), "{short}");
    // The one that is known to be a lock is larger.
    let locks = vec![waiting(std::process::id(), Reason::Futex, true, 2.0)];
    for text in [undecided(1.9, locks), undecided(0.09, Vec::new())] {
        assert!(!text.contains("made of it"), "{text}");
    }
}

#[test]
fn threads_that_were_not_looked_at_are_counted() {
    let mut calm = with_waits(Interval {
        end_ns: SECOND_NS,
        ..Interval::default()
    });
    calm.waits.not_looked_at = 3_012;
    let some = text(&calm, Look::default());
    assert!(some.contains(" 18 looks at threads:\n"), "{some}");
    let missed = "\n  3,012 threads were not looked at, for the sake of cost\n    next: ";
    assert!(some.contains(missed), "{some}");
    calm.waits.rows.clear();
    let none = text(&calm, Look::default());
    assert!(none.contains(missed), "{none}");
}
