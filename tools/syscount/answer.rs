//! The first lines of a report, which are the answer, and the command that looks further.

use std::cmp::Reverse;

use profile::escape::terminal;
use profile::text::{WIDTH, cut, sentence};
use profile::units;
use session::chosen;
use session::next::{self, Step};

use crate::syscount::args::Args;
use crate::syscount::harvest::Row;
use crate::syscount::interval::Interval;
use crate::syscount::names;

/// Calls that take less on average do so on a CPU, ns.
const SHORT_NS: u64 = 20_000;
/// Columns of a name and a number, as wide as they are where no byte of the name is escaped.
pub(crate) const WIDEST_NAME: usize = 15 + 1 + 7;
/// A row with this part of the worst one's time is worth a look where nothing is left of that.
const LARGE: u64 = 10;

/// The call to look at and whose it is, then the sums. `work` and `waits`: the rows of both tables in their order.
pub(crate) fn lines(
    args: &Args,
    interval: &Interval,
    work: &[&Row],
    waits: &[&Row],
) -> Vec<String> {
    let calls: u64 = interval.rows.iter().map(|row| row.returned.count()).sum();
    let failed: u64 = interval.rows.iter().map(Row::failed).sum();
    let open: u64 = interval.rows.iter().map(|row| row.open).sum();
    let time_of = |rows: &[&Row]| units::thread_time(rows.iter().map(|row| row.time_ns).sum());
    let window = units::duration(interval.end_ns.saturating_sub(interval.start_ns));
    let share =
        |part: u64, whole: u64| format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64);
    if args.only_failures() {
        let Some(row) = work.first() else {
            return vec![format!("No call failed in {window}.")];
        };
        let times = units::counted(row.failed(), "times");
        let share = share(row.failed(), failed);
        let calls = units::counted(failed, "calls that failed");
        let parts = [
            format!("{share} of {calls}"),
            format!("{} in them, waits included", time_of(work)),
        ];
        return told(
            subject(args, row),
            format!("failed {times} in {window}"),
            &parts,
        );
    }
    let calls = units::counted(calls, "calls returned");
    let waits = format!("{} in calls that wait", time_of(waits));
    let (open, failed) = (units::count(open), units::count(failed));
    let counts = format!("{calls}, {open} open, {failed} failed");
    let Some(row) = work.first() else {
        return told(
            format!("No call did work in {window}."),
            String::new(),
            &[waits, counts],
        );
    };
    let all_ns = work.iter().map(|row| row.time_ns).sum();
    let share = share(row.time_ns, all_ns);
    let parts = [
        format!("{share} of {} in calls that work", time_of(work)),
        waits,
        counts,
    ];
    let took = units::thread_time(row.time_ns);
    told(
        subject(args, row),
        format!("took {took} in {window}"),
        &parts,
    )
}

/// Lines: who did what, in two where one is too short, and the evidence.
fn told(who: String, what: String, evidence: &[String]) -> Vec<String> {
    let first = [who, what].into_iter().filter(|part| !part.is_empty());
    let first: Vec<String> = first.collect();
    let mut lines = sentence(&first, "", WIDTH);
    let evidence = sentence(evidence, ";", WIDTH - 2).into_iter();
    lines.extend(evidence.map(|line| format!("  {line}")));
    lines
}

/// `read of redis-server 9`; the call alone, where rows are nobody's.
fn subject(args: &Args, row: &Row) -> String {
    if args.by_call {
        call(row)
    } else {
        format!("{} of {}", call(row), who(row, WIDEST_NAME))
    }
}

/// The command that looks further, and what it answers. `work`: rows without those that wait, in the order of the report.
pub(crate) fn next(
    args: &Args,
    work: &[&Row],
    window_ns: u64,
    is_there: fn(u32) -> bool,
) -> String {
    let chosen = chosen::options(&args.targets, is_there);
    let nothing_left = || Step::Shortages.line("");
    if args.only_failures() {
        let error = work.first().and_then(|row| most(row)).map(names::error);
        let Some(chosen) = chosen else {
            return nothing_left();
        };
        return match error.filter(|_| args.errno.is_none()) {
            Some(error) => Step::Failures.line(format!("{error} {chosen}").trim_end()),
            None => Step::Calls.line_for(&chosen, "all calls, and their time"),
        };
    }
    let all_ns: u64 = work.iter().map(|row| row.time_ns).sum();
    // Less than a hundredth of one CPU is nobody's trouble.
    let Some(worst) = work.first().filter(|_| all_ns > window_ns / 100) else {
        return match chosen.as_deref() {
            None | Some("") => nothing_left(),
            Some(chosen) => Step::Waits.line(chosen),
        };
    };
    let is_large = |row: &&&Row| row.time_ns >= worst.time_ns / LARGE;
    let mut large = work.iter().take_while(is_large);
    let alive = large.find(|row| is_there(row.id));
    let (row, target) = match alive {
        Some(row) if args.by_thread => (row, format!("-t {}", row.id)),
        Some(row) => (row, format!("-p {}", row.id)),
        // A command is started anew.
        None if args.targets.command.is_empty() && next::is_plain(&worst.comm) => {
            (worst, format!("--comm {}", worst.comm))
        }
        None => match chosen {
            None => return nothing_left(),
            Some(chosen) if worst.id == 0 && worst.ended == 0 => return Step::Calls.line(&chosen),
            Some(chosen) => (worst, chosen),
        },
    };
    let step = match row.returned.mean() {
        1..SHORT_NS => Step::CpuTime,
        _ => Step::Waits,
    };
    step.line_for(&target, &format!("what {} does", names::call(row.call)))
}

/// The error that a call failed with most.
fn most(row: &Row) -> Option<u32> {
    let errors = row.errors.iter();
    let most = errors.max_by_key(|(error, count)| (**count, Reverse(**error)));
    most.map(|(error, _)| *error)
}

/// `redis-server 9`, `cc1, 40 ended`: in so many columns, of which the name gives way.
pub(crate) fn who(row: &Row, width: usize) -> String {
    let id = match (row.id, row.ended) {
        (_, 1..) => format!(", {} ended", units::count(row.ended)),
        (0, 0) => String::new(),
        (id, 0) => format!(" {id}"),
    };
    let room = width.saturating_sub(id.len());
    format!("{}{id}", cut(&terminal(&row.comm), room))
}

/// `read`, `read/32`.
pub(crate) fn call(row: &Row) -> String {
    let width = if names::is_compat(row.call) {
        "/32"
    } else {
        ""
    };
    format!("{}{width}", names::call(row.call))
}

/// `EAGAIN 12, ENOENT 3, interrupted 1`
pub(crate) fn errors(row: &Row) -> String {
    let mut errors: Vec<(u32, u64)> = row.errors.clone().into_iter().collect();
    errors.sort_by_key(|(_, count)| Reverse(*count));
    let errors = errors.into_iter();
    let errors = errors.map(|(error, count)| (names::error(error), count));
    let interrupted = (row.interrupted > 0).then_some(("interrupted".into(), row.interrupted));
    let all = errors.chain(interrupted);
    let told = all.map(|(name, count)| format!("{name} {}", units::count(count)));
    told.collect::<Vec<_>>().join(", ")
}
