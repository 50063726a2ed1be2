//! All of the threads' time in lines, each with who is to blame for it.

use std::cmp::Reverse;
use std::collections::HashMap;

use host::clock::Edges;
use profile::rank::Rank;
use session::quotas::UsedUp;

use crate::offcputime::is_in_go;
use crate::why::args::SAMPLES_HZ;
use crate::why::chosen::Chosen;
use crate::why::cycles::Cycles;
use crate::why::databases;
use crate::why::drafts::{Drafts, Found};
use crate::why::line::{Culprit, FOR_CHILD, LOST, Line, Program, RESIDUAL, UNSEEN};
use crate::why::locks::Split;
use crate::why::timeline::Moment;

/// All time of the threads that were asked for.
pub(crate) struct Account {
    /// Begin and end.
    pub(crate) window: Edges,
    /// Threads that were there at some time.
    pub(crate) threads: u64,
    /// Sum of their times in the window, ns.
    pub(crate) lifetime_ns: u64,
    /// The most first, but waits that may be for work behind others; idleness, what was not seen and the residual are last.
    pub(crate) lines: Vec<Line>,
    /// By name of their processes, the most time first, that of idleness last.
    pub(crate) programs: Vec<Program>,
    /// Threads of Go's runtime are among them, whose goroutines wait without one.
    pub(crate) is_go: bool,
    /// CPU quotas that threads lacked.
    pub(crate) quotas: Vec<UsedUp>,
    /// Share of the time that was looked at, where all figures are estimates.
    pub(crate) looked: Option<f64>,
    /// Work cycles, if they were asked for.
    pub(crate) cycles: Option<Cycles>,
    /// Pieces of the window, if they were asked for.
    pub(crate) moments: Vec<Moment>,
    /// It was chosen, where nobody was asked for.
    pub(crate) chosen: Option<Chosen>,
}

impl Account {
    /// Looks whether no thread was there that was asked for.
    pub(crate) fn is_of_nobody(&self) -> bool {
        self.threads == 0
    }

    /// Adds up what was found.
    pub(crate) fn of(found: &Found<'_>) -> Self {
        let sums = &found.waits.accounting;
        let locks = found.locks.map(|locks| Split::of(found.off, locks));
        let mut drafts = Drafts::new(locks.unwrap_or_default());
        for (row, sample) in found.waits.rows.iter().zip(&found.off.samples) {
            drafts.add_wait(found.off, sample, row);
        }
        for lengths in found.waits.details.queue.values() {
            drafts.add_queue_lengths(lengths);
        }
        drafts.add_cpu_time(found.on, sums.oncpu_ns);
        let cycles = found
            .cycles
            .map(|cycles| Cycles::of(cycles, (found, &drafts)));
        let mut lines = drafts.lines(found);
        databases::look(&mut lines, found.file_locks);
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
            is_go: found.off.samples.iter().any(|one| is_in_go(&one.user)),
            quotas: found.waits.quotas.clone(),
            looked: found.looked,
            cycles,
            moments: Vec::new(),
            chosen: None,
        }
    }

    /// Time of lines that are neither idleness nor sleep, ns.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.sum(Line::is_busy)
    }

    /// The same without waits that may be for work, ns, of which `first`, the line that costs most, is none.
    pub(crate) fn rest_ns(&self, first: &Line) -> u64 {
        match first.is_unclear {
            true => self.busy_ns(),
            false => self.sum(|line| line.is_busy() && !line.is_unclear),
        }
    }

    /// Time of all lines of a kind, ns.
    pub(crate) fn kind_ns(&self, kind: &str) -> u64 {
        self.sum(|line| line.kind == kind)
    }

    fn sum(&self, is_wanted: impl Fn(&Line) -> bool) -> u64 {
        let lines = self.lines.iter().filter(|line| is_wanted(line));
        lines.map(Line::time_ns).sum()
    }

    /// CPUs that the threads had at a moment, as samples tell; `None`: not all of the time was looked at.
    pub(crate) fn cpus(&self, moment: &Moment) -> Option<f64> {
        if self.looked.is_some() {
            return None;
        }
        let is_theirs = |tgid| {
            let chosen = self.chosen.as_ref();
            chosen.is_none_or(|chosen| chosen.tgids.contains(tgid))
        };
        let theirs = moment.samples.iter().filter(|(tgid, _)| is_theirs(tgid));
        let samples: u64 = theirs.map(|(_, samples)| samples).sum();
        let of_one_cpu = SAMPLES_HZ as f64 * moment.ns().max(1) as f64 / 1e9;
        Some(samples as f64 / of_one_cpu)
    }

    /// The line that costs most. A wait for a child is none where the child's own time is in the account.
    pub(crate) fn first(&self) -> Option<&Line> {
        let is_own_child = |line: &&Line| match line.first_blame() {
            Some((Culprit::Program(child, _), _)) => self.programs.contains(child),
            // A timer ended it, or nobody yet: the others here are those who may be waited for.
            _ => self.programs.len() > line.whose.len(),
        };
        let mut busy = self.lines.iter().filter(|line| line.is_busy());
        let others = |line: &&Line| line.kind != FOR_CHILD || !is_own_child(line);
        busy.clone().find(others).or_else(|| busy.next())
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
