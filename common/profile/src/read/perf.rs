//! Text of `perf script`: events with their stacks, and with their times.

use std::io::BufRead;

use super::{DEEPEST, Lines, ReadError, ReadOptions};
use crate::frame::FrameKind;
use crate::recording::{FrameKey, Header, Recording, RowKey, StackId, TaskKey, Value};

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
pub(super) fn is_header(line: &str) -> bool {
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
            // `module+0x12` of this project has no symbol before it.
            if module.rsplit('/').next() == Some(name) {
                symbol
            } else {
                name
            }
        }
        _ => symbol,
    };
    Some(StackLine {
        address,
        symbol: symbol.trim(),
        module,
    })
}

/// Calls `each` with the time (s, of the machine's clock) and the weight of every event; for heat maps.
///
/// # Errors
///
/// When the text cannot be read.
pub fn times_of(
    input: &mut impl BufRead,
    mut each: impl FnMut(f64, &Event<'_>),
) -> Result<(), ReadError> {
    let mut lines = Lines::new(input);
    while lines.advance()? {
        let text = String::from_utf8_lossy(&lines.line);
        if !text.starts_with(['\t', '#'])
            && let Some(event) = header(&text)
        {
            each(event.time, &event);
        }
    }
    Ok(())
}

/// Reads all events into one recording.
pub(super) fn read(
    input: &mut impl BufRead,
    options: &ReadOptions,
) -> Result<Recording, ReadError> {
    let mut reader = Reader::new(options);
    let mut lines = Lines::new(input);
    while lines.advance()? {
        let text = String::from_utf8_lossy(&lines.line);
        let result = reader.line(&text);
        result.map_err(|what| lines.error(what))?;
    }
    Ok(reader.end())
}

struct Reader<'a> {
    options: &'a ReadOptions,
    recording: Recording,
    /// Thread and weight of the event that is being read.
    event: Option<(TaskKey, u64)>,
    /// Leaf → root, as printed.
    stack: Vec<FrameKey>,
    event_name: String,
    other_events: u64,
    weighs: bool,
    times: Option<(f64, f64)>,
}

impl<'a> Reader<'a> {
    fn new(options: &'a ReadOptions) -> Self {
        Self {
            options,
            recording: Recording::new(Header {
                values: vec![Value {
                    name: "samples".into(),
                    unit: "count".into(),
                }],
                has_counts: true,
                ..Header::default()
            }),
            event: None,
            stack: Vec::new(),
            event_name: String::new(),
            other_events: 0,
            weighs: false,
            times: None,
        }
    }

    fn line(&mut self, text: &str) -> Result<(), String> {
        if text.trim().is_empty() {
            self.finish();
            return Ok(());
        }
        if let Some(remark) = text.strip_prefix('#') {
            self.remark(remark.trim());
            return Ok(());
        }
        if self.event.is_some()
            && text.starts_with([' ', '\t'])
            && let Some(line) = stack_line(text)
        {
            if self.stack.len() >= DEEPEST {
                return Err("more than 16,384 frames".into());
            }
            let frame = self.frame(&line);
            self.stack.push(frame);
            return Ok(());
        }
        let Some(event) = header(text) else {
            return Err(format!(
                "neither an event nor a line of its stack: {}",
                crate::escape::terminal(&text.chars().take(60).collect::<String>())
            ));
        };
        self.finish();
        self.begin(&event);
        Ok(())
    }

    /// What this project writes about the whole file.
    fn remark(&mut self, remark: &str) {
        let header = &mut self.recording.header;
        if let Some(value) = remark.strip_prefix("usekit: value ") {
            if let Some((name, unit)) = value.rsplit_once(" in ") {
                header.values[0] = Value {
                    name: name.into(),
                    unit: unit.into(),
                };
                self.weighs = true;
            }
        } else if let Some(tool) = remark.strip_prefix("usekit: tool ") {
            header.tool = tool.into();
        } else if let Some(ns) = remark.strip_prefix("usekit: duration_ns ") {
            header.duration_ns = ns.parse().unwrap_or(0);
        } else if let Some(comment) = remark.strip_prefix("usekit: comment ") {
            header.comments.push(comment.into());
        }
    }

    fn begin(&mut self, event: &Event<'_>) {
        if self.event_name.is_empty() {
            event.name.clone_into(&mut self.event_name);
        } else if self.event_name != event.name {
            // Events of different kinds cannot be added up.
            self.other_events += 1;
            return;
        }
        let first = self.times.map_or(event.time, |(first, _)| first);
        self.times = Some((
            first,
            self.times
                .map_or(event.time, |(_, last)| last.max(event.time)),
        ));
        let offset = event.time - first;
        if self.options.from.is_some_and(|from| offset < from)
            || self.options.to.is_some_and(|to| offset >= to)
        {
            return;
        }
        let task = TaskKey {
            comm: self.recording.names.id(event.comm),
            pid: event.pid,
            tid: event.tid,
        };
        let weight = if self.weighs {
            event.period.unwrap_or(1)
        } else {
            1
        };
        self.event = Some((task, weight));
    }

    fn frame(&mut self, line: &StackLine<'_>) -> FrameKey {
        let names = &mut self.recording.names;
        let inlined = line.module == "inlined";
        // perf prints the frame that it was inlined into next, with the module.
        let module = if inlined { "" } else { line.module };
        let known = !matches!(module, "" | "[unknown]");
        let base = module.rsplit('/').next().unwrap_or_default();
        let name = match line.symbol {
            "[unknown]" if known => names.id(&format!("[{}]", base.trim_matches(['[', ']']))),
            symbol => names.id(symbol),
        };
        FrameKey {
            module: if known {
                names.id(module)
            } else {
                crate::recording::NameId::NONE
            },
            address: if inlined { 0 } else { line.address },
            kind: kind(module, line.address),
            inlined,
            ..FrameKey::named(name)
        }
    }

    fn finish(&mut self) {
        let mut frames = std::mem::take(&mut self.stack);
        // The function that others were inlined into is printed behind them, and has the module.
        for index in (1..frames.len()).rev() {
            let (kind, module) = (frames[index].kind, frames[index].module);
            if frames[index - 1].inlined {
                (frames[index - 1].kind, frames[index - 1].module) = (kind, module);
            }
        }
        let Some((task, weight)) = self.event.take() else {
            return;
        };
        let stack = frames.iter().rev().fold(0, |stack: StackId, frame| {
            self.recording.push(stack, *frame)
        });
        let key = RowKey {
            task,
            stack,
            end: None,
            reason: crate::recording::NameId::NONE,
            idle: false,
            waker: None,
            labels: 0,
        };
        self.recording.add(&key, 1, &[weight]);
        self.stack = frames;
        self.stack.clear();
    }

    fn end(mut self) -> Recording {
        self.finish();
        let header = &mut self.recording.header;
        if let Some((first, last)) = self.times
            && header.duration_ns == 0
        {
            header.duration_ns = ((last - first) * 1e9) as u64;
        }
        if !self.weighs && !self.event_name.is_empty() {
            header.tool = format!("perf {}", self.event_name);
        }
        if self.other_events > 0 {
            header.comments.push(format!(
                "{} of other kinds than {} left out",
                crate::units::counted(self.other_events, "events"),
                self.event_name
            ));
        }
        self.recording
    }
}

fn kind(module: &str, address: u64) -> FrameKind {
    let is_upper_half = address >> 63 == 1;
    match module {
        "[vdso]" | "[vsyscall]" | "[heap]" | "[stack]" => FrameKind::User,
        "//anon" | "[anon]" | "anon" => FrameKind::Jit,
        _ if module.starts_with("[kernel") || module.starts_with("[guest.kernel") => {
            FrameKind::Kernel
        }
        _ if module.ends_with("/vmlinux") || module.contains(".ko") => FrameKind::Kernel,
        _ if is_upper_half && !module.starts_with('/') => FrameKind::Kernel,
        _ if module.contains("/perf-") && module.ends_with(".map") => FrameKind::Jit,
        _ if module.starts_with("[JIT]") => FrameKind::Jit,
        _ => FrameKind::User,
    }
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
