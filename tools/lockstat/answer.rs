//! The first lines of a report: which lock, whose threads, how much of their time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use profile::rank::Rank;
use profile::text::{WIDTH, columns, comm, fit, round_percent, sentence};
use profile::units;

use crate::lockstat::headline::{UNKNOWN, is_contention, is_guess, is_little, like, worst};
use crate::lockstat::row::{For, LockRow, SURE};
use crate::lockstat::table::label;

/// Columns of a lock's name below which it gets a line of its own.
const LEAST_NAME: usize = 16;

/// The answer where there are no rows; `is_sure`: somebody ended all waits that were left out.
pub(crate) fn nothing(is_sure: bool) -> &'static str {
    match is_sure {
        true => "No thread waited for a lock, or for another thread.",
        false => "No thread is known to have waited for a lock, or for another thread.",
    }
}

/// The answer in lines. `rows`: those of a table, longest total wait first; `window_ns`: length of the interval.
pub(crate) fn lines(rows: &[LockRow], window_ns: u64) -> Vec<String> {
    let Some(mut worst) = worst(rows) else {
        return Vec::new();
    };
    if is_contention(worst) && is_little(sums(rows, worst).0, window_ns) {
        // Waits for work are among them only where their class was asked for.
        let mut asked = rows.iter().filter(|row| !is_contention(row));
        let Some(asked) = asked.find(|row| !is_little(row.total_ns, window_ns)) else {
            return no_matter(rows, worst, window_ns);
        };
        worst = asked;
    }
    let is_lock = is_contention(worst);
    let alike = like(rows, worst);
    let (all_ns, locks) = sums(rows, worst);
    let is_futex = alike.clone().all(|row| row.identity.is_futex());
    let share = |row: &LockRow| 100.0 * row.total_ns as f64 / all_ns.max(1) as f64;
    let mut parts = Vec::new();
    if is_guess(worst) {
        parts.push(format!("a guess, {}% sure", worst.confidence));
        if let Some(known) = alike.clone().find(|row| row.confidence >= SURE) {
            let name = fit(&label(known), WIDTH / 2);
            let share = share(known);
            parts.push(format!("most of a known kind: {share:.1}%, {name}"));
        }
    }
    if worst.what == For::Unclear {
        parts.push("perhaps for work".into());
    }
    parts.extend(came_last(worst));
    let of = match (locks, is_lock) {
        (1, true) => "the only lock waited for".into(),
        (1, false) => {
            let what = if is_futex {
                "futex"
            } else {
                "thing waited for"
            };
            format!("the only {what} of the classes asked for")
        }
        _ => {
            let time = units::thread_time(all_ns);
            let what = match (is_lock, is_futex) {
                (true, _) => "locks",
                (false, true) => "futexes",
                (false, false) => "things waited for",
            };
            let locks = units::counted(locks, what);
            format!("{:.1}% of {time} for {locks}", share(worst))
        }
    };
    parts.push(format!("{of} in {}", units::duration(window_ns)));
    parts.push(match all_ns as f64 / window_ns.max(1) as f64 {
        ..0.05 => "less than 0.1 threads at any time".into(),
        threads => format!("{threads:.1} threads at any time"),
    });
    let evidence = sentence(&parts, ";", WIDTH - 2).into_iter();
    let mut lines = who_waited(worst);
    lines.extend(evidence.map(|line| format!("  {line}")));
    lines
}

/// Time of rows like the worst one, ns, and their number.
fn sums(rows: &[LockRow], worst: &LockRow) -> (u64, u64) {
    like(rows, worst).fold((0, 0), |(ns, locks), row| {
        (ns + row.total_ns, locks + row.locks)
    })
}

/// The answer where all waits together are nobody's trouble, though one may be long.
fn no_matter(rows: &[LockRow], worst: &LockRow, window_ns: u64) -> Vec<String> {
    let (all_ns, locks) = sums(rows, worst);
    let longest_ns = like(rows, worst).map(|row| row.max_ns).max().unwrap_or(0);
    let parts = [
        format!(
            "No lock matters: threads waited {}",
            units::thread_time(all_ns)
        ),
        format!("for {}", units::counted(locks, "locks")),
        format!("in {};", units::duration(window_ns)),
        format!("the longest wait was {}", units::duration(longest_ns)),
    ];
    sentence(&parts, "", WIDTH)
}

/// `app 7 waited 1.41 thread-seconds for mutex app.bss: queue`: where that is too long, the threads have a line of their own, or the
/// name has, which gives way.
fn who_waited(row: &LockRow) -> Vec<String> {
    let waited = format!(
        "waited {} for {}",
        units::thread_time(row.total_ns),
        noun(row)
    );
    let whose = whose(row);
    let name = label(row);
    let all = format!("{whose} {waited}");
    let room = |begin: &str| (WIDTH - 1).saturating_sub(columns(begin));
    if room(&all) >= LEAST_NAME {
        return vec![format!("{all} {}", fit(&name, room(&all)))];
    }
    if columns(&all) <= WIDTH {
        return vec![all, format!("  {}", fit(&name, WIDTH - 2))];
    }
    let waited = format!("  {waited}");
    match room(&waited) {
        ..LEAST_NAME => vec![whose, waited, format!("  {}", fit(&name, WIDTH - 2))],
        room => vec![whose, format!("{waited} {}", fit(&name, room))],
    }
}

/// The thread that the others waited for at a barrier, if it is the same one for most of the time.
fn came_last(row: &LockRow) -> Option<String> {
    let rounds: u64 = row.last.iter().map(|one| one.times).sum();
    let caused_ns: u64 = row.last.iter().map(|one| one.caused_ns).sum();
    let last = row.last.iter().max_by_key(|one| one.caused_ns);
    let last = last.filter(|one| one.caused_ns > caused_ns / 2)?;
    let who = format!("{} {}", comm(&last.task.comm), last.task.tid);
    let times = units::count(last.times);
    let share = round_percent(last.caused_ns, caused_ns);
    let rounds = units::counted(rounds, "times");
    Some(format!(
        "{who} came last {times} of {rounds}, {share} of the waiting"
    ))
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
    let (Some((tgid, (_, name))), Some((_, tid))) = (processes.first(), threads.first()) else {
        return if row.waiters.is_empty() {
            "Threads".into()
        } else {
            "Interrupts".into()
        };
    };
    let comm = comm(name);
    match (threads.len(), processes.len()) {
        (1, _) => format!("{comm} {tid}"),
        (n, 1) => format!("{n} threads of PID {tgid} ({comm})"),
        (n, of) => format!("{n} threads of {of} processes (mostly {comm} {tgid})"),
    }
}

/// A lock's class as a noun: `mutex`, or `what is perhaps a mutex,` where that is a guess.
pub(crate) fn noun(row: &LockRow) -> String {
    let (article, noun) = match row.class {
        "pi" => ("a ", "PI mutex"),
        "rust" => ("a ", "Rust lock"),
        "parking_lot" => ("a ", "parking_lot lock"),
        "go" => ("a ", "Go runtime lock"),
        "gil" => ("", "the"),
        "python-lock" => ("a ", "Python lock"),
        "java-lock" => ("a ", "Java's"),
        "flock" => ("a ", "file lock"),
        "posix" => ("a ", "POSIX lock of file"),
        "ofd" => ("an ", "OFD lock of file"),
        "sysv-sem" => ("a ", "System V semaphore"),
        "jobserver" => ("a ", "job token from"),
        "cond" => ("a ", "condition variable"),
        "sem" => ("a ", "semaphore"),
        "join" => ("the ", "end of thread"),
        "park" => ("", "work, parked at"),
        UNKNOWN => ("a ", "futex of unknown kind"),
        class => ("a ", class),
    };
    match row.class {
        _ if !is_guess(row) => noun.into(),
        "park" => format!("what is perhaps {noun}"),
        _ => format!("what is perhaps {article}{noun},"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockstat::row::{
        Side,
        tests::{arrivals, row},
    };

    /// A thread that others waited for half of the time is not the trouble.
    #[test]
    fn who_is_late_at_a_barrier_is_named() {
        let said = |times: [u64; 2]| {
            let mut barrier = row(500);
            barrier.identity.side = Side::User;
            barrier.class = "barrier";
            barrier.last = arrivals(&times);
            lines(&[barrier], 1_000).concat()
        };
        let late = said([39, 2]);
        assert!(
            late.contains("team 8 came last 39 of 41 times, 95% of"),
            "{late}"
        );
        let nobody = said([20, 20]);
        assert!(!nobody.contains("came last"), "{nobody}");
    }

    /// Neither a set of System V's nor a wait for a client is a futex.
    #[test]
    fn work_that_is_no_futex_is_called_none() {
        let said = |class| {
            let mut work = row(500);
            (work.identity.side, work.identity.class) = (Side::User, class);
            work.what = For::Work;
            lines(&[work], 1_000)[1].clone()
        };
        let futex = said(0);
        assert!(futex.starts_with("  the only futex of"), "{futex}");
        let set = said(131);
        assert!(set.starts_with("  the only thing waited for of"), "{set}");
    }
}
