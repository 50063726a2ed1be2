//! The answer that a report begins with: what threads waited for most, whose they are, and for how long.

use std::collections::HashMap;

use profile::model::{Profile, Task};
use profile::text::{WIDTH, comm, round_percent, sentence};
use profile::{reasons, units};

use crate::offcputime::args::Args;
use crate::offcputime::gil::GIL;
use crate::offcputime::harvest::Accounting;

/// A wait for a time of its own choice is for nobody.
pub(crate) const SLEEP: &str = "sleep";
/// A wait for CPU quota is behind nobody.
pub(crate) const THROTTLED: &str = "throttled";

/// Times of threads that were not idle, ns.
#[derive(Default)]
pub(crate) struct Waits<'a> {
    by_reason: HashMap<&'a str, u64>,
    by_process: HashMap<(&'a str, u32), u64>,
    by_name: HashMap<(&'a str, u32), HashMap<&'a str, u64>>,
    /// Time of processes' first threads, by name: a command that is run by another takes its own.
    by_first: HashMap<(u32, &'a str), u64>,
    /// All of it.
    pub(crate) all_ns: u64,
    /// Idle waits, in which threads have nothing to do.
    idle_ns: u64,
    window_ns: u64,
}

impl<'a> Waits<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let mut waits = Self {
            window_ns: profile.duration_ns,
            ..Self::default()
        };
        for sample in &profile.samples {
            let task = &sample.task;
            let [ns, cpu_ns] = reasons::parts(profile, sample.reason, &sample.values);
            if task.tid == task.tgid {
                let name = (task.tgid, &*task.comm);
                add(waits.by_first.entry(name).or_default(), sample.total());
            }
            // A thread that had nothing to do has something when it is woken.
            waits.add(reasons::CPU, task, cpu_ns);
            if sample.idle {
                add(&mut waits.idle_ns, ns);
            } else {
                waits.add(sample.reason.unwrap_or("other"), task, ns);
            }
        }
        waits
    }

    fn add(&mut self, reason: &'a str, task: &'a Task, ns: u64) {
        if ns == 0 {
            return;
        }
        add(&mut self.all_ns, ns);
        add(self.by_reason.entry(reason).or_default(), ns);
        add(self.by_process.entry((reason, task.tgid)).or_default(), ns);
        let names = self.by_name.entry((reason, task.tgid)).or_default();
        add(names.entry(&*task.comm).or_default(), ns);
    }

    /// The reason with most time but sleep; time in the run queue is for a CPU, whatever was waited for before.
    pub(crate) fn reason(&self) -> Option<(&'a str, u64)> {
        let reasons = self.by_reason.iter().map(|(reason, ns)| (*reason, *ns));
        let waits = reasons.filter(|(reason, ns)| *reason != SLEEP && *ns > 0);
        waits.max_by_key(|(reason, ns)| (*ns, *reason))
    }

    /// All of a reason's time.
    pub(crate) fn ns(&self, reason: &str) -> u64 {
        self.by_reason.get(reason).copied().unwrap_or_default()
    }

    /// The process with most of a reason's time.
    pub(crate) fn process(&self, reason: &str) -> Option<u32> {
        heaviest_of(&self.by_process, reason)
    }

    /// The name of a process's threads with most of a reason's time.
    pub(crate) fn name(&self, reason: &str, tgid: u32) -> Option<&'a str> {
        let names = self.by_name.get(&(reason, tgid))?.iter();
        let most = names.max_by_key(|(name, ns)| (**ns, **name));
        most.map(|(name, _)| *name)
    }

    /// The process with most of a reason's time, by its first thread's name, and how many others have some.
    fn whose(&self, reason: &str) -> String {
        let of_reason = |of: &&(&str, u32)| of.0 == reason;
        let others = self.by_process.keys().filter(of_reason).count() as u64 - 1;
        let tgid = self.process(reason).unwrap_or_default();
        let names = self.by_first.iter().filter(|((of, _), _)| *of == tgid);
        let first = names.max_by_key(|((_, name), ns)| (**ns, *name));
        let name = first
            .map(|((_, name), _)| *name)
            .or(self.name(reason, tgid));
        let mut whose = comm(name.unwrap_or_default());
        if tgid != 0 {
            whose += &format!(" {tgid}");
        }
        match others {
            0 => whose,
            n => format!("{whose} and {}", units::counted(n, "other processes")),
        }
    }

    /// Tells if threads had next to nothing to do: together they ran, or waited for others, for less than one hundredth of the window,
    /// and of the time that they were idle.
    pub(crate) fn are_few(&self, args: &Args, accounting: &Accounting) -> bool {
        let busy_ns = self.all_ns.saturating_add(accounting.oncpu_ns);
        args.sees_all_waits()
            && self.idle_ns > 0
            && busy_ns < self.window_ns.min(self.idle_ns) / 100
    }

    /// A wait as a sentence without its end.
    fn words(&self, reason: &str, ns: u64) -> [String; 3] {
        let verb = if reason == SLEEP { "slept" } else { "waited" };
        let time = units::thread_time(ns);
        let share = round_percent(ns, self.all_ns);
        [
            self.whose(reason),
            format!("{verb} {time} {},", for_what(reason)),
            format!("{share} of off-CPU time not idle"),
        ]
    }
}

/// Time of many threads may be more than a number holds.
fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

/// The one with most of the time that has a reason.
fn heaviest_of<T: Ord + Copy>(times: &HashMap<(&str, T), u64>, reason: &str) -> Option<T> {
    let of_reason = times.iter().filter(|((of, _), _)| *of == reason);
    let heaviest = of_reason.max_by_key(|((_, of), ns)| (**ns, *of));
    heaviest.map(|((_, of), _)| *of)
}

/// The end of a sentence on a wait.
pub(crate) fn for_what(reason: &str) -> &'static str {
    match reason {
        "futex" => "for locks or condition variables",
        GIL => "for a turn with Python's interpreter",
        "lock" => "for locks inside the kernel",
        "block-io" => "for block I/O",
        "page-fault" => "in page faults",
        "poll" => "in poll",
        "epoll" => "in epoll",
        "socket" => "on sockets",
        "pipe" => "on pipes",
        "file-lock" => "for file locks",
        "semaphore" => "for semaphores",
        "eventfd" => "on eventfds",
        "inotify" => "for changes of files (inotify)",
        "device" => "on terminals or other devices",
        "msg-queue" => "on message queues",
        "kernel-work" => "for work in the kernel",
        "sleep" => "by its own choice",
        "wait" => "for a child or a signal",
        reasons::CPU => "for a CPU",
        THROTTLED => "for CPU quota",
        "stopped" => "stopped by a signal or a debugger",
        _ => "for something else",
    }
}

/// The answer in lines: the largest wait, or time on CPUs where that is more, if no wait was left out.
pub(crate) fn answer(args: &Args, profile: &Profile, accounting: &Accounting) -> Vec<String> {
    let waits = Waits::of(profile);
    let (reason, ns) = waits.reason().unwrap_or_default();
    let slept_ns = waits.ns(SLEEP);
    if waits.are_few(args, accounting) {
        let threads = units::counted(accounting.threads, "threads");
        let share = round_percent(waits.idle_ns, accounting.lifetime_ns);
        let time = units::thread_time(accounting.lifetime_ns);
        return vec![format!("{threads} had nothing to do for {share} of {time}")];
    }
    // Beside so much sleep, all else is of no interest.
    if accounting.oncpu_ns.saturating_add(ns) < slept_ns / 100 && args.sees_all_waits() {
        return sentence(&waits.words(SLEEP, slept_ns), "", WIDTH);
    }
    let mut lines = Vec::new();
    if accounting.oncpu_ns > ns && args.sees_all_waits() {
        let threads = units::counted(accounting.threads, "threads");
        let time = units::thread_time(accounting.oncpu_ns);
        let ran = format!("{threads} ran for {time},");
        let who = if accounting.threads == 1 {
            "it"
        } else {
            "they"
        };
        let end = if waits.all_ns.max(waits.idle_ns) > 0 {
            ";"
        } else {
            ""
        };
        let more = format!("more than {who} waited for others{end}");
        lines = sentence(&[ran, more], "", WIDTH);
    }
    let mut parts = Vec::new();
    if ns > 0 {
        parts.extend(waits.words(reason, ns));
        if slept_ns > ns {
            end_with(&mut parts, ";");
            let share = round_percent(slept_ns, waits.all_ns);
            parts.push(format!("{share} was sleep by choice"));
        }
    } else if slept_ns > 0 {
        parts.extend(waits.words(SLEEP, slept_ns));
    } else if waits.idle_ns > 0 {
        parts.push("all waits were of threads with nothing to do".to_owned());
    }
    if let Some(first) = parts.first_mut().filter(|_| !lines.is_empty()) {
        first.insert_str(0, "  ");
    }
    lines.extend(sentence(&parts, "", WIDTH));
    lines
}

fn end_with(parts: &mut [String], mark: &str) {
    if let Some(last) = parts.last_mut() {
        *last += mark;
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
