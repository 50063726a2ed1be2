//! The table: a lock with who waits for it and who holds it. At most 80 columns.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ptr;
use std::sync::Arc;

use hist::text::{self as histogram, Unit};
use profile::escape::terminal;
use profile::rank::Rank;
use profile::style::Style;
use profile::sums::sums;
use profile::table::{Column, Table};
use profile::text::{
    WIDTH, comm, cut, cut_to_fit, fit, round_percent as percent, sentence, write_lines,
};
use profile::units;

use crate::lockstat::came_last::{NAMED, came_last};
use crate::lockstat::futex::Class;
use crate::lockstat::headline::{is_guess, worst};
use crate::lockstat::meanwhile::Meanwhile;
use crate::lockstat::row::{For, Holder, HolderKind, LockRow, Side};

/// Of the lines about a lock.
const INDENT: usize = 8;
/// Locks that are shown where no number is asked for.
pub(crate) const SHOWN: usize = 20;
/// Share of all waiting below which a lock has no row of its own then.
const SMALL: f64 = 0.01;

/// Extent of what is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Locks; none given: those that matter.
    pub(crate) top: Option<usize>,
    /// Distributions.
    pub(crate) hist: bool,
    pub(crate) style: Style,
}

/// Writes the locks, worst first; `more` adds to each whatever else was asked for.
pub(crate) fn write<W: Write>(
    rows: &[LockRow],
    look: Look,
    out: &mut W,
    mut more: impl FnMut(&LockRow, &mut W) -> io::Result<()>,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let (shown, rest) = shown(rows, look.top);
    let (title, lines) = locks(&shown).lines(WIDTH);
    writeln!(out, "{}", look.style.bold(title))?;
    for (row, line) in shown.into_iter().zip(lines) {
        writeln!(out, "{line}")?;
        write_about(row, out)?;
        if look.hist {
            histogram::write(&row.waits, Unit::Microseconds, out)?;
        }
        more(row, out)?;
    }
    write_rest(&rest, rows.len(), look.top.is_none(), out)
}

/// Rows to show, the one that the report begins with among them, and the others.
fn shown(rows: &[LockRow], top: Option<usize>) -> (Vec<&LockRow>, Vec<&LockRow>) {
    let all_ns: u64 = rows.iter().map(|row| row.total_ns).sum();
    let is_large = |row: &LockRow| row.total_ns as f64 >= SMALL * all_ns as f64;
    let most = top.unwrap_or(SHOWN);
    let headline = worst(rows);
    let place = rows.iter().position(|row| is_same(headline, row));
    // It has the last place where it has none by its time.
    let first = most.saturating_sub(usize::from(place.is_some_and(|place| place >= most)));
    let is_first = |at, row: &LockRow| at < first && (top.is_some() || is_large(row));
    let (mut shown, mut rest) = (Vec::new(), Vec::new());
    for (at, row) in rows.iter().enumerate() {
        if is_first(at, row) || most > 0 && is_same(headline, row) {
            shown.push(row);
        } else {
            rest.push(row);
        }
    }
    // A guess stands behind what the report begins with, however long it was waited for.
    if let Some(at) = shown.iter().position(|row| is_same(headline, row)) {
        shown[..=at].rotate_right(1);
    }
    (shown, rest)
}

fn is_same(headline: Option<&LockRow>, row: &LockRow) -> bool {
    headline.is_some_and(|headline| ptr::eq(headline, row))
}

/// One line for all rows that are not shown, `all` with those that are.
fn write_rest(
    rest: &[&LockRow],
    all: usize,
    by_share: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let (locks, rest_ns) = rest.iter().fold((0, 0), |(locks, ns), row| {
        (locks + row.locks, ns + row.total_ns)
    });
    if locks == 0 {
        return Ok(());
    }
    let each = match by_share && all - rest.len() < SHOWN {
        true if locks > 1 => ", each below 1% of all waiting",
        true => ", below 1% of all waiting",
        false => "",
    };
    let time = units::duration(rest_ns);
    let locks = units::counted(locks, "other locks");
    let begin = format!("{time:>7} in {locks}{each}");
    let lines = sentence(&[begin, format!("(-n {all} shows all)")], "", WIDTH);
    write_lines(lines, out)
}

fn locks<'a>(rows: &[&'a LockRow]) -> Table<'a> {
    let mut table = Table::new([
        Column::right("TOTAL", 7),
        Column::right("WAITS", 6),
        Column::right("AVG", 8),
        Column::right("P99", 8),
        Column::right("MAX", 8),
        Column::left("LOCK", 0),
    ]);
    for &row in rows {
        let numbers = [
            units::duration(row.total_ns),
            units::count(row.contentions),
            length(row, row.waits.mean()),
            length(row, row.waits.percentile(99.0)),
            units::duration(row.max_ns),
        ];
        table.fitted(numbers, move |room| {
            let class = class(row);
            let room = room.saturating_sub(class.len() + 1);
            format!("{class} {}", fit(&label(row), room.max(1)))
        });
    }
    table
}

/// Its class, with a question mark where either it or that its threads wait for others is not sure.
pub(crate) fn class(row: &LockRow) -> String {
    let is_sure = row.what != For::Unclear && !is_guess(row);
    format!("{}{}", row.class, if is_sure { "" } else { "?" })
}

/// A lock's name, or that of a kind and their number.
pub(crate) fn label(row: &LockRow) -> String {
    match row.locks {
        1 => terminal(&row.name.own).into_owned(),
        n => format!("{} ({n} locks)", terminal(&row.name.own)),
    }
}

/// Who waits for a lock and how, and who holds it.
fn write_about(row: &LockRow, out: &mut impl Write) -> io::Result<()> {
    let waiting = [callers(row)].into_iter().chain(how(row));
    let about: Vec<String> = waiting.chain(holder_is_missing(row)).collect();
    for mut parts in [about, by_whom(row)] {
        parts.retain(|part| !part.is_empty());
        for line in sentence(&parts, ";", WIDTH - INDENT) {
            let parts: Vec<String> = line.split(", ").map(str::to_owned).collect();
            for line in sentence(&parts, ",", WIDTH - INDENT) {
                writeln!(out, "{:>INDENT$}{}", "", cut(&line, WIDTH - INDENT))?;
            }
        }
    }
    Ok(())
}

/// Threads for which others waited, and what they did: those that held the lock, or came last to a barrier.
pub(crate) fn by_whom(row: &LockRow) -> Vec<String> {
    if row.last.is_empty() {
        return held_by(row);
    }
    let mut last = came_last(&row.last);
    last.push(doing(row, &by_thread(row.holders.iter())));
    last
}

/// A length of single waits; there is none where all began before the interval.
fn length(row: &LockRow, ns: u64) -> String {
    if row.contentions > 0 {
        units::duration(ns)
    } else {
        "-".into()
    }
}

/// Columns of a caller and its share: those of a line, without the words before and a comma.
const CALLER: usize = WIDTH - INDENT - 12;

/// Who waited, by the first function outside the lock's code.
fn callers(row: &LockRow) -> String {
    let waiters = row.waiters.iter();
    let of_callers =
        waiters.filter_map(|waiter| Some((waiter.caller.as_deref()?, waiter.total_ns)));
    let mut shares: Vec<(&str, u64)> = sums(of_callers).into_iter().collect();
    shares.rank_by_key(|(caller, ns)| (Reverse(*ns), *caller));
    let named: u64 = shares.iter().take(NAMED).map(|(_, ns)| ns).sum();
    let rest = percent(row.total_ns.saturating_sub(named), row.total_ns);
    let has_rest = rest != percent(0, row.total_ns);
    let mut parts: Vec<String> = match &shares[..] {
        [] => {
            let first = row.first_caller.as_deref().map(terminal);
            return first.map_or_else(String::new, |first| format!("waiters in {first}"));
        }
        [(caller, _)] if !has_rest => vec![terminal(caller).into_owned()],
        several => several
            .iter()
            .take(NAMED)
            .map(|(caller, ns)| {
                let share = format!(" {}", percent(*ns, row.total_ns));
                cut_to_fit(&terminal(caller), &share, CALLER)
            })
            .collect(),
    };
    if has_rest {
        parts.push(format!("others {rest}"));
    }
    format!("waiters in {}", parts.join(", "))
}

/// Remarks on waits that are unusual.
fn how(row: &LockRow) -> Vec<String> {
    let mut parts = Vec::new();
    if row.open > 0 {
        parts.push(format!("{} still waiting", row.open));
    }
    if row.timed_out > 0 {
        let waits = units::count(row.timed_out);
        parts.push(format!("{waits} timed out or interrupted"));
    }
    if row.raced > 0 {
        let what = match row.identity.is_futex() {
            true => "futex calls",
            false => "calls",
        };
        let calls = units::counted(row.raced, what);
        parts.push(format!("{calls} returned without waiting"));
    }
    let parts_ns = row.spin_ns + row.block_ns;
    let is_mutex = matches!(row.class, "mutex" | "pi");
    // Every waiter for such a lock spins for a moment.
    if is_mutex && row.spin_ns > 0 && row.spin_ns >= parts_ns / 100 {
        let share = percent(row.spin_ns, parts_ns);
        parts.push(format!("{share} of the time spinning"));
    }
    if row.run_queue_ns > 0 && row.run_queue_ns >= parts_ns / 100 {
        let share = percent(row.run_queue_ns, parts_ns);
        parts.push(format!("{share} of the time woken, without a CPU"));
    }
    if row.what == For::Unclear {
        parts.push("perhaps for work".into());
    }
    if is_guess(row) {
        parts.push(format!("class is a guess, {}% sure", row.confidence));
    }
    parts
}

/// Part of the time below which a thread's name says nothing: servers have a thread for each request.
const NAMELESS: u64 = 20;

/// Holders of a lock, whatever stack they were seen on, and what they were doing.
pub(crate) fn held_by(row: &LockRow) -> Vec<String> {
    let all = by_thread(row.holders.iter());
    let caused_ns_of_all: u64 = all.iter().map(|holder| holder.caused_ns).sum();
    let verb = match all.first().map(|holder| holder.kind) {
        None => return Vec::new(),
        Some(HolderKind::Waker) => "released by",
        Some(HolderKind::Owner | HolderKind::Reader) => "held by",
    };
    let share = |caused_ns| percent(caused_ns, caused_ns_of_all);
    let named = |holder: &Holder| match all.len() {
        1 => who(holder),
        _ => format!("{} {}", who(holder), share(holder.caused_ns)),
    };
    let is_one_of_many = |one: &&Holder| one.caused_ns < caused_ns_of_all / NAMELESS;
    let count = match all.len() {
        0..=NAMED => all.len(),
        _ => all[..NAMED]
            .iter()
            .take_while(|one| !is_one_of_many(one))
            .count(),
    };
    let mut named: Vec<String> = all[..count].iter().map(named).collect();
    if count == 0 {
        let threads = units::counted(all.len() as u64, "threads");
        named.push(format!("{threads}, each less than 5% of the time"));
    } else if count < all.len() {
        let rest = all[count..].iter().map(|holder| holder.caused_ns).sum();
        named.push(format!("{} more {}", all.len() - count, share(rest)));
    }
    vec![format!("{verb} {}", named.join(", ")), doing(row, &all)]
}

/// Doings of a lock's holders, a thread or several.
pub(crate) fn doing(row: &LockRow, holders: &[Holder]) -> String {
    let (was, were, doing) = match did(row, holders) {
        known if !known.is_empty() => ("meanwhile", "meanwhile", known),
        _ => ("which was", "which were", state(holders)),
    };
    match holders.len() {
        _ if doing.is_empty() => doing,
        1 => format!("{was} {doing}"),
        _ => format!("{were} {doing}"),
    }
}

/// Said of a program's lock that nobody was seen to hold or release.
fn holder_is_missing(row: &LockRow) -> Option<String> {
    let is_held = |class: &Class| class.word() == row.class && class.names_holder();
    let has_holder = row.identity.side == Side::User && Class::FAMILIES.iter().any(is_held);
    (has_holder && row.open > 0 && row.holders.is_empty()).then(|| "holder not seen".into())
}

fn who(holder: &Holder) -> String {
    let reader = match holder.kind {
        HolderKind::Reader => "reader ",
        HolderKind::Owner | HolderKind::Waker => "",
    };
    format!("{reader}{} {}", comm(&holder.task.comm), holder.task.tid)
}

/// Activities of holders when others began to wait, in shares of these waits; of releasers while others waited, in shares of the time.
fn state(holders: &[Holder]) -> String {
    let sum = |of: fn(&Holder) -> u64| holders.iter().map(of).sum::<u64>();
    let states = [
        (sum(|holder| holder.on_cpu), "on a CPU"),
        (sum(|holder| holder.runnable), "waiting for a CPU"),
        (sum(|holder| holder.blocked), "asleep"),
    ];
    shares(states.to_vec())
}

/// Doings of the threads that ended the waits while these lasted.
fn did(row: &LockRow, holders: &[Holder]) -> String {
    let sum = |at: usize| holders.iter().map(|holder| holder.meanwhile.0[at]).sum();
    // Threads that wait for a lock at words of their own are in its queue themselves before they release it.
    let own_words = row.locks > 1 || row.identity.address == 0;
    let waiters = || row.waiters.iter().map(|waiter| waiter.task.tid);
    let waits = |one: &Holder| one.task.tid != 0 && waiters().any(|tid| tid == one.task.tid);
    let word = |key, word| match key == "others" && own_words && holders.iter().all(waits) {
        true => "waiting for it or others",
        false => word,
    };
    let words = Meanwhile::WORDS.iter().enumerate();
    let parts = words.map(|(at, (key, others))| (sum(at), word(*key, *others)));
    let parts: Vec<(u64, &str)> = parts.collect();
    let all: u64 = parts.iter().map(|(ns, _)| ns).sum();
    let unknown = parts.last().map_or(0, |(ns, _)| *ns);
    // A line that knows less than half would mislead.
    if unknown * 2 > all {
        return String::new();
    }
    shares(parts)
}

/// Shares that are more than a little, the largest first.
fn shares(mut parts: Vec<(u64, &str)>) -> String {
    let sum = |parts: &[(u64, &str)]| parts.iter().map(|(n, _)| n).sum::<u64>();
    let least = SMALL * sum(&parts) as f64;
    parts.retain(|(n, _)| *n > 0 && *n as f64 >= least);
    parts.rank_by_key(|(n, _)| Reverse(*n));
    if let [(_, only)] = parts[..] {
        return only.into();
    }
    let all = sum(&parts);
    let parts = parts.iter();
    let parts: Vec<String> = parts
        .map(|(n, word)| format!("{word} {}", percent(*n, all)))
        .collect();
    parts.join(", ")
}

/// Threads by the waiting that they caused, on any of the locks; stacks and kinds of holding apart no more.
pub(crate) fn by_thread<'a>(holders: impl Iterator<Item = &'a Holder>) -> Vec<Holder> {
    let mut threads: HashMap<(u32, u32, Arc<str>), Holder> = HashMap::new();
    for holder in holders {
        let task = &holder.task;
        let key = (task.tgid, task.tid, Arc::clone(&task.comm));
        match threads.get_mut(&key) {
            None => drop(threads.insert(key, holder.clone())),
            Some(sum) => {
                sum.add(holder);
                sum.kind = sum.kind.min(holder.kind);
            }
        }
    }
    let mut threads: Vec<Holder> = threads.into_values().collect();
    threads.rank_by_key(|holder| Reverse((holder.caused_ns, holder.task.tid)));
    threads
}
