//! The table: two lines a lock, and who made others wait. At most 100 columns.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use hist::text::{self as histogram, Unit};
use profile::escape::terminal;
use profile::rank::Rank;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{cut, fit, round_percent as percent};
use profile::units;

use crate::lockstat::futex::Class;
use crate::lockstat::row::{Holder, HolderKind, LockRow, Side};
use crate::lockstat::user::LeftOut;
use crate::lockstat::width::WIDTH;

/// Of the lines about a lock.
const INDENT: usize = 10;
/// Callers and holders named behind a lock.
const NAMED: usize = 3;
/// Holders in the second table.
const HOLDERS: usize = 5;
/// Columns of a holder's name.
const HOLDER: usize = 28;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Locks.
    pub(crate) top: usize,
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
        return writeln!(out, "No thread waited for a lock.");
    }
    let (title, lines) = locks(rows, look.top).lines(WIDTH);
    writeln!(out, "{}", look.style.bold(title))?;
    for (row, line) in rows.iter().zip(lines) {
        writeln!(out, "{line}")?;
        write_about(row, out)?;
        if look.hist {
            histogram::write(&row.waits, Unit::Microseconds, out)?;
        }
        more(row, out)?;
    }
    let rest = rows.iter().skip(look.top);
    let (locks, rest_ns) = rest.fold((0, 0), |(locks, ns), row| {
        (locks + row.locks, ns + row.total_ns)
    });
    if locks > 0 {
        let rest = units::duration(rest_ns);
        writeln!(
            out,
            "{rest:>8} in {} (-n shows more)",
            units::counted(locks, "other locks")
        )?;
    }
    write_holders(rows, look.style, out)
}

fn locks(rows: &[LockRow], top: usize) -> Table<'_> {
    let mut table = Table::new([
        Column::right("TOTAL", 8),
        Column::right("WAITS", 9),
        Column::right("AVG", 8),
        Column::right("P50", 8),
        Column::right("P99", 8),
        Column::right("MAX", 8),
        Column::left("CLASS", 9),
        Column::left("LOCK", 0),
    ]);
    for row in rows.iter().take(top) {
        let numbers = [
            units::duration(row.total_ns),
            units::count(row.contentions),
            length(row, row.waits.mean()),
            length(row, row.waits.percentile(50.0)),
            length(row, row.waits.percentile(99.0)),
            units::duration(row.max_ns),
            row.class.into(),
        ];
        let name = match row.locks {
            1 => terminal(&row.name.own).into_owned(),
            n => format!("{} ({n} locks)", terminal(&row.name.own)),
        };
        table.fitted(numbers, move |room| fit(&name, room.max(1)));
    }
    table
}

/// Who waits for a lock and how, and who holds it.
fn write_about(row: &LockRow, out: &mut impl Write) -> io::Result<()> {
    let mut about: Vec<String> = [callers(row)].into_iter().chain(how(row)).collect();
    about.retain(|part| !part.is_empty());
    let about = about.join("; ");
    let held = held_by(&row.holders).or_else(|| ask_now(row));
    let held = held.unwrap_or_default();
    let together = if about.is_empty() || held.is_empty() {
        format!("{about}{held}")
    } else {
        format!("{about}; {held}")
    };
    if together.is_empty() {
        return Ok(());
    }
    if together.chars().count() <= WIDTH - INDENT {
        return writeln!(out, "{:>INDENT$}{together}", "");
    }
    for line in [about, held].iter().filter(|line| !line.is_empty()) {
        writeln!(out, "{:>INDENT$}{}", "", cut(line, WIDTH - INDENT))?;
    }
    Ok(())
}

/// A length of single waits; there is none where all began before the interval.
fn length(row: &LockRow, ns: u64) -> String {
    if row.contentions > 0 {
        units::duration(ns)
    } else {
        "-".into()
    }
}

/// Who waited, by the first function outside the lock's code.
fn callers(row: &LockRow) -> String {
    let mut shares: HashMap<&str, u64> = HashMap::new();
    for waiter in &row.waiters {
        if let Some(caller) = &waiter.caller {
            *shares.entry(caller).or_default() += waiter.total_ns;
        }
    }
    let walked_ns: u64 = shares.values().sum();
    let mut shares: Vec<(&str, u64)> = shares.into_iter().collect();
    shares.rank_by_key(|(caller, ns)| (Reverse(*ns), *caller));
    let parts: Vec<String> = match &shares[..] {
        [] => {
            return row
                .first_caller
                .as_deref()
                .map_or_else(String::new, |caller| format!("in {}", terminal(caller)));
        }
        [(caller, _)] => vec![terminal(caller).into_owned()],
        several => several
            .iter()
            .take(NAMED)
            .map(|(caller, ns)| format!("{} {}", terminal(caller), percent(*ns, walked_ns)))
            .collect(),
    };
    format!("in {}", parts.join(", "))
}

/// What is unusual about the waits.
fn how(row: &LockRow) -> Vec<String> {
    let mut parts = Vec::new();
    if row.open > 0 {
        parts.push(format!("{} still waiting", row.open));
    }
    if row.timed_out > 0 {
        parts.push(format!("{} gave up", units::count(row.timed_out)));
    }
    if row.raced > 0 {
        parts.push(format!("{} raced", units::count(row.raced)));
    }
    let parts_ns = row.spin_ns + row.block_ns;
    // Every waiter for a PI lock spins for a moment.
    if row.spin_ns > 0 && row.class == "mutex" || row.class == "pi" && row.spin_ns > parts_ns / 100
    {
        parts.push(format!("spinning {}", percent(row.spin_ns, parts_ns)));
    }
    if row.run_queue_ns > 0 {
        parts.push(format!(
            "queued for a CPU {}",
            percent(row.run_queue_ns, parts_ns)
        ));
    }
    if row.confidence < 80 {
        parts.push(format!("class {}% sure", row.confidence));
    }
    parts
}

/// Holders of a lock, whatever stack they were seen on.
fn held_by(holders: &[Holder]) -> Option<String> {
    let all = by_thread(holders.iter());
    let caused_ns: u64 = all.iter().map(|holder| holder.caused_ns).sum();
    let verb = match all.first()?.kind {
        HolderKind::Waker => "released by",
        HolderKind::Owner | HolderKind::Reader => "held by",
    };
    let [one] = &all[..] else {
        let named: Vec<String> = all
            .iter()
            .take(NAMED)
            .map(|holder| format!("{} {}", who(holder), percent(holder.caused_ns, caused_ns)))
            .collect();
        let more = match all.len() {
            n if n > NAMED => format!(" and {} more", n - NAMED),
            _ => String::new(),
        };
        return Some(format!("{verb} {}{more}", named.join(", ")));
    };
    Some(match state(one) {
        state if state.is_empty() => format!("{verb} {}", who(one)),
        state => format!("{verb} {}, {state}", who(one)),
    })
}

/// Where the answer is when nobody was seen to hold or release a program's lock.
fn ask_now(row: &LockRow) -> Option<String> {
    let is_held = |class: &Class| class.word() == row.class && class.names_holder();
    let has_holder = row.identity.side == Side::User && Class::FAMILIES.iter().any(is_held);
    let tgid = row.identity.tgid;
    (has_holder && tgid != 0 && row.open > 0)
        .then(|| format!("who holds it: lockstat --now -p {tgid}"))
}

fn who(holder: &Holder) -> String {
    let reader = match holder.kind {
        HolderKind::Reader => "reader ",
        HolderKind::Owner | HolderKind::Waker => "",
    };
    format!(
        "{reader}{} {}",
        terminal(&holder.task.comm),
        holder.task.tid
    )
}

/// What the holder was mostly doing.
fn state(holder: &Holder) -> String {
    let all = holder.on_cpu + holder.runnable + holder.blocked;
    let states = [
        (holder.on_cpu, "on a CPU"),
        (holder.runnable, "waiting for a CPU"),
        (holder.blocked, "asleep"),
    ];
    let known = states.into_iter().filter(|(n, _)| *n > 0);
    let parts: Vec<String> = known
        .map(|(n, what)| match all {
            _ if n == all => what.into(),
            all => format!("{what} {}", percent(n, all)),
        })
        .collect();
    parts.join(", ")
}

fn known_state(holder: &Holder) -> String {
    match (state(holder), holder.kind) {
        (state, HolderKind::Waker) if state.is_empty() => "not known: it released it".into(),
        (state, _) if state.is_empty() => "not known".into(),
        (state, _) => state,
    }
}

/// Threads by the waiting that they caused, on any of the locks; stacks and kinds of holding apart no more.
fn by_thread<'a>(holders: impl Iterator<Item = &'a Holder>) -> Vec<Holder> {
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

fn write_holders(rows: &[LockRow], style: Style, out: &mut impl Write) -> io::Result<()> {
    let threads = by_thread(rows.iter().flat_map(|row| &row.holders));
    if threads.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::right("CAUSED", 8),
        Column::right("WAITS", 9),
        Column::left("HOLDER", HOLDER),
        Column::left("HELD THE LOCK", 0),
    ]);
    for holder in threads.iter().take(HOLDERS) {
        table.row([
            units::duration(holder.caused_ns),
            units::count(holder.waits),
            cut(&who(holder), HOLDER),
            known_state(holder),
        ]);
    }
    if threads.len() > HOLDERS {
        let rest: u64 = threads[HOLDERS..]
            .iter()
            .map(|holder| holder.caused_ns)
            .sum();
        let others = units::counted((threads.len() - HOLDERS) as u64, "other holders");
        table.row([units::duration(rest), String::new(), others]);
    }
    writeln!(out)?;
    table.write(WIDTH, style, out)
}

/// Says what was seen and not asked for.
pub(crate) fn write_left_out(classes: &[LeftOut], out: &mut impl Write) -> io::Result<()> {
    if classes.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = classes
        .iter()
        .map(|sum| format!("{} {}", sum.class, units::duration(sum.total_ns)))
        .collect();
    writeln!(out, "\nno contention, see --class: {}", parts.join(", "))
}
