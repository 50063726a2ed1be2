//! All of the threads' time in lines, each with who is to blame for it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use host::clock::Edges;
use profile::brief::place;
use profile::frame::Frame;
use profile::model::{Profile, Sample, Task};
use profile::rank::Rank;
use profile::reasons;
use session::quotas::UsedUp;

use crate::offcputime::{Harvest, SLEEP, THROTTLED};
use crate::runqlat::Interval;

/// Time on CPUs.
pub(crate) const ON_CPU: &str = "on-cpu";
/// Time in the run queue.
pub(crate) const RUN_QUEUE: &str = "run-queue";
/// Waits of threads with nothing to do.
pub(crate) const IDLE: &str = "idle";
/// Time between switches that the kernel does not show.
pub(crate) const UNSEEN: &str = "unseen";
/// Waits that no table had room for, or whose stack was not walked.
pub(crate) const LOST: &str = "lost";
/// Time that no line has; less than none where lines overlap.
pub(crate) const RESIDUAL: &str = "residual";

/// What the engines found in one window.
pub(crate) struct Found<'a> {
    /// Waits.
    pub(crate) off: &'a Profile,
    /// Samples on CPUs.
    pub(crate) on: &'a Profile,
    /// Sums of all time, and quotas.
    pub(crate) waits: &'a Harvest,
    /// Neighbours.
    pub(crate) queue: &'a Interval,
    /// Begin and end.
    pub(crate) window: Edges,
    /// Share of the time that was looked at, where that is not all.
    pub(crate) looked: Option<f64>,
}

/// A program: its name and its process ID.
pub(crate) type Program = (Arc<str>, u32);

/// Somebody, or something, that time is due to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Culprit {
    /// It ended waits, in a function of its own; or it ran meanwhile.
    Program(Program, Option<Arc<str>>),
    /// A device's or a timer's interrupt ended waits.
    Interrupt,
    /// The waits are not over.
    Nobody,
    /// A function used the CPU.
    Function(Arc<str>),
}

impl Culprit {
    /// A task that ran too long ago to be remembered.
    fn is_nameless(&self) -> bool {
        matches!(self, Self::Program((_, 0), _))
    }
}

/// Its part of a line.
#[derive(Clone, Debug)]
pub(crate) struct Blame {
    pub(crate) culprit: Culprit,
    /// Time, ns; of functions, samples.
    pub(crate) value: u64,
}

/// Time that threads spent for one reason in one place.
#[derive(Default)]
pub(crate) struct Line {
    /// A reason of offcputime's, or a word of this module's.
    pub(crate) kind: &'static str,
    /// The program's function that waits.
    pub(crate) place: Option<Arc<str>>,
    pub(crate) ns: i64,
    /// Number of waits; 0: it is no wait.
    pub(crate) waits: u64,
    /// The most first.
    pub(crate) whose: Vec<(Program, u64)>,
    /// The most first.
    pub(crate) blames: Vec<Blame>,
    /// Sum of all blames that there are, in their unit.
    pub(crate) blamed: u64,
    /// The stack with most of it, of the kernel and of the program.
    pub(crate) stack: (Arc<[Frame]>, Arc<[Frame]>),
}

impl Line {
    /// Tells if it is time that the program lost or spent: neither idleness, nor sleep by choice, nor what was not seen.
    pub(crate) fn is_busy(&self) -> bool {
        ![IDLE, SLEEP, UNSEEN, LOST, RESIDUAL].contains(&self.kind)
    }

    /// Its time, 0 where it is negative.
    pub(crate) fn time_ns(&self) -> u64 {
        self.ns.try_into().unwrap_or(0)
    }

    /// The culprit with most of it, and its share, from 0 to 1.
    pub(crate) fn first_blame(&self) -> Option<(&Culprit, f64)> {
        let first = self.blames.first()?;
        Some((&first.culprit, self.share(first)))
    }

    /// A culprit's share of it, from 0 to 1.
    pub(crate) fn share(&self, blame: &Blame) -> f64 {
        blame.value as f64 / self.blamed.max(1) as f64
    }
}

/// All time of the threads that were asked for.
pub(crate) struct Account {
    /// Begin and end.
    pub(crate) window: Edges,
    /// Threads that were there at some time.
    pub(crate) threads: u64,
    /// Sum of their times in the window, ns.
    pub(crate) lifetime_ns: u64,
    /// The most first; idleness, what was not seen and the residual are last.
    pub(crate) lines: Vec<Line>,
    /// By name of their processes, the most time first, that of idleness last.
    pub(crate) programs: Vec<Program>,
    /// CPU quotas that threads lacked.
    pub(crate) quotas: Vec<UsedUp>,
    /// Share of the time that was looked at, where all figures are estimates.
    pub(crate) looked: Option<f64>,
}

impl Account {
    /// Adds up what was found.
    pub(crate) fn of(found: &Found<'_>) -> Self {
        let sums = &found.waits.accounting;
        let mut drafts = Drafts::default();
        for sample in &found.off.samples {
            drafts.add_wait(found.off, sample);
        }
        drafts.add_cpu_time(found.on, sums.oncpu_ns);
        let names = drafts.names();
        let mut lines = drafts.lines(found, &names);
        lines.retain(|line| line.ns > 0);
        let lost_ns = sums.lost.rows_full_ns + sums.lost.unreported_ns;
        for (kind, ns) in [(UNSEEN, sums.unseen_ns), (LOST, lost_ns)] {
            if ns > 0 {
                lines.push(rest(kind, ns.cast_signed()));
            }
        }
        let explained_ns: i64 = lines.iter().map(|line| line.ns).sum();
        let residual_ns = sums.lifetime_ns.cast_signed() - explained_ns;
        lines.push(rest(RESIDUAL, residual_ns));
        let programs = programs(&lines);
        Self {
            window: found.window,
            threads: sums.threads,
            lifetime_ns: sums.lifetime_ns,
            lines,
            programs,
            quotas: found.waits.quotas.clone(),
            looked: found.looked,
        }
    }

    /// Time of lines that are neither idleness nor sleep, ns.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.sum(Line::is_busy)
    }

    /// Time of all lines of a kind, ns.
    pub(crate) fn kind_ns(&self, kind: &str) -> u64 {
        self.sum(|line| line.kind == kind)
    }

    fn sum(&self, is_wanted: impl Fn(&Line) -> bool) -> u64 {
        let lines = self.lines.iter().filter(|line| is_wanted(line));
        lines.map(Line::time_ns).sum()
    }

    /// The line that costs most.
    pub(crate) fn first(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.is_busy())
    }

    /// The check: time that lines explain, in percent.
    pub(crate) fn explained(&self) -> String {
        let all_ns = self.lifetime_ns.cast_signed();
        let explained_ns = all_ns - self.lines.last().map_or(0, |line| line.ns);
        let share = 100.0 * explained_ns as f64 / all_ns.max(1) as f64;
        format!("{share:.2}% of the threads' time explained")
    }
}

fn rest(kind: &'static str, ns: i64) -> Line {
    Line {
        kind,
        ns,
        ..Line::default()
    }
}

/// Processes of busy lines before those that were only idle.
fn programs(lines: &[Line]) -> Vec<Program> {
    let mut sums: HashMap<&Program, (u64, u64)> = HashMap::new();
    for line in lines {
        for (program, ns) in &line.whose {
            let sum = sums.entry(program).or_default();
            let part = if line.is_busy() {
                &mut sum.0
            } else {
                &mut sum.1
            };
            *part = part.saturating_add(*ns);
        }
    }
    let mut programs: Vec<_> = sums.into_iter().collect();
    programs.rank_by_key(|(program, sum)| (Reverse(*sum), (*program).clone()));
    programs
        .into_iter()
        .map(|(program, _)| program.clone())
        .collect()
}

/// A line that is being added up.
#[derive(Default)]
struct Draft {
    ns: u64,
    waits: u64,
    whose: HashMap<u32, u64>,
    blames: HashMap<Culprit, u64>,
    /// Most of a single stack, and that.
    most: u64,
    stack: (Arc<[Frame]>, Arc<[Frame]>),
}

impl Draft {
    fn add(&mut self, sample: &Sample, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
        *self.whose.entry(sample.task.tgid).or_default() += ns;
        if ns > self.most {
            self.most = ns;
            self.stack = (Arc::clone(&sample.kernel), Arc::clone(&sample.user));
        }
    }
}

#[derive(Default)]
struct Drafts {
    by_place: HashMap<(&'static str, Option<Arc<str>>), Draft>,
    /// Names of processes, of their first threads where those were seen.
    names: HashMap<u32, (bool, Arc<str>)>,
}

impl Drafts {
    fn learn(&mut self, task: &Task) {
        let is_first = task.tid == task.tgid;
        let known = self.names.entry(task.tgid);
        let known = known.or_insert_with(|| (is_first, Arc::clone(&task.comm)));
        if is_first && !known.0 {
            *known = (true, Arc::clone(&task.comm));
        }
    }

    fn names(&self) -> HashMap<u32, Arc<str>> {
        let names = self.names.iter();
        names
            .map(|(tgid, (_, name))| (*tgid, Arc::clone(name)))
            .collect()
    }

    fn add_wait(&mut self, profile: &Profile, sample: &Sample) {
        self.learn(&sample.task);
        let [ns, queue_ns] = reasons::parts(profile, sample.reason, &sample.values);
        if queue_ns > 0 {
            let queue = self.by_place.entry((RUN_QUEUE, None)).or_default();
            queue.add(sample, queue_ns);
            queue.waits += sample.count;
        }
        if ns == 0 {
            return;
        }
        let reason = sample.reason.unwrap_or("other");
        let key = match (sample.idle, reason) {
            (true, _) => (IDLE, None),
            (_, THROTTLED) => (THROTTLED, None),
            _ => (reason, function(&sample.kernel, &sample.user)),
        };
        let draft = self.by_place.entry(key).or_default();
        draft.add(sample, ns);
        draft.waits += sample.count;
        if sample.idle {
            return;
        }
        let culprit = match &sample.waker {
            None => Culprit::Nobody,
            Some(waker) => waker.task.as_ref().map_or(Culprit::Interrupt, |task| {
                let place = function(&waker.kernel, &waker.user);
                Culprit::Program((Arc::clone(&task.comm), task.tgid), place)
            }),
        };
        *draft.blames.entry(culprit).or_default() += ns;
    }

    fn add_cpu_time(&mut self, profile: &Profile, oncpu_ns: u64) {
        let all: u64 = profile.samples.iter().map(Sample::total).sum();
        let draft = self.by_place.entry((ON_CPU, None)).or_default();
        for sample in &profile.samples {
            let value = sample.total();
            draft.add(sample, value);
            let function = function(&sample.kernel, &sample.user);
            let culprit = Culprit::Function(function.unwrap_or("[no stack]".into()));
            *draft.blames.entry(culprit).or_default() += value;
        }
        // Samples say whose it is, and where; how long it is the kernel's switches say.
        for part in draft.whose.values_mut() {
            *part = (*part as f64 / all.max(1) as f64 * oncpu_ns as f64) as u64;
        }
        draft.ns = oncpu_ns;
        let tasks = profile.samples.iter().map(|sample| &sample.task);
        tasks.for_each(|task| self.learn(task));
    }

    fn lines(self, found: &Found<'_>, names: &HashMap<u32, Arc<str>>) -> Vec<Line> {
        let drafts = self.by_place.into_iter();
        let mut lines: Vec<Line> = drafts
            .map(|((kind, place), draft)| {
                let mut blames = match kind {
                    RUN_QUEUE => neighbours(found.queue),
                    _ => ranked(draft.blames, names),
                };
                if found.looked.is_some() {
                    // Most waits outlast the window that saw them.
                    blames.retain(|blame| blame.culprit != Culprit::Nobody);
                }
                Line {
                    kind,
                    place,
                    ns: draft.ns.cast_signed(),
                    waits: draft.waits,
                    whose: whose(&draft.whose, names),
                    blamed: blames.iter().map(|blame| blame.value).sum(),
                    blames,
                    stack: draft.stack,
                }
            })
            .collect();
        lines.rank_by_key(|line| {
            let order = (line.kind == IDLE, Reverse(line.ns));
            (order, line.kind, line.place.clone())
        });
        lines
    }
}

/// Name of the function that a stack is in.
fn function(kernel: &[Frame], user: &[Frame]) -> Option<Arc<str>> {
    place(kernel, user).map(|name| name.as_ref().into())
}

fn whose(times: &HashMap<u32, u64>, names: &HashMap<u32, Arc<str>>) -> Vec<(Program, u64)> {
    let mut whose: Vec<(Program, u64)> = times
        .iter()
        .map(|(tgid, ns)| ((names.get(tgid).cloned().unwrap_or_default(), *tgid), *ns))
        .collect();
    whose.rank_by_key(|(program, ns)| (Reverse(*ns), program.clone()));
    whose
}

/// Culprits, the most first. Threads of a process are one, by its name where that is known.
fn ranked(
    values: impl IntoIterator<Item = (Culprit, u64)>,
    names: &HashMap<u32, Arc<str>>,
) -> Vec<Blame> {
    let mut sums: HashMap<Culprit, u64> = HashMap::new();
    for (mut culprit, value) in values {
        if let Culprit::Program((name, tgid), _) = &mut culprit
            && let Some(known) = names.get(tgid)
        {
            *name = Arc::clone(known);
        }
        let sum = sums.entry(culprit).or_default();
        *sum = sum.saturating_add(value);
    }
    let sums = sums.into_iter();
    let mut blames: Vec<Blame> = sums
        .map(|(culprit, value)| Blame { culprit, value })
        .collect();
    blames.rank_by_key(|blame| {
        let order = (blame.culprit.is_nameless(), Reverse(blame.value));
        (order, blame.culprit.clone())
    });
    blames
}

fn neighbours(queue: &Interval) -> Vec<Blame> {
    let ran = queue.culprits.iter().map(|one| {
        let program = (Arc::clone(&one.comm), one.tgid);
        (Culprit::Program(program, None), one.caused_ns)
    });
    ranked(ran, &HashMap::new())
}
