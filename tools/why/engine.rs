//! why at work: the engines of offcputime, runqlat and profile over one window.

use anyhow::{Context, Result};
use budget::cost::Cost;
use budget::meter::Meter;
use budget::{Sampler, Windowed};
use host::clock::{Edges, monotonic_ns};
use host::{file_locks, privileges, remedies};
use profile::model::Profile;
use profile::{ends, nameless};
use session::closing::{self, Closing};
use session::sampling::{Collector, Sampled};
use session::together::{AsOne, Together};
use session::{Options, Setup, Tool};

use crate::biolatency::Biolatency;
use crate::lockstat::Lockstat;
use crate::offcputime::on_cpu::OnCpu;
use crate::offcputime::{Harvest, Offcputime};
use crate::profile::Profiling;
use crate::runqlat::Runqlat;
use crate::why::account::Account;
use crate::why::args::{Args, Parts};
use crate::why::beside::{Beside, Exact};
use crate::why::chosen::Chosen;
use crate::why::disks::Disks;
use crate::why::drafts::Found;
use crate::why::locks::{Locks, Seen, take_from_idleness};
use crate::why::ran::Functions;
use crate::why::timeline::{Moment, Timeline};
use crate::why::{report, wall};

/// Part of a budget that disks may cost.
const OF_DISKS: f64 = 0.1;

/// The same of locks.
const OF_LOCKS: f64 = 0.4;

/// All engines.
pub(crate) struct Why<'a> {
    args: &'a Args,
    waits: Offcputime<'a>,
    queue: Runqlat<'a>,
    cpu: Profiling<'a>,
    /// `None`: this kernel refuses its programs.
    disks: Option<Beside<'a, Disks<'a>>>,
    locks: Option<Beside<'a, Locks<'a>>>,
    /// Remarks for the closing lines.
    notes: Vec<String>,
    /// Only where it is shown.
    timeline: Option<Timeline>,
    meter: &'a Meter,
    /// From the report on.
    closing: Option<Closing>,
}

impl Sampled for Args {
    type Collector<'a> = AsOne<Why<'a>>;

    fn collector<'a>(&'a self, setup: &Setup<'a>) -> Result<Self::Collector<'a>> {
        let parts = self.parts()?;
        let Parts {
            waits, queue, cpu, ..
        } = parts;
        let waits = waits.collector(&setup.for_part(waits))?;
        let sharing = setup.for_part(cpu).sharing(waits.tables()?);
        let mut notes = Vec::new();
        let disks = optional(parts.disks(setup), "disks", &mut notes);
        let disks = disks.map(|engine| self.beside(Disks::new(engine), OF_DISKS, setup));
        let locks = optional(parts.locks(setup, &waits), "locks", &mut notes);
        let locks = locks.map(|engine| self.beside(Locks(engine), OF_LOCKS, setup));
        Ok(AsOne(Why {
            args: self,
            disks,
            locks,
            notes,
            queue: queue.collector(&setup.for_part(queue))?,
            cpu: cpu.collector(&sharing)?,
            waits,
            timeline: self.has_timeline().then(Timeline::default),
            meter: setup.meter,
            closing: None,
        }))
    }
}

impl Why<'_> {
    /// Pieces of a window that ended then.
    fn moments(&mut self, end_ns: u64) -> Vec<Moment> {
        let timeline = self.timeline.iter_mut();
        timeline
            .flat_map(|timeline| timeline.take(end_ns))
            .collect()
    }

    fn end_moment(&mut self) {
        if let Some(timeline) = &mut self.timeline {
            timeline.add(|end_ns| self.cpu.sampled(end_ns));
        }
    }

    fn cost(&self, sampler: &Sampler<'_>, window: Edges) -> Cost {
        let programs = self.parts().into_iter().flat_map(Windowed::programs);
        let objects = programs.map(|programs| programs.object);
        Cost::read(self.meter, objects, sampler.summary(window.end_ns))
    }

    /// Tells the engine of waits, which knows pieces of work, where threads ran.
    fn tell_samples(&mut self) {
        if self.args.slowest.is_some() {
            let samples = self.cpu.singles().into_iter();
            self.waits.add_samples(samples.map(OnCpu::from));
        }
    }

    /// Takes in the last samples of a window.
    fn end_samples(&mut self) {
        self.end_moment();
        self.tell_samples();
    }

    /// Those waits that the answer is about.
    fn choose(
        &mut self,
        waits: Harvest,
        contended: Option<Seen<'_>>,
        window: Edges,
    ) -> (Harvest, Profile, Option<Chosen>) {
        let is_choice = !self.args.targets.are_all();
        let off = self.without_idle_locks(&waits, contended, is_choice);
        let chosen = self
            .args
            .chooses()
            .then(|| Chosen::of(&off, &waits.details, window));
        let Some(chosen) = chosen.flatten() else {
            return (waits, off, None);
        };
        let waits = self.waits.of_processes(waits, &chosen.tgids);
        let off = self.without_idle_locks(&waits, contended, true);
        (waits, off, Some(chosen))
    }

    /// All waits, of which none for a lock is idle.
    fn without_idle_locks(
        &mut self,
        waits: &Harvest,
        contended: Option<Seen<'_>>,
        is_choice: bool,
    ) -> Profile {
        let mut off = self.waits.profile(waits, is_choice);
        if let Some(seen) = contended {
            take_from_idleness(&mut off, seen);
        }
        off
    }
}

impl Parts {
    fn locks<'a>(&'a self, setup: &Setup<'a>, waits: &Offcputime<'_>) -> Result<Lockstat<'a>> {
        let shared = setup.for_part(&self.locks).sharing(waits.tables()?);
        self.locks.load(&shared)
    }

    fn disks<'a>(&'a self, setup: &Setup<'a>) -> Result<Biolatency<'a>> {
        let setup = Setup {
            targets: &self.everyone,
            programs: self.disks.programs(setup.kernel, &self.everyone),
            ..setup.for_part(&self.disks)
        };
        Biolatency::load_part(&self.disks, &setup)
    }
}

impl Args {
    fn beside<'a, E: Exact>(&self, engine: E, share: f64, setup: &Setup<'a>) -> Beside<'a, E> {
        Beside::new(engine, setup.meter, (share, self.budget.max_overhead))
    }
}

/// An engine that the account can do without, and a note where this kernel has it do so.
fn optional<T>(loaded: Result<T>, what: &str, notes: &mut Vec<String>) -> Option<T> {
    match loaded {
        Ok(engine) => Some(engine),
        Err(error) => {
            let cause = remedies::line(&error, privileges::suffice());
            notes.push(format!("without {what}: {cause}"));
            None
        }
    }
}

impl Together for Why<'_> {
    fn parts(&self) -> Vec<&dyn Collector> {
        let mut parts: Vec<&dyn Collector> = vec![&self.cpu, &self.waits];
        parts.extend(self.disks.iter().map(|part| part as &dyn Collector));
        parts.extend(self.locks.iter().map(|part| part as &dyn Collector));
        // Its window's end takes a walk over all tasks, which no other waits for.
        parts.push(&self.queue);
        parts
    }

    fn parts_mut(&mut self) -> Vec<&mut dyn Collector> {
        let mut parts: Vec<&mut dyn Collector> = vec![&mut self.cpu, &mut self.waits];
        parts.extend(self.disks.iter_mut().map(|part| part as &mut dyn Collector));
        parts.extend(self.locks.iter_mut().map(|part| part as &mut dyn Collector));
        parts.push(&mut self.queue);
        parts
    }

    fn look_around(&mut self, can_afford_more: bool) -> Result<()> {
        let is_due = |timeline: &Timeline| timeline.is_due(monotonic_ns());
        if can_afford_more && self.timeline.as_ref().is_some_and(is_due) {
            self.end_moment();
        }
        self.tell_samples();
        Ok(())
    }

    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()> {
        // Locks come and go.
        let file_locks = file_locks::list();
        self.end_samples();
        let waits = self.waits.harvest(sampler, window)?;
        let mut queue = self.queue.harvest(window)?;
        let cpu = self.cpu.harvest(sampler, window)?;
        let disks = self.disks.as_mut().map(Beside::seen).transpose()?;
        let locks = self.locks.as_mut().map(Beside::seen).transpose()?;
        let mut on = self.cpu.profile(&cpu);
        let functions = |percent| (percent, Functions::of(&cpu.rows, &on));
        let slowest = self.args.slowest.map(functions);
        let whole = waits.accounting;
        let contended = locks
            .as_ref()
            .map(|seen| Seen::of(&seen.found, seen.scale(window)));
        let (waits, off, chosen) = self.choose(waits, contended, window);
        if let Some(Chosen { tgids, .. }) = &chosen {
            on.samples
                .retain(|sample| tgids.contains(&sample.task.tgid));
            queue.culprits.retain(|one| tgids.contains(&one.victim));
        }
        let mut account = Account::of(&Found {
            off: &off,
            on: &on,
            waits: &waits,
            file_locks: &file_locks,
            queue: &queue,
            disks: disks.as_ref().map(|seen| seen.scaled(window)),
            locks: contended,
            cycles: slowest
                .as_ref()
                .and_then(|(percent, ran)| Some((waits.cycles.as_ref()?, *percent, ran))),
            window,
            looked: (!sampler.is_exact()).then(|| sampler.share(window.end_ns)),
        });
        account.moments = self.moments(window.end_ns);
        account.chosen = chosen;
        let wall = wall::profile(&off, &on, waits.accounting.oncpu_ns);
        let cost = self.cost(sampler, window);
        let mut losses = waits.losses.clone();
        losses.absorb(&queue.losses);
        losses.absorb(&cpu.losses);
        if let Some(seen) = &locks {
            seen.tell("locks", window, &mut losses, &mut self.notes);
        }
        if let Some(seen) = &disks {
            seen.tell("disks", window, &mut losses, &mut self.notes);
        }
        let mut closing = Closing {
            events: (whole.events, closing::switches_and_wakeups(&cost)),
            ends: ends::describe(&wall),
            losses,
            check: Some(account.explained()),
            losses_of_ns: whole.lifetime_ns,
            ..self.waits.balance(&waits, &off, &cost)
        };
        closing.notes.append(&mut self.notes);
        closing.notes.extend(nameless::describe(&wall));
        report::report(self.args, &account, &wall, &closing)?;
        self.closing = Some(closing);
        Ok(())
    }

    fn closing(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<Closing> {
        self.closing.take().context("no report was made")
    }
}
