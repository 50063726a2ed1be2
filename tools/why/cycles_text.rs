//! Work cycles for people.

use std::io::{self, Write};

use profile::escape::terminal;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{WIDTH, columns, comm, cut, cut_start, sentence, write_lines};
use profile::units;

use host::clock::wall_clock;

use crate::offcputime::cycles::MARKED;
use crate::why::cycles::{Cycles, Exemplar, Home, Part};
use crate::why::endpoints;
use crate::why::kinds::{At, ON_CPU};
use crate::why::sentences::IS_CULPRIT;
use crate::why::table::words_of;
use crate::why::words::{fit, function, processes};

/// Lines of the comparison, and the time from which one is shown: one of so many of the slowest's.
const TOP: usize = 8;
const LEAST: u64 = 100;
/// Waits of an exemplar.
const TOP_WAITS: usize = 3;
/// Other homes.
const TOP_HOMES: usize = 3;
/// Widest name of a function that tells cycles.
const NAME: usize = 60;

/// Number of pieces of work and how long they took, and what the slowest did meanwhile.
pub(super) fn write(cycles: &Cycles, style: Style, out: &mut impl Write) -> io::Result<()> {
    let Some((first, others)) = cycles.homes.split_first() else {
        let none = match &cycles.marked {
            Some(_) => "no work cycles: no thread was seen to go",
            None => "no work cycles: no thread was seen to come back to where it waits for work",
        };
        let mut words = words_in(none);
        words.extend(cycles.marked.iter().flat_map(|place| marked(place)));
        words.extend(at_the_edges(cycles));
        writeln!(out, "{}", sentence(&words, "", WIDTH).join("\n"))?;
        return write_part(cycles, out);
    };
    write_lines(of_home(cycles, first), out)?;
    write_part(cycles, out)?;
    write_lines(compared(cycles), out)?;
    table(cycles).write(WIDTH, style, out)?;
    writeln!(out, "the longest of all:")?;
    for one in &cycles.exemplars {
        for line in exemplar(one) {
            writeln!(out, "  {line}")?;
        }
    }
    for home in others.iter().take(TOP_HOMES) {
        write_lines(beside(cycles, home), out)?;
    }
    let more = others.len().saturating_sub(TOP_HOMES);
    if more > 0 {
        writeln!(
            out,
            "beside: {} (-j has all)",
            units::counted(more as u64, "more homes")
        )?;
    }
    Ok(())
}

/// Cycles that are not whole.
fn at_the_edges(cycles: &Cycles) -> Option<String> {
    let cut = units::count(cycles.cut);
    (cycles.cut > 0).then(|| format!("(at the edges {cut} more)"))
}

fn write_part(cycles: &Cycles, out: &mut impl Write) -> io::Result<()> {
    if cycles.are_in_windows {
        let part = "only those that lie within one sampling window count: of long ones too few";
        writeln!(out, "{}", sentence(&words_in(part), "", WIDTH).join("\n"))?;
    }
    Ok(())
}

fn words_in(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A home in a sentence: `epoll in ngx_process_events`.
fn place(home: &Home) -> String {
    match &home.place {
        Some(place) => format!("{} in {}", home.kind, function(place)),
        None => home.kind.to_owned(),
    }
}

/// `from epoll in main`; of functions that tell cycles, `from handle to its return` in parts.
fn whence(home: &Home) -> Vec<String> {
    match &home.place {
        Some(place) if home.kind == MARKED => marked(place),
        _ => vec![format!("from {}", place(home))],
    }
}

fn marked(place: &str) -> Vec<String> {
    let place = terminal(place);
    let words = place.split(' ').map(|word| cut(word, NAME));
    ["from".to_owned()].into_iter().chain(words).collect()
}

/// `1,001 work cycles of nginx 712 from epoll in main, 77.0/s`
fn of_home(cycles: &Cycles, home: &Home) -> Vec<String> {
    let lengths = &home.lengths;
    let rate = units::three_digits(cycles.rate(home));
    let who = processes(&home.program, home.processes);
    let mut parts = vec![
        format!("{} of", units::counted(lengths.count(), "work cycles")),
        who,
    ];
    parts.extend(whence(home));
    if home.kind != MARKED {
        parts.push("back to it".into());
    }
    end_clause(&mut parts);
    parts.push(format!("{rate}/s:"));
    parts.extend(figures(home));
    parts.extend(at_the_edges(cycles));
    sentence(&parts, "", WIDTH)
}

fn end_clause(parts: &mut [String]) {
    if let Some(last) = parts.last_mut() {
        last.push(',');
    }
}

fn figures(home: &Home) -> [String; 3] {
    let lengths = &home.lengths;
    [
        format!("p50 {},", units::duration(lengths.percentile(50.0))),
        format!("p99 {},", units::duration(lengths.percentile(99.0))),
        format!("max {}", units::duration(lengths.max())),
    ]
}

fn beside(cycles: &Cycles, home: &Home) -> Vec<String> {
    let lengths = &home.lengths;
    let mut parts = vec![
        format!("beside: {} of", units::counted(lengths.count(), "cycles")),
        processes(&home.program, home.processes),
    ];
    parts.extend(whence(home));
    end_clause(&mut parts);
    match lengths.count() {
        1 => parts.push(units::duration(lengths.max())),
        _ => {
            parts.push(format!("{}/s:", units::three_digits(cycles.rate(home))));
            parts.extend(figures(home));
        }
    }
    sentence(&parts, "", WIDTH)
}

/// `the slowest 1% (10) took 42.0 ms each, the others 1.31 ms:`
fn compared(cycles: &Cycles) -> Vec<String> {
    let (slow, rest) = (cycles.slow, cycles.rest);
    let count = units::count(slow.count.round() as u64);
    let parts = [
        format!("the slowest {}% ({count})", cycles.percent),
        format!("took {} each,", units::duration(slow.mean_ns(slow.ns))),
        format!("the others {}:", units::duration(rest.mean_ns(rest.ns))),
    ];
    sentence(&parts, "", WIDTH)
}

fn table(cycles: &Cycles) -> Table<'static> {
    let mut table = Table::new([
        Column::right("SLOWEST", 8),
        Column::right("OTHERS", 8),
        Column::left("WHERE THE TIME OF ONE CYCLE WENT", 0),
    ]);
    let (slow, rest) = (cycles.slow, cycles.rest);
    let least = |ns: u64, whole: u64| ns > whole / LEAST;
    let is_function = |part: &Part| part.at.kind == ON_CPU && part.at.place.is_some();
    let is_divided = cycles.parts.iter().any(is_function);
    let mut more = [0.0, 0.0, 0.0];
    for (number, part) in cycles.parts.iter().enumerate() {
        let slow_ns = slow.mean_ns(part.slow_ns);
        let rest_ns = rest.mean_ns(part.rest_ns);
        let is_large =
            least(slow_ns, slow.mean_ns(slow.ns)) || least(rest_ns, rest.mean_ns(rest.ns));
        if number >= TOP || !is_large {
            more[0] += part.slow_ns;
            more[1] += part.rest_ns;
            more[2] += 1.0;
            continue;
        }
        let words = match part.at.place {
            None if is_divided && part.at.kind == ON_CPU => "on CPU     elsewhere".to_owned(),
            _ => words(&part.at),
        };
        let times = [slow_ns, rest_ns].map(units::duration);
        table.fitted(times, move |room| fit(&words, room));
        if let Some([before, name, after]) = endpoint(part) {
            let none = [String::new(), String::new()];
            table.fitted(none, move |room| {
                let room = room.saturating_sub(columns(&before) + columns(&after));
                format!("{before}{}{after}", cut_start(&name, room))
            });
        }
    }
    let [slow_ns, rest_ns, lines] = more;
    if lines > 0.0 {
        let times = [slow.mean_ns(slow_ns), rest.mean_ns(rest_ns)].map(units::duration);
        let words = format!(
            "{} (-j has all)",
            units::counted(lines as u64, "more lines")
        );
        table.fitted(times, move |room| cut(&words, room));
    }
    table
}

/// `  94% for 10.0.0.7:80, others 12%` in parts: the file or connection that the slowest waited for, and its share of both times.
fn endpoint(part: &Part) -> Option<[String; 3]> {
    let (endpoint, [slow, rest]) = part.shares().filter(|(_, [slow, _])| *slow >= IS_CULPRIT)?;
    let (before, name) = endpoint.parts();
    let others = match part.rest_ns > 0.0 {
        true => format!(", others {:.0}%", 100.0 * rest),
        false => String::new(),
    };
    let before = format!("  {:.0}% for {before}", 100.0 * slow);
    Some([before, terminal(&name).into(), others])
}

/// Words for a line of the table.
fn words(at: &At) -> String {
    let lock = at.lock.as_ref().map(|lock| format!(", for {lock}"));
    words_of(at.kind, at.place.as_deref()) + &lock.unwrap_or_default()
}

/// The same in a sentence; a lock says more than the function that waits for it.
fn plain(at: &At) -> String {
    let words = words_of(at.kind, None);
    match (&at.lock, &at.place) {
        (Some(lock), _) => format!("{words} for {}", function(lock)),
        (None, Some(place)) => format!("{words} {}", function(place)),
        (None, None) => words,
    }
}

/// `12:00:01.123  204 ms, server 1234: futex take_the_lock 198 ms, on CPU 4.0 ms`
pub(super) fn words_of_exemplar(one: &Exemplar) -> String {
    let parts = parts(one);
    let words = parts.iter().flat_map(|part| part.split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

fn exemplar(one: &Exemplar) -> Vec<String> {
    sentence(&parts(one), "", WIDTH - 2)
}

/// The same in parts that stay on one line.
fn parts(one: &Exemplar) -> Vec<String> {
    let (name, tid) = &one.thread;
    let mut parts = vec![format!(
        "{} {:>8} {} {tid}:",
        wall_clock(one.begin_ns),
        units::duration(one.ns),
        comm(name)
    )];
    let large = one.parts.iter().take(TOP_WAITS);
    let mut large = large.peekable();
    while let Some((at, ns, endpoint)) = large.next() {
        parts.push(plain(at));
        parts.extend(
            endpoint
                .iter()
                .map(|one| format!("({})", endpoints::name(one))),
        );
        let comma = if large.peek().is_some() { "," } else { "" };
        parts.push(units::duration(*ns) + comma);
    }
    parts
}
