//! The answer that a report begins with, and the command that it ends with.

use std::collections::HashMap;
use std::sync::Arc;

use host::perf::online_cpus;
use profile::model::Profile;
use profile::sums::sums;
use profile::text::{comm, round_percent};
use profile::{events, units};
use session::chosen;
use session::next::{self, Step, is_plain};

use crate::profile::args::{Args, Rate};
use crate::profile::harvest::Harvest;

/// Values in the plural, or in words that only whoever chose a weight can read.
pub(crate) fn values(args: &Args, profile: &Profile) -> String {
    let name = profile.values[0].name;
    match events::sum(profile.unit()) {
        Some(sum) if args.weight.is_some() => sum,
        _ if name == "events" => events::plural(&args.event.short_name()),
        _ if !args.event.is_clock() => format!("{name} of {}", args.event.short_name()),
        _ => name.into(),
    }
}

/// CPU time that a sample stands for; `None`: it is no clock's.
pub(crate) fn period_ns(args: &Args) -> Option<u64> {
    let is_time = args.event.is_clock() && args.weight.is_none();
    is_time.then(|| match args.rate() {
        Rate::Every(period_ns) => period_ns,
        Rate::Hertz(hertz) => 1_000_000_000 / hertz.max(1),
    })
}

/// CPUs in use, by the samples of a clock, and whose they are most, of several processes.
pub(crate) fn busy(
    args: &Args,
    harvest: &Harvest,
    profile: &Profile,
    name_of: fn(u32) -> Option<Arc<str>>,
) -> Option<String> {
    let period_ns = period_ns(args).filter(|_| !args.include_idle)?;
    let window_ns = harvest.window.ns().max(1);
    let processes = Processes::of(profile);
    let cpus = processes.all as f64 * period_ns as f64 / window_ns as f64;
    let watched = args.cpu.map_or_else(|| online_cpus().len(), |_| 1);
    let watched = units::counted(watched as u64, "CPUs");
    let busy = format!("{cpus:.2} of {watched}");
    let most = processes.most_by_name(name_of);
    Some(match most {
        Some(most) if most.pid != 0 && processes.by_pid.len() > 1 => {
            let share = round_percent(most.value, processes.all);
            let name = comm(&most.name);
            let who = match most.processes {
                1 => format!("{name} {}", most.pid),
                many => format!("{} processes of {name}", units::count(many)),
            };
            format!("{busy}, {share} by {who}")
        }
        _ => busy,
    })
}

/// Processes of one name: a build's compilers are together what the time goes to, each alone is next to nothing.
struct OfName {
    name: Arc<str>,
    value: u64,
    processes: u64,
    /// That of one of them.
    pid: u32,
}

/// Values of processes.
struct Processes<'a> {
    by_pid: HashMap<u32, Process<'a>>,
    all: u64,
}

#[derive(Default)]
struct Process<'a> {
    value: u64,
    /// Values of its threads' names, those of its first thread apart: it is known only where threads are told apart.
    names: HashMap<(bool, &'a str), u64>,
}

impl<'a> Process<'a> {
    /// Its first thread's, if that was seen; else the one with most.
    fn name(&self) -> &'a str {
        let names = self.names.iter();
        let most = names.max_by_key(|((is_first, name), value)| (*is_first, **value, *name));
        most.map_or("", |((_, name), _)| name)
    }

    /// The name of the threads with most.
    fn busiest_name(&self) -> &'a str {
        let names = self.names.iter();
        let names = sums(names.map(|((_, name), value)| (*name, *value)));
        let most = names
            .into_iter()
            .max_by_key(|(name, value)| (*value, *name));
        most.map_or("", |(name, _)| name)
    }
}

impl<'a> Processes<'a> {
    fn of(profile: &'a Profile) -> Self {
        let mut all = 0_u64;
        let mut by_pid: HashMap<u32, Process<'a>> = HashMap::new();
        for sample in &profile.samples {
            let task = &sample.task;
            let process = by_pid.entry(task.tgid).or_default();
            process.value = process.value.saturating_add(sample.total());
            let name = (task.tid == task.tgid, &*task.comm);
            let of_name = process.names.entry(name).or_default();
            *of_name = of_name.saturating_add(sample.total());
            all = all.saturating_add(sample.total());
        }
        Self { by_pid, all }
    }

    /// Those of the name with most.
    fn most_by_name(&self, name_of: fn(u32) -> Option<Arc<str>>) -> Option<OfName> {
        let mut by_name: HashMap<Arc<str>, OfName> = HashMap::new();
        for (&pid, process) in &self.by_pid {
            let name = name_of(pid).unwrap_or_else(|| process.name().into());
            let of_name = by_name.entry(Arc::clone(&name)).or_insert(OfName {
                name,
                value: 0,
                processes: 0,
                pid,
            });
            of_name.value = of_name.value.saturating_add(process.value);
            of_name.processes += 1;
        }
        let all = by_name.into_values();
        all.max_by_key(|of_name| (of_name.value, of_name.pid))
    }

    /// The one with most, of those that are looked for.
    fn first(&self, is_one: impl Fn(u32) -> bool) -> Option<(u32, &Process<'a>)> {
        let processes = self.by_pid.iter().map(|(pid, process)| (*pid, process));
        let processes = processes.filter(|(pid, _)| is_one(*pid));
        processes.max_by_key(|(pid, process)| (process.value, *pid))
    }
}

/// Command for a picture of the process that has most, or where there is one already, for all of its time; of those that were asked
/// for and have nothing, for what they do instead; where nobody can be named, for the machine.
pub(crate) fn next(args: &Args, profile: &Profile) -> String {
    let found = step(args, profile);
    found.unwrap_or_else(|| Step::Shortages.line(""))
}

fn step(args: &Args, profile: &Profile) -> Option<String> {
    if profile.samples.is_empty() {
        let step = match period_ns(args) {
            Some(_) => Step::Waits,
            None => Step::CpuTime,
        };
        return Some(step.line(&chosen::options(&args.targets, next::is_there)?));
    }
    let target = target(args, profile)?;
    let event = args.event.full_name();
    // It may have a path in it. A weight is for whoever chose it.
    let is_inert = is_plain(&event.replace('/', ".")) && args.weight.is_none();
    if !args.stacks.output.is_empty() || !is_inert {
        return Some(Step::Why.line(&target));
    }
    if period_ns(args).is_some() {
        return Some(Step::CpuPicture.line(&target));
    }
    let command = match target.split_once("-- ") {
        Some((options, program)) => {
            format!("profile -e {event} {options}-o events.html -- {program}")
        }
        None => format!("profile -e {event} {target} 10 -o events.html"),
    };
    Some(next::line(&command, "all its stacks as a picture"))
}

/// The program or the threads that were asked for, else the process that has most.
fn target(args: &Args, profile: &Profile) -> Option<String> {
    if !args.targets.command.is_empty() || !args.targets.tids.is_empty() {
        return chosen::options(&args.targets, next::is_there);
    }
    let processes = Processes::of(profile);
    let (pid, process) = processes.first(|pid| pid != 0)?;
    if next::is_there(pid) {
        return Some(format!("-p {pid}"));
    }
    // Others of its name may come where a process has ended.
    let name = process.busiest_name();
    is_plain(name).then(|| format!("--comm {name}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use profile::model::Sample;

    use super::*;
    use crate::made_up::task;
    use crate::profile::report::tests::harvest_of;

    fn sample(comm: &str, tgid: u32, tid: u32, value: u64) -> Sample {
        Sample {
            task: task(comm, tgid, tid),
            count: value,
            values: vec![value],
            ..Sample::default()
        }
    }

    #[test]
    fn of_several_processes_the_first_one_is_named_by_its_first_thread() {
        let mut profile = Profile {
            samples: vec![sample("pool", 7, 8, 60), sample("app", 7, 7, 15)],
            ..Profile::default()
        };
        let args = Args::parse_from(["profile", "-C", "0", "-c", "1000000"]);
        let harvest = harvest_of(100_000_000);
        let busy = |profile: &Profile| {
            let nobody_is_there = |_| None;
            busy(&args, &harvest, profile, nobody_is_there).expect("a clock")
        };
        assert_eq!(busy(&profile), "0.75 of 1 CPU");
        profile.samples.push(sample("other", 9, 9, 25));
        assert_eq!(busy(&profile), "1.00 of 1 CPU, 75% by app 7");
        // Threads are not told apart.
        for sample in &mut profile.samples {
            sample.task.tid = 0;
        }
        assert_eq!(busy(&profile), "1.00 of 1 CPU, 75% by pool 7");
        // Together more than the largest alone.
        profile.samples = [("cc1", 1, 20), ("cc1", 2, 25), ("make", 3, 35)]
            .map(|(name, pid, value)| sample(name, pid, pid, value))
            .into();
        let together = "0.80 of 1 CPU, 56% by 2 processes of cc1";
        assert_eq!(busy(&profile), together);
    }

    #[test]
    fn a_program_is_started_without_our_options() {
        let profile = Profile {
            samples: vec![sample("cc1", 7, 8, 60)],
            ..Profile::default()
        };
        let line = "profile -e page-faults --comm cc1 -- make -j4";
        let args = Args::parse_from(line.split(' '));
        let next = next(&args, &profile);
        let command = "profile -e page-faults --comm cc1 -o events.html -- make -j4   #";
        assert!(next.contains(command), "{next}");
    }

    #[test]
    fn where_nothing_was_seen_other_questions_are_asked() {
        let nothing = Profile::default();
        for (line, command) in [
            ("profile", "offcputime 10 "),
            ("profile -e page-faults", "profile 10 "),
        ] {
            let args = Args::parse_from(line.split_whitespace());
            let next = next(&args, &nothing);
            assert!(next.contains(command), "{next}");
        }
    }

    #[test]
    fn where_nobody_can_be_named_the_machine_is_looked_at() {
        let gone = u32::MAX;
        let profile = Profile {
            samples: vec![sample("a;reboot", gone, gone, 1)],
            ..Profile::default()
        };
        let args = Args::parse_from(["profile"]);
        let next = next(&args, &profile);
        assert!(next.contains("pressure 5 1 "), "{next}");
    }

    #[test]
    fn pictures_are_of_the_event_that_was_asked_for() {
        let own = std::process::id();
        let profile = Profile {
            samples: vec![sample("app", own, own, 1)],
            ..Profile::default()
        };
        for (options, command) in [
            ("", "profile -p PID 30 -o cpu.html"),
            (
                "-e tracepoint:kmem:kmalloc",
                "profile -e tracepoint:kmem:kmalloc -p PID 10 -o events.html",
            ),
            (
                "-e uprobe:/usr/lib/a.so:f",
                "profile -e uprobe:/usr/lib/a.so:f -p PID 10 -o events.html",
            ),
            // A weight is known to whoever chose it, and there is a picture already.
            (
                "-e tracepoint:kmem:kmalloc --weight bytes_alloc",
                "why -p PID 10",
            ),
            ("-o cpu.svg", "why -p PID 10"),
        ] {
            let line = format!("profile {options}");
            let args = Args::parse_from(line.split_whitespace());
            let line = next(&args, &profile);
            let command = command.replace("PID", &own.to_string());
            assert!(line.contains(&command), "{line}");
        }
    }
}
