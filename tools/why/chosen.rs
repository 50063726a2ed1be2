//! The processes of one name that lose most together, where nobody is asked for: the answer is about them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use host::clock::Edges;
use host::task::comm_of;
use profile::model::{Profile, Task};
use profile::rank::Rank;
use profile::reasons;
use profile::text::{WIDTH, round_percent, sentence};
use profile::units;
use serde_json::{Value, json};

use crate::offcputime::{Details, SLEEP};
use crate::why::line::Program;
use crate::why::words::processes;

/// Share of the window that a process has to lose, or to use, to be chosen.
const LEAST: f64 = 0.01;

/// Its choice, of one measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The name, and the process of it with most.
    pub(crate) program: Program,
    /// All processes of that name that have any such time.
    pub(crate) tgids: BTreeSet<u32>,
    /// Their time, ns.
    pub(crate) ns: u64,
    /// The same of all processes, ns.
    pub(crate) all_ns: u64,
    /// Those of the name that has most but for it: the process with most, their number, and their time, ns.
    pub(crate) second: Option<(Program, usize, u64)>,
    /// It is time lost: waited, neither in idleness nor in sleep by choice. Else nobody lost any to speak of, and it is time on CPUs.
    pub(crate) is_lost: bool,
}

impl Chosen {
    /// The name whose processes have most of all waits, or of the time on CPUs; `None`: nobody did anything to speak of.
    pub(crate) fn of(off: &Profile, details: &Details, window: Edges) -> Option<Self> {
        let mut names: HashMap<u32, &Task> = HashMap::new();
        let mut lost: HashMap<u32, u64> = HashMap::new();
        for sample in &off.samples {
            let name = names.entry(sample.task.tgid).or_insert(&sample.task);
            if sample.task.tid == sample.task.tgid {
                *name = &sample.task;
            }
            let [ns, queue_ns] = reasons::parts(off, sample.reason, &sample.values);
            let is_rest = sample.idle || sample.reason == Some(SLEEP);
            let sum = lost.entry(sample.task.tgid).or_default();
            *sum = sum.saturating_add(queue_ns + if is_rest { 0 } else { ns });
        }
        let used = details.processes.iter();
        let used = used.map(|(tgid, time)| (*tgid, time.oncpu_ns)).collect();
        let name = |tgid: u32| {
            let of_thread = || names.get(&tgid).map(|task| Arc::clone(&task.comm));
            comm_of(tgid).or_else(of_thread).unwrap_or_default()
        };
        let least_ns = (LEAST * window.ns() as f64) as u64;
        let measures = [(true, lost), (false, used)];
        measures.into_iter().find_map(|(is_lost, times)| {
            let chosen = most(times, &name, is_lost);
            chosen.filter(|chosen| chosen.ns > least_ns)
        })
    }

    /// One sentence: whose time the rest is about, and who comes second.
    pub(crate) fn describe(&self) -> Vec<String> {
        let whole = units::duration(self.all_ns);
        let share = |ns| round_percent(ns, self.all_ns);
        let whose = processes(&self.program, self.tgids.len());
        let [lose, are] = match self.tgids.len() {
            0 | 1 => ["loses", "is"],
            _ => ["lose", "are"],
        };
        let mut parts = match self.is_lost {
            true => vec![
                format!("{whose} {lose} most here,"),
                format!(
                    "{} of the {whole} that all processes waited",
                    share(self.ns)
                ),
                "and were not idle;".to_owned(),
            ],
            false => vec![
                "no process waits to speak of:".to_owned(),
                format!("{whose} {are} on CPUs most,"),
                format!("{} of {whole};", share(self.ns)),
            ],
        };
        parts.extend(self.second.iter().map(|(second, number, ns)| {
            let come = if *number > 1 { "come" } else { "comes" };
            let who = processes(second, *number);
            format!("{who} {come} second, {}", share(*ns))
        }));
        parts.push("(--all: the whole machine)".to_owned());
        sentence(&parts, "", WIDTH)
    }

    pub(crate) fn to_json(&self) -> Value {
        let time = |(name, pid): &Program, processes: usize, ns: u64| json!({"comm": &**name, "pid": pid, "processes": processes, "ns": ns});
        let mut chosen = time(&self.program, self.tgids.len(), self.ns);
        chosen["of"] = json!(if self.is_lost { "lost" } else { "on-cpu" });
        chosen["all_ns"] = json!(self.all_ns);
        chosen["second"] = json!(
            self.second
                .as_ref()
                .map(|(one, number, ns)| time(one, *number, *ns))
        );
        chosen
    }
}

/// The name with most, processes without an ID in this PID namespace left out.
fn most(
    times: HashMap<u32, u64>,
    name: &impl Fn(u32) -> Arc<str>,
    is_lost: bool,
) -> Option<Chosen> {
    let all_ns = times.values().copied().fold(0, u64::saturating_add);
    let mut times: Vec<(u32, u64)> = times.into_iter().collect();
    times.retain(|(tgid, ns)| *tgid != 0 && *ns > 0);
    times.rank_by_key(|(tgid, ns)| (Reverse(*ns), *tgid));
    let mut names: Vec<(Program, BTreeSet<u32>, u64)> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for (tgid, ns) in times {
        let name = name(tgid);
        let place = *places.entry(Arc::clone(&name)).or_insert(names.len());
        if place == names.len() {
            names.push(((name, tgid), BTreeSet::new(), 0));
        }
        let (_, tgids, sum) = &mut names[place];
        tgids.insert(tgid);
        *sum = sum.saturating_add(ns);
    }
    names.rank_by_key(|((_, tgid), _, ns)| (Reverse(*ns), *tgid));
    let mut ranked = names.into_iter();
    let (program, tgids, ns) = ranked.next()?;
    let second = ranked.next();
    Some(Chosen {
        program,
        tgids,
        ns,
        all_ns,
        second: second.map(|(program, tgids, ns)| (program, tgids.len(), ns)),
        is_lost,
    })
}

#[cfg(test)]
mod tests {
    use profile::model::Sample;

    use super::*;
    use crate::made_up::{self, off_cpu, task};
    use crate::narrow::{PATHS, assert_narrow};
    use crate::offcputime::ProcessTime;

    const S: u64 = 1_000_000_000;
    /// Processes that are not there: nobody has such an ID.
    const FIRST: u32 = 1 << 30;

    fn wait(process: u32, reason: &'static str, idle: bool, s: [u64; 2]) -> Sample {
        let number = FIRST + process;
        let task = task(&format!("p{process}"), number, number);
        Sample {
            idle,
            ..made_up::wait(task, reason, &s.map(|s| s * S))
        }
    }

    fn chosen(samples: Vec<Sample>, used: &[(u32, u64)]) -> Option<Chosen> {
        let off = off_cpu(samples, 0);
        let mut details = Details::default();
        details.processes.extend(used.iter().map(|(process, s)| {
            let time = ProcessTime {
                oncpu_ns: s * S,
                ..ProcessTime::default()
            };
            (FIRST + process, time)
        }));
        let window = Edges {
            start_ns: 0,
            end_ns: 10 * S,
        };
        Chosen::of(&off, &details, window)
    }

    #[test]
    fn whoever_waits_most_is_chosen_and_neither_idleness_nor_sleep_counts() {
        let waits = vec![
            wait(1, "epoll", true, [90, 1]),
            wait(2, "sleep", false, [80, 0]),
            wait(3, "futex", false, [3, 1]),
            wait(3, "pipe", false, [2, 0]),
            wait(4, "preempted", false, [0, 5]),
        ];
        let found = chosen(waits, &[(2, 70)]).expect("somebody");
        assert_eq!((&*found.program.0, found.program.1), ("p3", FIRST + 3));
        assert_eq!((found.ns, found.all_ns), (6 * S, 12 * S));
        let second = found.second.as_ref().expect("a second");
        assert_eq!((&*second.0.0, second.2), ("p4", 5 * S));
        let text = found.describe().join(" ");
        for words in [
            "p3 1073741827 loses most here",
            "50% of the 12.0 s",
            "comes second, 42%",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(found.to_json()["second"]["comm"], "p4");
    }

    #[test]
    fn processes_of_one_name_lose_together() {
        let backend = |process, s| {
            let mut wait = wait(process, "futex", false, [s, 0]);
            wait.task.comm = "backend".into();
            wait
        };
        let waits = vec![
            wait(1, "pipe", false, [5, 0]),
            backend(2, 3),
            backend(3, 4),
            backend(4, 1),
        ];
        let found = chosen(waits, &[]).expect("somebody");
        assert_eq!((&*found.program.0, found.ns), ("backend", 8 * S));
        assert_eq!(found.tgids, [2, 3, 4].map(|process| FIRST + process).into());
        let text = found.describe();
        assert_eq!(text[0], "3 processes of backend lose most here,");
        assert!(text[1].starts_with("  62% of the 13.0 s"), "{text:?}");
        let json = found.to_json();
        assert_eq!(
            (&json["pid"], &json["processes"]),
            (&(FIRST + 3).into(), &3.into())
        );
    }

    #[test]
    fn where_nobody_waits_it_is_who_computes_and_else_nobody() {
        let idle = || vec![wait(1, "epoll", true, [90, 0])];
        let found = chosen(idle(), &[(1, 1), (2, 9)]).expect("somebody");
        assert_eq!(
            (found.program.1, found.ns, found.is_lost),
            (FIRST + 2, 9 * S, false)
        );
        assert_eq!(found.to_json()["of"], "on-cpu");
        assert_eq!(chosen(idle(), &[]), None);
        assert_eq!(
            most([(0, 9)].into(), &|_| "".into(), true),
            None,
            "it has no ID here"
        );
    }

    #[test]
    fn names_do_not_widen_it() {
        let program = || (PATHS[0].into(), u32::MAX);
        for is_lost in [true, false] {
            let chosen = Chosen {
                program: program(),
                ns: u64::MAX / 2,
                all_ns: u64::MAX,
                tgids: [1, 2].into(),
                second: Some((program(), 2, 7)),
                is_lost,
            };
            assert_narrow(&chosen.describe().join("\n"));
        }
    }
}
