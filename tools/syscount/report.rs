//! Reports of an interval.

use std::cmp::Reverse;
use std::io::Write;

use anyhow::{Context, Result};
use budget::cost::Cost;
use profile::escape::terminal;
use profile::losses::Losses;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::units;
use serde_json::{Map, Value, json};
use session::next;

use crate::syscount::args::{Args, Group};
use crate::syscount::harvest::Row;
use crate::syscount::names;

/// One report's worth.
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) rows: Vec<Row>,
    /// Since the start of the run.
    pub(crate) under_way_at_start: u64,
    /// Since the start of the run.
    pub(crate) losses: Losses,
    /// Since the start of the run.
    pub(crate) cost: Cost,
}

/// Calls that take less on average do so on a CPU, ns.
const SHORT_NS: u64 = 20_000;

/// Writes one interval, and in JSON what the run has cost so far.
pub(crate) fn write(args: &Args, mut interval: Interval, out: &mut impl Write) -> Result<()> {
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
        write_human(args, &interval, out)
    };
    written
        .and_then(|()| Ok(out.flush()?))
        .context("write to stdout")
}

fn write_human(args: &Args, interval: &Interval, out: &mut impl Write) -> Result<()> {
    let is_wait = |row: &&Row| !args.only_failures() && names::is_wait(row.call);
    let (waits, work): (Vec<&Row>, Vec<&Row>) = interval.rows.iter().partition(is_wait);
    let calls: u64 = interval.rows.iter().map(|row| row.returned.count()).sum();
    let failed: u64 = interval.rows.iter().map(Row::failed).sum();
    let time_ns: u64 = work.iter().map(|row| row.time_ns).sum();
    let waited_ns: u64 = waits.iter().map(|row| row.time_ns).sum();
    let open: u64 = interval.rows.iter().map(|row| row.open).sum();
    let (time, waited) = (units::duration(time_ns), units::duration(waited_ns));
    if args.only_failures() {
        let calls = units::counted(calls, "calls");
        writeln!(out, "{calls} failed, after {time}")?;
    } else {
        let calls = units::counted(calls, "calls returned");
        let (open, failed) = (units::count(open), units::count(failed));
        writeln!(
            out,
            "{calls}, {open} open: {time} of work, {waited} of waiting; {failed} failed"
        )?;
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
    // Less than a hundredth of one CPU is nobody's trouble.
    let least_ns = (interval.end_ns - interval.start_ns) / 100;
    let is_trouble = |row: &&&Row| row.id != 0 && row.time_ns > least_ns;
    if let Some(row) = work.first().filter(is_trouble) {
        let flag = if args.by_thread { 't' } else { 'p' };
        let tool = match row.returned.mean() {
            1..SHORT_NS => "profile",
            _ => "offcputime",
        };
        let call = names::call(row.call);
        let command = format!("{tool} -{flag} {} 10", row.id);
        writeln!(
            out,
            "\n{}",
            next::line(&command, &format!("what {call} does"))
        )?;
    }
    Ok(writeln!(out)?)
}

fn write_table(args: &Args, rows: &[&Row], style: Style, out: &mut impl Write) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut columns = vec![
        Column::right("TIME", 8),
        Column::right("CALLS", 9),
        Column::right("P99", 8),
        Column::right("OPEN", 4),
        Column::left("CALL", 16),
    ];
    if !args.by_call {
        columns.push(Column::left("BY", 20));
    }
    columns.push(Column::left("ERRORS", 0));
    let mut table = Table::new(columns);
    for row in rows.iter().take(args.top) {
        let mut cells = vec![
            units::duration(row.time_ns),
            units::count(row.returned.count()),
            match row.returned.count() {
                0 => "-".into(),
                _ => units::duration(row.returned.percentile(99.0)),
            },
            match row.open {
                0 => String::new(),
                open => units::count(open),
            },
            call(row),
        ];
        if !args.by_call {
            let comm = terminal(&row.comm);
            cells.push(match row.id {
                0 => comm.into_owned(),
                id => format!("{comm} {id}"),
            });
        }
        cells.push(errors(row));
        table.row(cells);
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
    Ok(table.write(usize::MAX, style, out)?)
}

/// `read`, `read/32`.
fn call(row: &Row) -> String {
    let width = if names::is_compat(row.call) {
        "/32"
    } else {
        ""
    };
    format!("{}{width}", names::call(row.call))
}

/// `EAGAIN 12, ENOENT 3, interrupted 1`
fn errors(row: &Row) -> String {
    let mut errors: Vec<(u32, u64)> = row.errors.clone().into_iter().collect();
    errors.sort_by_key(|(_, count)| Reverse(*count));
    let errors = errors.into_iter();
    let errors = errors.map(|(error, count)| (names::error(error), count));
    let interrupted = (row.interrupted > 0).then_some(("interrupted".into(), row.interrupted));
    let all = errors.chain(interrupted);
    let told = all.map(|(name, count)| format!("{name} {}", units::count(count)));
    told.collect::<Vec<_>>().join(", ")
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn row(comm: &str, id: u32, call: libc::c_long, latencies: &[u64]) -> Row {
        let mut row = Row {
            id,
            comm: comm.into(),
            call: u32::try_from(call).unwrap(),
            ..Row::default()
        };
        for latency in latencies {
            row.returned.record(*latency);
        }
        row.time_ns = row.returned.sum();
        row
    }

    fn written(flags: &[&str]) -> String {
        let mut opens = row("sh", 7, libc::SYS_openat, &[2_000; 3]);
        opens.errors = [(2, 1), (13, 2)].into();
        let mut sleeps = row("redis-server", 9, libc::SYS_futex, &[]);
        (sleeps.time_ns, sleeps.open) = (1_000_000_000, 1);
        let mut naps = row("sh", 7, libc::SYS_nanosleep, &[3_000_000]);
        naps.interrupted = 1;
        let mut interval = Interval {
            start_ns: 0,
            end_ns: 1_000_000_000,
            rows: vec![
                opens,
                naps,
                sleeps,
                row("a\nb", 123, libc::SYS_fsync, &[10_000_000; 4_000]),
            ],
            under_way_at_start: 0,
            losses: Losses::default(),
            cost: Cost::default(),
        };
        let args = Args::parse_from([&["syscount"], flags].concat());
        // The BPF side leaves the others out.
        let is_wanted = |row: &Row| !args.only_failures() || row.failed() > 0;
        interval.rows.retain(is_wanted);
        let mut out = Vec::new();
        write(&args, interval, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn work_comes_first_and_waits_stand_apart() {
        let expected = r"4,004 calls returned, 1 open: 40.0 s of work, 1.00 s of waiting; 3 failed
    TIME     CALLS      P99 OPEN  CALL             BY                   ERRORS
  40.0 s     4,000  10.0 ms       fsync            a\x0ab 123
 6.00 us         3  2.00 us       openat           sh 7                 EACCES 2, ENOENT 1

waits for events, timers, children, threads and peers
    TIME     CALLS      P99 OPEN  CALL             BY                   ERRORS
  1.00 s         0        -    1  futex            redis-server 9
 3.00 ms         1  2.95 ms       nanosleep        sh 7                 interrupted 1

next: offcputime -p 123 10   # what fsync does

";
        assert_eq!(written(&[]), expected);
    }

    #[test]
    fn who_fails_most_comes_first_where_failures_are_asked_for() {
        let text = written(&["-x"]);
        let first = text.lines().nth(2).unwrap();
        assert!(first.ends_with("EACCES 2, ENOENT 1"), "{text}");
        assert!(
            text.starts_with("3 calls failed, after 6.00 us\n"),
            "{text}"
        );
        let text = written(&["-T", "1"]);
        let rest = " 6.00 us         3                1 more row\n";
        assert!(text.contains(rest), "{text}");
    }

    #[test]
    fn json_has_the_names_and_all_rows() {
        let text = written(&["-j", "-T", "1"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        let groups = report["groups"].as_array().unwrap();
        let calls: Vec<&str> = groups
            .iter()
            .filter_map(|row| row["call"].as_str())
            .collect();
        assert_eq!(calls, ["fsync", "futex", "nanosleep", "openat"]);
        assert_eq!(groups[3]["errors"], json!({"ENOENT": 1, "EACCES": 2}));
        assert_eq!(groups[3]["failed"], 3);
        assert_eq!(groups[1]["is_wait"], true);
    }
}
