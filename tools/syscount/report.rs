//! Reports of an interval.

use std::cmp::Reverse;
use std::io::Write;

use anyhow::{Context, Result};
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{self, WIDTH, cut, shorten, write_lines};
use profile::units;
use serde_json::{Map, Value, json};

use crate::syscount::answer::{self, WIDEST_NAME, call, errors, who};
use crate::syscount::args::{Args, Group};
use crate::syscount::harvest::{Row, merge_ended};
use crate::syscount::interval::Interval;
use crate::syscount::names;

/// Titles of the columns of numbers, and their usual widths.
const NUMBERS: [(&str, usize); 4] = [("TIME", 7), ("CALLS", 7), ("P99", 7), ("OPEN", 4)];
/// Usual width of a call's name.
const CALL_WIDTH: usize = 15;
/// Usual width of a process.
const NAME_WIDTH: usize = 17;
/// Width of the last column's title, and the blank before it.
const LEAST_ERRORS: usize = 7;

/// Writes one interval, and in JSON what the run has cost so far. `is_there`: looks whether a process or thread has not ended.
pub(crate) fn write(
    args: &Args,
    mut interval: Interval,
    is_there: fn(u32) -> bool,
    out: &mut impl Write,
) -> Result<()> {
    if args.group() == Group::Process && !args.common.json {
        interval.rows = merge_ended(interval.rows, is_there);
    }
    let rows = &mut interval.rows;
    // The order of equals is the same every time.
    rows.sort_by(|a, b| (&a.comm, a.id, a.call).cmp(&(&b.comm, b.id, b.call)));
    if args.only_failures() {
        rows.sort_by_key(|row| Reverse((row.failed(), row.time_ns)));
    } else {
        rows.sort_by_key(|row| Reverse((row.time_ns, row.returned.count())));
    }
    let written = if args.common.json {
        writeln!(out, "{}", to_json(args, &interval)).map_err(Into::into)
    } else {
        write_human(args, &interval, is_there, out)
    };
    written
        .and_then(|()| Ok(out.flush()?))
        .context("write to stdout")
}

fn write_human(
    args: &Args,
    interval: &Interval,
    is_there: fn(u32) -> bool,
    out: &mut impl Write,
) -> Result<()> {
    let is_wait = |row: &&Row| !args.only_failures() && names::is_wait(row.call);
    let (waits, work): (Vec<&Row>, Vec<&Row>) = interval.rows.iter().partition(is_wait);
    write_lines(answer::lines(args, interval, &work, &waits), out)?;
    if !work.is_empty() {
        writeln!(out)?;
    }
    let style = Style::from(args.common.uses_color());
    write_table(args, &work, style, out)?;
    if !waits.is_empty() {
        writeln!(
            out,
            "\nwaits for events, timers, children, threads and peers"
        )?;
        write_table(args, &waits, style, out)?;
    }
    let window_ns = interval.end_ns.saturating_sub(interval.start_ns);
    let next = answer::next(args, &work, window_ns, is_there);
    Ok(writeln!(out, "\n{next}\n")?)
}

fn write_table(args: &Args, rows: &[&Row], style: Style, out: &mut impl Write) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let shown = &rows[..rows.len().min(args.top)];
    let numbers: Vec<[String; 4]> = shown.iter().map(|row| numbers(row)).collect();
    let (calls, names) = widths(args, shown, &numbers);
    let mut columns = NUMBERS
        .map(|(title, width)| Column::right(title, width))
        .to_vec();
    columns.push(Column::left("CALL", CALL_WIDTH));
    if !args.by_call {
        columns.push(Column::left("BY", NAME_WIDTH));
    }
    columns.push(Column::left("ERRORS", 0));
    let mut table = Table::new(columns);
    for (row, numbers) in shown.iter().zip(numbers) {
        let mut cells = numbers.to_vec();
        cells.push(cut(&call(row), calls));
        if !args.by_call {
            cells.push(who(row, names));
        }
        table.fitted(cells, |room| fit(&errors(row), room));
    }
    let rest = rows.get(args.top..).unwrap_or_default();
    if !rest.is_empty() {
        table.row([
            units::duration(rest.iter().map(|row| row.time_ns).sum()),
            units::count(rest.iter().map(|row| row.returned.count()).sum()),
            String::new(),
            String::new(),
            units::counted(rest.len() as u64, "more rows"),
        ]);
    }
    Ok(table.write(WIDTH, style, out)?)
}

/// Errors, as many as there is room for, the first one without its count where that has none; JSON has them all.
pub(super) fn fit(errors: &str, room: usize) -> String {
    if text::columns(errors) <= room {
        return errors.to_owned();
    }
    let short = room.saturating_sub(2);
    let first = errors.split(", ").next().unwrap_or_default();
    match first.split_once(' ') {
        Some((name, _)) if name.len() > short => cut(name, room),
        Some((name, _)) if first.len() > short => format!("{name} …"),
        _ => format!("{} …", shorten(errors, short)),
    }
}

fn numbers(row: &Row) -> [String; 4] {
    let calls = row.returned.count();
    [
        units::duration(row.time_ns),
        units::count(calls),
        match calls {
            0 => "-".into(),
            _ => units::duration(row.returned.percentile(99.0)),
        },
        match row.open {
            0 => String::new(),
            open => units::count(open),
        },
    ]
}

/// Most columns of a call and of who made it, so that errors find room: the call gives way, down to its usual width, then the name.
fn widths(args: &Args, rows: &[&Row], numbers: &[[String; 4]]) -> (usize, usize) {
    let used = NUMBERS.iter().enumerate().map(|(at, (_, least))| {
        let widest = numbers.iter().map(|cells| cells[at].len()).max();
        widest.unwrap_or(0).max(*least) + 1
    });
    // A second blank stands behind the numbers.
    let room = WIDTH.saturating_sub(used.sum::<usize>() + 1 + LEAST_ERRORS);
    if args.by_call {
        return (room, 0);
    }
    let width = |row: &&Row| text::columns(&who(row, WIDEST_NAME));
    let wanted = rows.iter().map(width).max().unwrap_or(0).max(NAME_WIDTH);
    let calls = room.saturating_sub(wanted + 1).max(CALL_WIDTH);
    (calls, wanted.min(room.saturating_sub(CALL_WIDTH + 1)))
}

/// `{"tool", "version", "start_ns", "end_ns", "groups": [{"pid"|"tid"?, "comm"?, "call", "number", "is_32_bit", "time_ns", "open",
/// "failed", "interrupted", "errors": {…}, "is_wait", histogram…}], "under_way_at_start", "losses": {…}, "cost": {…}}`, the last
/// three since the start of the run.
fn to_json(args: &Args, interval: &Interval) -> Value {
    let groups: Vec<Value> = interval
        .rows
        .iter()
        .map(|row| row_json(args.group(), row))
        .collect();
    json!({
        "tool": "syscount",
        "version": env!("CARGO_PKG_VERSION"),
        "start_ns": interval.start_ns,
        "end_ns": interval.end_ns,
        "groups": groups,
        "under_way_at_start": interval.under_way_at_start,
        "losses": interval.losses.to_json(),
        "cost": interval.cost.to_json(),
    })
}

fn row_json(group: Group, row: &Row) -> Value {
    let name = names::call(row.call);
    let named = |(error, count): (&u32, &u64)| (names::error(*error).into_owned(), json!(count));
    let errors: Map<String, Value> = row.errors.iter().map(named).collect();
    let mut object = row.returned.to_json();
    object["call"] = json!(name);
    object["number"] = names::number(row.call).into();
    object["is_32_bit"] = names::is_compat(row.call).into();
    object["is_wait"] = names::is_wait(row.call).into();
    object["time_ns"] = row.time_ns.into();
    object["open"] = row.open.into();
    object["failed"] = row.failed().into();
    object["interrupted"] = row.interrupted.into();
    object["errors"] = errors.into();
    match group {
        Group::Process => object["pid"] = row.id.into(),
        Group::Thread => object["tid"] = row.id.into(),
        Group::Name | Group::Call => {}
    }
    if group != Group::Call {
        object["comm"] = (*row.comm).into();
    }
    object
}
