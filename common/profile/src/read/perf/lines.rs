//! Lines of `perf script`, one by one.

/// The first line of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// Thread name.
    pub comm: &'a str,
    /// Process; 0 where only the thread is given.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Time, s, on the machine's clock.
    pub time: f64,
    /// What the event counts for, where it is printed.
    pub period: Option<u64>,
    /// `cpu-clock`, `sched:sched_switch`.
    pub name: &'a str,
}

/// Whether a line begins an event.
pub(in crate::read) fn is_header(line: &str) -> bool {
    header(line).is_some()
}

/// Takes `comm [pid/]tid [cpu] time: [period] event:` apart. The name of a thread may have blanks.
pub fn header(line: &str) -> Option<Event<'_>> {
    if line.starts_with([' ', '\t']) && !line.trim_start().contains(": ") {
        return None;
    }
    let (before, time, after) = times(line).find(|(before, ..)| who(before).is_some())?;
    let (comm, pid, tid) = who(before)?;
    let after = after.trim_start();
    let (period, rest) = match after.split_once(char::is_whitespace) {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            (number.parse().ok(), rest.trim_start())
        }
        _ => (None, after),
    };
    let word = rest.split_whitespace().next()?;
    let name = word.strip_suffix(':')?;
    Some(Event {
        comm,
        pid,
        tid,
        time,
        period,
        name,
    })
}

/// Every place that could be the time, with what is before and behind it.
fn times(line: &str) -> impl Iterator<Item = (&str, f64, &str)> {
    line.match_indices(": ")
        .chain(line.strip_suffix(':').map(|head| (head.len(), ":")))
        .filter_map(|(colon, _)| {
            let head = &line[..colon];
            let start = head.rfind(char::is_whitespace)? + 1;
            let word = &head[start..];
            let (seconds, fraction) = word.split_once('.')?;
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let is_time = digits(seconds) && digits(fraction);
            let time = is_time.then(|| word.parse().ok()).flatten()?;
            Some((
                &line[..start - 1],
                time,
                line.get(colon + 1..).unwrap_or_default(),
            ))
        })
}

/// Thread's name and IDs: the last word that is a number, or two with a slash; `[000]` and flags may follow.
fn who(before: &str) -> Option<(&str, u32, u32)> {
    let mut rest = before.trim_end();
    for _ in 0..3 {
        let (head, word) = rest.rsplit_once(char::is_whitespace)?;
        let ids = match word.split_once('/') {
            Some((pid, tid)) => id(pid).zip(id(tid)),
            None => id(word).map(|tid| (0, tid)),
        };
        let comm = head.trim();
        if let Some((pid, tid)) = ids
            && !comm.is_empty()
        {
            return Some((comm, pid, tid));
        }
        rest = head.trim_end();
    }
    None
}

/// perf prints -1 for what is gone.
fn id(word: &str) -> Option<u32> {
    match word {
        "-1" => Some(0),
        _ if word.bytes().all(|byte| byte.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    }
}

/// A line of a stack: address, symbol with offset, module in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackLine<'a> {
    /// Where in the process.
    pub address: u64,
    /// Function, without offset; `[unknown]`.
    pub symbol: &'a str,
    /// What is in the last parentheses; empty where there are none.
    pub module: &'a str,
}

/// Takes a line of a stack apart.
pub fn stack_line(line: &str) -> Option<StackLine<'_>> {
    let (address, rest) = line.trim().split_once(char::is_whitespace)?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim();
    let (symbol, module) = match rest
        .strip_suffix(')')
        .and_then(|rest| rest.rsplit_once(" ("))
    {
        Some((symbol, module)) => (symbol, module),
        None => match rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
        {
            Some(module) => ("[unknown]", module),
            None => (rest, ""),
        },
    };
    let symbol = match symbol.rsplit_once("+0x") {
        Some((name, offset))
            if !name.is_empty() && offset.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            name
        }
        _ => symbol,
    };
    Some(StackLine {
        address,
        symbol: symbol.trim(),
        module,
    })
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
        assert!(header("app;main;f 12").is_none());
    }

    #[test]
    fn lines_of_stacks() {
        // Programs have functions of their own name, and perf names BPF programs so; ours have an offset behind theirs.
        for (text, symbol) in [
            ("10 main+0x12 (/bin/main)", "main"),
            ("10 bpf_prog_1_f+0x2 (bpf_prog_1_f)", "bpf_prog_1_f"),
            ("10 lib.so+0x12+0x0 (/usr/lib/lib.so)", "lib.so+0x12"),
        ] {
            assert_eq!(stack_line(text).unwrap().symbol, symbol);
        }
        let line = stack_line("\t    55d5 std::vec<int> (int)+0x1f (/usr/bin/a b)").unwrap();
        assert_eq!(
            (line.address, line.symbol, line.module),
            (0x55d5, "std::vec<int> (int)", "/usr/bin/a b")
        );
        let line = stack_line("  ffffffff81 [unknown] ([unknown])").unwrap();
        assert_eq!((line.symbol, line.module), ("[unknown]", "[unknown]"));
        assert!(stack_line("no address").is_none());
    }
}
