//! First lines of events in `perf script`.

use super::frame_line::stack_line;

/// The first line of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// Thread name.
    pub comm: &'a str,
    /// Process; 0 where only the thread is given.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Time, s, on the machine's clock, where it is printed.
    pub time: Option<f64>,
    /// What the event counts for, where it is printed.
    pub period: Option<u64>,
    /// `cpu-clock`, `sched:sched_switch`; empty where it is not printed.
    pub name: &'a str,
    /// What is behind the name: a tracepoint's values, or the only frame where no stacks were recorded.
    pub rest: &'a str,
}

/// Whether a line begins an event.
pub(in crate::read) fn is_header(line: &str) -> bool {
    header(line).is_some()
}

/// Takes `comm [pid/]tid [cpu] [time:] [period] [event:]` apart. The name of a thread may have blanks.
pub fn header(line: &str) -> Option<Event<'_>> {
    timed(line)
        .or_else(|| timeless(line))
        .or_else(|| nameless(line))
}

fn timed(line: &str) -> Option<Event<'_>> {
    if line.starts_with([' ', '\t']) && !line.trim_start().contains(": ") {
        return None;
    }
    let (before, time, after) = times(line).find(|(before, ..)| who(before).is_some())?;
    let (comm, pid, tid) = who(before)?;
    let after = after.trim_start();
    let (number, rest) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
    let (period, rest) = match decimal(number) {
        Some(period) => (Some(period), rest),
        None => (None, after),
    };
    let is_frame = is_only_frame(rest);
    let rest = rest.trim_start();
    let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (period, name, rest) = match word.strip_suffix(':') {
        Some(name) if name.starts_with(SIDE_BAND) => return None,
        Some(name) => (period, name, behind),
        // Printed without the event's name; the only frame may follow, whose address may look like a period.
        None if rest.is_empty() => (period, "", ""),
        None if period.is_some() && is_frame => (period, "", rest),
        None if stack_line(after.as_bytes()).is_some() => (None, "", after),
        None => return None,
    };
    Some(Event {
        comm,
        pid,
        tid,
        time: Some(time),
        period,
        name,
        rest: rest.trim(),
    })
}

/// Columns of an address, in which it stands on the right.
const ADDRESS_COLUMNS: usize = 16;

/// Looks whether a frame follows a period. A function's name, which follows an address, does not begin with a digit; one of
/// hexadecimal letters alone is a name where it does not stand in the columns of an address.
fn is_only_frame(rest: &str) -> bool {
    let frame = rest.trim_start();
    let word = frame.split(char::is_whitespace).next().unwrap_or_default();
    // A blank before them was taken away.
    let columns = rest.len() - frame.len() + word.len() + 1;
    let is_address = word.starts_with(|c: char| c.is_ascii_digit()) || columns >= ADDRESS_COLUMNS;
    is_address && stack_line(frame.as_bytes()).is_some()
}

/// Longest name and numbers of a thread: a file of another kind may have lines without end.
const LONGEST_HEAD: usize = 128;
/// Columns of a period and the blank before it.
const PERIOD_COLUMNS: usize = 11;

/// A header as `perf script -F comm,tid,event,ip,sym` prints it.
fn timeless(line: &str) -> Option<Event<'_>> {
    let words = words_with_colons(line);
    let mut words = words.take_while(|(before, ..)| before.len() <= LONGEST_HEAD);
    words.find_map(|(before, name, rest)| {
        let before = before.trim_end();
        let weighed = period(before).and_then(|(who, period)| Some((ids(who)?, Some(period))));
        let ((comm, pid, tid), period) = weighed.or_else(|| Some((ids(before)?, None)))?;
        let rest = rest.trim();
        let is_event = rest.is_empty()
            || name.contains(':')
            || stack_line(rest.as_bytes()).is_some_and(|frame| !frame.module.is_empty());
        let is_name = !name.is_empty() && seconds(name).is_none();
        (is_event && is_name).then_some(Event {
            comm,
            pid,
            tid,
            time: None,
            period,
            name,
            rest,
        })
    })
}

/// A header as `perf script -F comm,tid,ip,sym` prints it, with a blank at its end, and a period before that if it is asked for.
fn nameless(line: &str) -> Option<Event<'_>> {
    let before = line.trim_end_matches(['\r', '\n']).strip_suffix(' ')?;
    let before = Some(before).filter(|_| line.len() <= LONGEST_HEAD)?;
    let weighed = period(before).and_then(|(who, period)| Some((ids(who)?, Some(period))));
    let ((comm, pid, tid), period) = weighed.or_else(|| Some((ids(before)?, None)))?;
    Some(Event {
        comm,
        pid,
        tid,
        time: None,
        period,
        name: "",
        rest: "",
    })
}

/// Beginnings of the names of records of mappings, names and ends of threads: `perf script --show-task-events`.
const SIDE_BAND: &str = "PERF_RECORD_";

/// Looks whether a line is such a record, which is no event.
pub(super) fn is_side_band(line: &str) -> bool {
    let mut found = times(line).filter(|(before, ..)| who(before).is_some());
    line.contains(SIDE_BAND) && found.any(|(.., after)| after.trim_start().starts_with(SIDE_BAND))
}

/// A period at the end, and what is before it: in its columns, or behind `pid/tid`; other numbers may be a thread's.
fn period(before: &str) -> Option<(&str, u64)> {
    let (head, word) = before.rsplit_once(char::is_whitespace)?;
    let columns = before.len() - head.trim_end().len();
    let is_behind_both = || ids(head).is_some_and(|_| head.contains('/'));
    let period = decimal(word)?;
    (columns >= PERIOD_COLUMNS || is_behind_both()).then_some((head, period))
}

/// Every word that ends with a colon, without it, with what is before and behind it.
fn words_with_colons(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let is_end = |colon: &usize| matches!(line.as_bytes().get(colon + 1), None | Some(b' '));
    memchr::memchr_iter(b':', line.as_bytes())
        .filter(is_end)
        .filter_map(|colon| {
            let (before, word) = line[..colon].rsplit_once(char::is_whitespace)?;
            Some((before, word, &line[colon + 1..]))
        })
}

/// Every place that could be the time, with what is before and behind it.
fn times(line: &str) -> impl Iterator<Item = (&str, f64, &str)> {
    words_with_colons(line)
        .filter_map(|(before, word, after)| Some((before, seconds(word)?, after)))
}

/// A time, s: digits with a point between them.
fn seconds(word: &str) -> Option<f64> {
    let (seconds, fraction) = word.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_time = digits(seconds) && digits(fraction);
    is_time.then(|| word.parse().ok()).flatten()
}

/// Thread's name and IDs: the last word that is a number, or two with a slash; `[000]` and flags may follow.
fn who(before: &str) -> Option<(&str, u32, u32)> {
    let mut rest = before.trim_end();
    for _ in 0..3 {
        if let Some(found) = named_ids(rest) {
            return Some(found);
        }
        rest = rest.rsplit_once(char::is_whitespace)?.0.trim_end();
    }
    None
}

/// Thread's name and IDs, behind which only a CPU may stand.
fn ids(before: &str) -> Option<(&str, u32, u32)> {
    let before = before.trim_end();
    let without_cpu = match before.rsplit_once(char::is_whitespace) {
        Some((who, cpu)) if cpu.starts_with('[') && cpu.ends_with(']') => who.trim_end(),
        _ => before,
    };
    named_ids(without_cpu)
}

/// A name, and behind it `tid` or `pid/tid`.
fn named_ids(text: &str) -> Option<(&str, u32, u32)> {
    let (comm, word) = text.rsplit_once(char::is_whitespace)?;
    let (pid, tid) = match word.split_once('/') {
        Some((pid, tid)) => id(pid).zip(id(tid)),
        None => id(word).map(|tid| (0, tid)),
    }?;
    let comm = comm.trim();
    (!comm.is_empty()).then_some((comm, pid, tid))
}

/// perf prints -1 for what is gone.
fn id(word: &str) -> Option<u32> {
    match word {
        "-1" => Some(0),
        _ => decimal(word).and_then(|id| id.try_into().ok()),
    }
}

fn decimal(word: &str) -> Option<u64> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| word.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_many_shapes() {
        for (line, comm, pid, tid, period, name) in [
            (
                "app  123/124 [001] 12.345678:    10101010 cpu-clock: ",
                "app",
                123,
                124,
                Some(10_101_010),
                "cpu-clock",
            ),
            (
                "pool 7 99 [000] 1.5: cpu-clock:u:",
                "pool 7",
                0,
                99,
                None,
                "cpu-clock:u",
            ),
            (
                "a: 1.5: b 7 3.25: 1 cycles:",
                "a: 1.5: b",
                0,
                7,
                Some(1),
                "cycles",
            ),
            (
                ":-1 -1/-1 [000] 3.0: sched:sched_switch: prev_comm=x",
                ":-1",
                0,
                0,
                None,
                "sched:sched_switch",
            ),
        ] {
            let event = header(line).unwrap();
            assert_eq!(
                (event.comm, event.pid, event.tid),
                (comm, pid, tid),
                "{line}"
            );
            assert_eq!((event.period, event.name), (period, name), "{line}");
        }
        // White space of several bytes.
        let hostile = header("x\u{3000}y: 7/7 [000] 1.5: 1 cycles: ").expect("an event");
        assert_eq!((hostile.comm, hostile.name), ("x\u{3000}y:", "cycles"));
        assert!(header("x\u{a0}y: z\u{3000}1.5: ").is_none());
        assert!(header("app;main;f 12").is_none());
        assert!(header("app 7 main: 12").is_none(), "a folded line");
    }

    #[test]
    fn headers_without_times() {
        for (line, comm, ids, period, name) in [
            ("app 12 cpu-clock:u: ", "app", (0, 12), None, "cpu-clock:u"),
            (
                "  my app  12/13 [001]  250000 cpu-clock:",
                "my app",
                (12, 13),
                Some(250_000),
                "cpu-clock",
            ),
            (
                "app      12          1 page-faults:  401136 main+0x12 (/bin/app)",
                "app",
                (0, 12),
                Some(1),
                "page-faults",
            ),
            (
                "         pool 7      12 cpu-clock:u:",
                "pool 7",
                (0, 12),
                None,
                "cpu-clock:u",
            ),
            (
                "a: 7/7 [000] sched:sched_switch: prev_prio=120",
                "a:",
                (7, 7),
                None,
                "sched:sched_switch",
            ),
        ] {
            let event = header(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((event.comm, event.name), (comm, name), "{line}");
            assert_eq!((event.pid, event.tid), ids, "{line}");
            assert_eq!((event.time, event.period), (None, period), "{line}");
        }
    }

    #[test]
    fn headers_without_events() {
        for (line, comm, ids, time, period, rest) in [
            (
                "sh 12/13  1627.711322: ",
                "sh",
                (12, 13),
                Some(1627.711322),
                None,
                "",
            ),
            (
                "sh 13 [001]  1.5:     250000 ",
                "sh",
                (0, 13),
                Some(1.5),
                Some(250_000),
                "",
            ),
            (
                "sh 13 1.5:      401136 f",
                "sh",
                (0, 13),
                Some(1.5),
                None,
                "401136 f",
            ),
            ("sh 13 ", "sh", (0, 13), None, None, ""),
            ("  my sh 12/13 [001] ", "my sh", (12, 13), None, None, ""),
        ] {
            let event = header(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((event.comm, event.pid, event.tid), (comm, ids.0, ids.1));
            assert_eq!((event.time, event.period), (time, period), "{line}");
            assert_eq!((event.name, event.rest), ("", rest), "{line}");
        }
        for line in [
            "sh 13",
            "a;b 12/13",
            "sh 13 1.5: what happened",
            "a 0 0.0: PERF_RECORD_COMM: a:7/7",
        ] {
            assert_eq!(header(line), None, "{line}");
        }
    }

    #[test]
    fn a_number_before_an_address_is_a_period() {
        let both = Some(250_000);
        for (after, period, rest) in [
            ("    250000           401136 f (/a)", both, "401136 f (/a)"),
            ("250000 401136 f (/a)", both, "401136 f (/a)"),
            ("    250000              bad f (/a)", both, "bad f (/a)"),
            ("250000 ffffffff8134d5ed f", both, "ffffffff8134d5ed f"),
            // The function is called so.
            ("          250000 bad f (/a)", None, "250000 bad f (/a)"),
            ("          250000 f (/a)", None, "250000 f (/a)"),
            (
                "          250000 [unknown] (/a)",
                None,
                "250000 [unknown] (/a)",
            ),
        ] {
            let line = format!("sh 12/13 1.5: {after}");
            let event = header(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((event.period, event.rest), (period, rest), "{line}");
        }
    }
}
