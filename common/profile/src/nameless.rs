//! Code that a runtime has compiled and that nobody has named, and how to have it named.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::frame::{Frame, FrameKind};
use crate::model::{Profile, Sample, StackEnd};
use crate::rank::Rank;
use crate::text::round_percent;

/// Share of a process's time in such code from which it is said, and share of all time that the process has.
const LARGE: f64 = 0.2;

/// Runtimes: the beginning of a file of theirs, what has them name their functions, and what makes stacks whole that end there.
/// `PID` stands for the process.
const RUNTIMES: [(&str, &str, &str); 4] = [
    (
        "libjvm.so",
        "'jcmd PID Compiler.perfmap' names it (JDK 17 or newer)",
        "-XX:+PreserveFramePointer makes stacks whole",
    ),
    ("node", "node's option --perf-basic-prof names it", ""),
    ("libcoreclr.so", "DOTNET_PerfMapEnabled=1 names it", ""),
    ("beam.smp", "erl's option +JPperf true names it", ""),
];

/// Time of a process.
#[derive(Default)]
struct Process<'a> {
    all: u64,
    /// Time in functions without names, or in what they call.
    nameless: u64,
    /// On stacks that end in one.
    cut: u64,
    runtime: Option<&'a (&'static str, &'static str, &'static str)>,
}

impl<'a> Process<'a> {
    fn add(&mut self, sample: &'a Sample) {
        let weight = sample.total();
        self.all = self.all.saturating_add(weight);
        if sample.user.iter().any(is_nameless) {
            self.nameless = self.nameless.saturating_add(weight);
            let is_cut = sample.user_end == Some(StackEnd::NoTable);
            // A frame for the kind of time is in front of an account's stacks.
            let is_code = |frame: &&Frame| frame.kind != FrameKind::User || frame.module.is_some();
            let root = sample.user.iter().find(is_code);
            if is_cut && root.is_some_and(is_nameless) {
                self.cut = self.cut.saturating_add(weight);
            }
        }
        let runtime_of = |frame: &Frame| {
            let file = frame.file_name();
            RUNTIMES.iter().find(|(begin, ..)| file.starts_with(begin))
        };
        self.runtime = self
            .runtime
            .or_else(|| sample.user.iter().find_map(runtime_of));
    }

    fn describe(&self, pid: u32) -> String {
        let share = round_percent(self.nameless, self.all);
        let what = format!("{share} of process {pid} is in compiled code without names");
        let Some((_, names, frames)) = self.runtime else {
            return format!("{what}: its runtime may write /tmp/perf-{pid}.map");
        };
        let names = names.replace("PID", &pid.to_string());
        let is_cut = self.cut > self.nameless / 10 && !frames.is_empty();
        let frames = if is_cut {
            format!("; {frames}")
        } else {
            String::new()
        };
        format!("{what}: {names}{frames}")
    }
}

/// A remark on the process with the most time in such code; `None`: there is little.
pub fn describe(profile: &Profile) -> Option<String> {
    let mut processes: HashMap<u32, Process<'_>> = HashMap::new();
    for sample in profile.samples.iter().filter(|sample| !sample.idle) {
        processes.entry(sample.task.tgid).or_default().add(sample);
    }
    let all: u64 = processes.values().map(|process| process.all).sum();
    let is_large = |part: u64, whole: u64| part > 0 && part as f64 >= LARGE * whole as f64;
    let mut large: Vec<_> = processes
        .into_iter()
        .filter(|(_, process)| {
            is_large(process.nameless, process.all) && is_large(process.all, all)
        })
        .collect();
    large.rank_by_key(|(pid, process)| (Reverse(process.nameless), *pid));
    let (pid, process) = large.first()?;
    Some(process.describe(*pid))
}

fn is_nameless(frame: &Frame) -> bool {
    frame.kind == FrameKind::Jit && frame.name.starts_with("[anon]+")
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::model::{Task, ValueType};

    fn frame(name: &str, file: &str, kind: FrameKind) -> Frame {
        Frame {
            name: name.into(),
            module: (!file.is_empty()).then(|| file.into()),
            kind,
            inlined: false,
            address: 0,
            line: None,
        }
    }

    fn anonymous() -> Frame {
        frame("[anon]+0x7f00", "", FrameKind::Jit)
    }

    fn sample(pid: u32, value: u64, end: StackEnd, user: &[Frame]) -> Sample {
        Sample {
            task: Task::new("worker", pid, pid),
            user: user.into(),
            user_end: Some(end),
            count: 1,
            values: vec![value],
            ..Sample::default()
        }
    }

    fn said(samples: Vec<Sample>) -> Option<String> {
        describe(&Profile {
            tool: "t",
            values: vec![ValueType::new("on-cpu", "ns")],
            samples,
            duration_ns: 1,
        })
    }

    #[test]
    fn a_runtime_is_told_how_to_name_its_code() {
        let jvm = || {
            frame(
                "JavaMain",
                "/usr/lib/jvm/lib/server/libjvm.so",
                FrameKind::User,
            )
        };
        let whole = sample(7, 80, StackEnd::Root, &[jvm(), anonymous()]);
        let own = sample(7, 20, StackEnd::Root, &[jvm()]);
        let expected = "80% of process 7 is in compiled code without names: \
                        'jcmd 7 Compiler.perfmap' names it (JDK 17 or newer)";
        assert_eq!(said(vec![whole, own.clone()]).as_deref(), Some(expected));
        let cut = sample(7, 80, StackEnd::NoTable, &[anonymous()]);
        let expected = format!("{expected}; -XX:+PreserveFramePointer makes stacks whole");
        assert_eq!(said(vec![cut, own.clone()]).as_ref(), Some(&expected));
        let kind = frame("[on-cpu]", "", FrameKind::User);
        let of_account = sample(7, 80, StackEnd::NoTable, &[kind, anonymous()]);
        assert_eq!(said(vec![of_account, own]), Some(expected));
        let unknown = sample(9, 1, StackEnd::Root, &[anonymous()]);
        let found = said(vec![unknown]).expect("a remark");
        assert!(
            found.ends_with("its runtime may write /tmp/perf-9.map"),
            "{found}"
        );
    }

    #[test]
    fn a_little_is_not_worth_a_line() {
        let named = frame("LApp;::run", "", FrameKind::Jit);
        assert_eq!(
            said(vec![sample(7, 9, StackEnd::Root, slice::from_ref(&named))]),
            None
        );
        let mixed = |nameless| {
            vec![
                sample(7, nameless, StackEnd::Root, &[anonymous()]),
                sample(7, 100 - nameless, StackEnd::Root, slice::from_ref(&named)),
            ]
        };
        assert_eq!(said(mixed(19)), None);
        assert!(said(mixed(20)).is_some());
        let mut beside = mixed(100);
        beside.push(sample(8, 1_000, StackEnd::Root, slice::from_ref(&named)));
        assert_eq!(said(beside), None, "another program has the time");
    }
}
