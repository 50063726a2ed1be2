//! The first lines of a report: which lock, whose threads, how much of their time; and the command that looks further.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use profile::escape::terminal;
use profile::rank::Rank;
use profile::text::{fit, sentence};
use profile::units;
use session::next::Step;

use crate::lockstat::args::Args;
use crate::lockstat::futex::Class;
use crate::lockstat::row::{Holder, LockRow, SURE, Side};
use crate::lockstat::table::{by_thread, label};
use crate::lockstat::user::LeftOut;
use crate::lockstat::width::WIDTH;

/// Columns of a lock's name below which it gets a line of its own.
const LEAST_NAME: usize = 16;

/// The lock to speak of: the one with most waiting that is contention.
pub(crate) fn worst(rows: &[LockRow]) -> Option<&LockRow> {
    rows.iter()
        .find(|row| is_contention(row))
        .or_else(|| rows.first())
}

fn is_contention(row: &LockRow) -> bool {
    let is_it = |class: &Class| class.word() == row.class && class.is_contention();
    row.identity.side == Side::Kernel || Class::FAMILIES.iter().any(is_it)
}

/// The answer in lines. `rows`: those of a table, longest total wait first; `window_ns`: length of the interval.
pub(crate) fn lines(rows: &[LockRow], window_ns: u64) -> Vec<String> {
    let Some(worst) = worst(rows) else {
        return vec!["No thread waited for a lock.".into()];
    };
    let all_ns: u64 = rows.iter().map(|row| row.total_ns).sum();
    let locks: u64 = rows.iter().map(|row| row.locks).sum();
    let share = |row: &LockRow| 100.0 * row.total_ns as f64 / all_ns.max(1) as f64;
    let mut parts = Vec::new();
    if worst.confidence < SURE {
        let mut known = rows.iter().filter(|row| row.confidence >= SURE);
        parts.push(format!(
            "{} is a guess, {}% sure",
            noun(worst),
            worst.confidence
        ));
        if let Some(known) = known.find(|row| is_contention(row)) {
            let name = fit(&label(known), WIDTH / 2);
            let share = share(known);
            parts.push(format!("most of a known kind: {share:.1}%, {name}"));
        }
    }
    let threads = all_ns as f64 / window_ns.max(1) as f64;
    let threads = match threads {
        ..0.05 => "less than 0.1 threads".into(),
        _ => format!("{threads:.1} threads"),
    };
    let of = match locks {
        1 => "the only lock waited for".into(),
        _ => format!(
            "{:.1}% of {} for {}",
            share(worst),
            units::thread_time(all_ns),
            units::counted(locks, "locks")
        ),
    };
    parts.push(format!(
        "{of} in {} ({threads} at any time)",
        units::duration(window_ns)
    ));
    let evidence = sentence(&parts, ";", WIDTH - 2).into_iter();
    let mut lines = who_waited(worst);
    lines.extend(evidence.map(|line| format!("  {line}")));
    lines
}

/// `app 7 waited 1.41 thread-seconds for mutex app.bss: queue`: the name gives way where it is too long, and has a line of its own
/// where nothing would be left of it.
fn who_waited(row: &LockRow) -> Vec<String> {
    let time = units::thread_time(row.total_ns);
    let begin = format!("{} waited {time} for {}", whose(row), noun(row));
    let room = (WIDTH - 1).saturating_sub(begin.chars().count());
    match room {
        ..LEAST_NAME => vec![begin, format!("  {}", fit(&label(row), WIDTH - 2))],
        _ => vec![format!("{begin} {}", fit(&label(row), room))],
    }
}

/// Threads that waited.
fn whose(row: &LockRow) -> String {
    let waiters = row.waiters.iter().filter(|waiter| !waiter.in_interrupt);
    let mut threads = BTreeSet::new();
    let mut processes: HashMap<u32, (u64, &str)> = HashMap::new();
    for waiter in waiters {
        threads.insert((waiter.task.tgid, waiter.task.tid));
        let process = (0, &*waiter.task.comm);
        processes.entry(waiter.task.tgid).or_insert(process).0 += waiter.total_ns;
    }
    let mut processes: Vec<(u32, (u64, &str))> = processes.into_iter().collect();
    processes.rank_by_key(|(tgid, (ns, _))| (Reverse(*ns), *tgid));
    let (Some((tgid, (_, comm))), Some((_, tid))) = (processes.first(), threads.first()) else {
        return if row.waiters.is_empty() {
            "Threads".into()
        } else {
            "Interrupts".into()
        };
    };
    let comm = terminal(comm);
    match (threads.len(), processes.len()) {
        (1, _) => format!("{comm} {tid}"),
        (n, 1) => format!("{n} threads of PID {tgid} ({comm})"),
        (n, of) => format!("{n} threads of {of} processes (mostly {comm} {tgid})"),
    }
}

/// A lock's class as a noun.
fn noun(row: &LockRow) -> &str {
    match row.class {
        "pi" => "PI mutex",
        "rust" => "Rust lock",
        "parking_lot" => "parking_lot lock",
        "go" => "Go runtime lock",
        "cond" => "condition variable",
        "sem" => "semaphore",
        "join" => "end of thread",
        "park" => "work, parked at",
        "unknown" => "futex of unknown kind",
        class => class,
    }
}

/// The command that looks further, and what it answers.
pub(crate) fn next(
    args: &Args,
    rows: &[LockRow],
    left_out: &[LeftOut],
    window_ns: u64,
    is_there: fn(u32) -> bool,
) -> String {
    let chosen = match &args.targets.pids[..] {
        [] => String::new(),
        pids => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("-p {}", pids.join(","))
        }
    };
    // Less than a hundredth of one thread's time is nobody's trouble.
    let least_ns = window_ns / 100;
    let Some(row) = worst(rows).filter(|row| row.total_ns > least_ns) else {
        let unknown = left_out.iter().find(|sum| sum.class == "unknown");
        return match unknown.filter(|sum| sum.total_ns > least_ns) {
            Some(_) => Step::UnknownFutexes.line(&chosen),
            None => Step::Waits.line_for(&chosen, "where threads wait instead"),
        };
    };
    let held = by_thread(row.holders.iter());
    if let Some(step) = held.first().and_then(|holder| of_holder(holder, is_there)) {
        return step;
    }
    let waiters = row.waiters.iter().map(|waiter| waiter.task.tgid);
    let waiter = waiters.into_iter().find(|tgid| is_there(*tgid));
    let target = waiter.map_or(chosen, |tgid| format!("-p {tgid}"));
    if held.is_empty() && row.open > 0 {
        return Step::LocksNow.line(&target);
    }
    match args.stacks {
        0 => Step::LockStacks.line(&target),
        _ => Step::Wakers.line(&target),
    }
}

/// Looks at a holder according to what it was mostly doing while others waited.
fn of_holder(holder: &Holder, is_there: fn(u32) -> bool) -> Option<String> {
    let most = holder.on_cpu.max(holder.runnable).max(holder.blocked);
    if most == 0 || !is_there(holder.task.tgid) {
        return None;
    }
    let target = format!("-p {}", holder.task.tgid);
    let comm = terminal(&holder.task.comm);
    Some(if most == holder.on_cpu {
        Step::CpuTime.line_for(&target, &format!("what {comm}, which holds it, runs"))
    } else if most == holder.blocked {
        Step::Waits.line_for(&target, &format!("where {comm}, which holds it, sleeps"))
    } else {
        let what = format!("behind whom {comm}, which holds it, waits for a CPU");
        Step::RunQueue.line_for(&target, &what)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use profile::model::Task;

    use super::*;
    use crate::lockstat::row::tests::row;
    use crate::lockstat::row::{HolderKind, LockName, Waiter};

    fn task(tgid: u32, tid: u32) -> Task {
        Task {
            comm: "app".into(),
            tgid,
            tid,
        }
    }

    /// A lock that threads waited for.
    fn lock(class: &'static str, own: &str, threads: &[(u32, u32)], total_ns: u64) -> LockRow {
        let mut lock = row(total_ns);
        lock.identity.side = Side::User;
        lock.class = class;
        lock.name = LockName {
            own: own.into(),
            kind: String::new(),
        };
        let waiters = threads.iter().map(|&(tgid, tid)| Waiter {
            task: task(tgid, tid),
            caller: None,
            in_interrupt: false,
            is_shared: false,
            kernel: 0,
            user: 0,
            waker: 0,
            count: 1,
            total_ns: 1 + u64::from(tgid),
            run_queue_ns: 0,
            max_ns: 1,
        });
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
                "  75.0% of 8.00 thread-seconds for 2 locks in 4.00 s (2.0 threads at any time)"
            ]
        );
        assert_eq!(
            lines(&rows[1..], 1_000_000_000_000),
            [
                "app 8 waited 2.00 thread-seconds for Rust lock [heap]",
                "  the only lock waited for in 1000 s (less than 0.1 threads at any time)"
            ]
        );
        assert_eq!(lines(&[], 1), ["No thread waited for a lock."]);
    }

    #[test]
    fn a_guess_is_said_to_be_one_beside_what_is_known() {
        let mut guess = lock("mutex", "app+0x10", &[(7, 8)], 900_000);
        guess.confidence = 60;
        let known = lock("rwlock", "app.bss: table", &[(7, 8)], 100_000);
        let said = lines(&[guess, known], 1_000_000).join("\n");
        assert!(
            said.starts_with("app 8 waited 900 us of thread time for mutex app+0x10\n  mutex is a guess, 60% sure; most of a known kind: 10.0%, app.bss: table;"),
            "{said}"
        );
    }

    /// Threads that wait for work, shown with `--class`, are not the answer where others wait for locks.
    #[test]
    fn a_lock_comes_before_work() {
        let rows = [
            lock("cond", "idle", &[(7, 8)], 9_000),
            lock("mutex", "queue", &[(7, 8)], 1_000),
        ];
        assert_eq!(worst(&rows).unwrap().name.own, "queue");
        assert_eq!(worst(&rows[..1]).unwrap().name.own, "idle");
    }

    #[test]
    fn no_line_is_too_long_whatever_the_names_are() {
        let mut long = lock(
            "mutex",
            &"dir \u{1b}[31m: ".repeat(20),
            &[(7, 8), (9, 9)],
            7,
        );
        long.waiters[0].task.comm = "\u{1b}\u{1b}\u{1b}\u{1b}".into();
        for line in lines(&[long], 9) {
            assert!(
                line.chars().count() <= WIDTH && !line.contains('\u{1b}'),
                "{line:?}"
            );
        }
    }

    /// The command after `next:`.
    fn next_of(line: &str, rows: &[LockRow], left_out: &[LeftOut]) -> String {
        let args = Args::parse_from(line.split_whitespace());
        let line = next(&args, rows, left_out, 1_000, |pid| pid != 0);
        let command = line.strip_prefix("next: ").unwrap();
        command.split("   #").next().unwrap().to_owned()
    }

    #[test]
    fn a_holder_is_looked_at_by_what_it_did() {
        let with = |on_cpu, runnable, blocked, kind| {
            let mut held = lock("mutex", "queue", &[(7, 8)], 500);
            held.holders = vec![Holder {
                task: task(11, 12),
                kind,
                waits: 1,
                caused_ns: 1,
                on_cpu,
                runnable,
                blocked,
                stack: 0,
            }];
            next_of("lockstat", &[held], &[])
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
            next_of("lockstat", &[hung.clone()], &[]),
            "lockstat -s 3 -p 7 10"
        );
        let with_stacks = next_of("lockstat -s 3", &[hung.clone()], &[]);
        assert_eq!(with_stacks, "offcputime --waker -p 7 10");
        hung.open = 1;
        assert_eq!(next_of("lockstat", &[hung], &[]), "lockstat --now -p 7");
        let small = [lock("mutex", "queue", &[(7, 8)], 10)];
        assert_eq!(
            next_of("lockstat -p 1,2", &small, &[]),
            "offcputime -p 1,2 10"
        );
        assert_eq!(next_of("lockstat", &[], &[]), "offcputime 10");
        let unknown = LeftOut {
            class: "unknown",
            waits: 1,
            total_ns: 11,
        };
        let next = next_of("lockstat", &[], &[unknown]);
        assert_eq!(next, "lockstat --class unknown 10");
    }
}
