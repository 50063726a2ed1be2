//! why at work: the engines of offcputime, runqlat and profile over one window.

use anyhow::{Context, Result};
use budget::cost::Cost;
use budget::meter::Meter;
use budget::{Sampler, Windowed};
use host::clock::Edges;
use profile::ends;
use profile::model::Profile;
use session::Setup;
use session::closing::{self, Closing};
use session::sampling::{Collector, Sampled};
use session::together::{AsOne, Together};

use crate::offcputime::{Harvest, Offcputime};
use crate::profile::Profiling;
use crate::runqlat::Runqlat;
use crate::why::account::Account;
use crate::why::args::{Args, Parts};
use crate::why::chosen::Chosen;
use crate::why::drafts::Found;
use crate::why::{report, wall};

/// All engines.
pub(crate) struct Why<'a> {
    args: &'a Args,
    waits: Offcputime<'a>,
    queue: Runqlat<'a>,
    cpu: Profiling<'a>,
    meter: &'a Meter,
    /// From the report on.
    closing: Option<Closing>,
}

impl Sampled for Args {
    type Collector<'a> = AsOne<Why<'a>>;

    fn collector<'a>(&'a self, setup: &Setup<'a>) -> Result<Self::Collector<'a>> {
        let Parts { waits, queue, cpu } = self.parts()?;
        let waits = waits.collector(&setup.for_part(waits))?;
        let sharing = setup.for_part(cpu).sharing(waits.tables()?);
        Ok(AsOne(Why {
            args: self,
            queue: queue.collector(&setup.for_part(queue))?,
            cpu: cpu.collector(&sharing)?,
            waits,
            meter: setup.meter,
            closing: None,
        }))
    }
}

impl Why<'_> {
    /// Those waits that the answer is about.
    fn choose(&mut self, waits: Harvest, window: Edges) -> (Harvest, Profile, Option<Chosen>) {
        let is_choice = !self.args.targets.are_all();
        let off = self.waits.profile(&waits, is_choice);
        let chosen = self
            .args
            .chooses()
            .then(|| Chosen::of(&off, &waits.details, window));
        let Some(chosen) = chosen.flatten() else {
            return (waits, off, None);
        };
        let waits = self.waits.of_process(waits, chosen.program.1);
        let off = self.waits.profile(&waits, true);
        (waits, off, Some(chosen))
    }
}

impl Together for Why<'_> {
    fn parts(&self) -> Vec<&dyn Collector> {
        vec![&self.queue, &self.cpu, &self.waits]
    }

    fn parts_mut(&mut self) -> Vec<&mut dyn Collector> {
        vec![&mut self.queue, &mut self.cpu, &mut self.waits]
    }

    fn describe(&self) -> String {
        self.args.window().describe()
    }

    fn report(&mut self, sampler: &Sampler<'_>, window: Edges) -> Result<()> {
        let waits = self.waits.harvest(sampler, window)?;
        let mut queue = self.queue.harvest(window)?;
        let cpu = self.cpu.harvest(sampler, window)?;
        let mut on = self.cpu.profile(&cpu);
        let whole = waits.accounting;
        let (waits, off, chosen) = self.choose(waits, window);
        if let Some(Chosen { program, .. }) = &chosen {
            on.samples.retain(|sample| sample.task.tgid == program.1);
            queue.culprits.retain(|one| one.victim == program.1);
        }
        let mut account = Account::of(&Found {
            off: &off,
            on: &on,
            waits: &waits,
            queue: &queue,
            window,
            looked: (!sampler.is_exact()).then(|| sampler.share(window.end_ns)),
        });
        account.chosen = chosen;
        let wall = wall::profile(&off, &on, waits.accounting.oncpu_ns);
        let programs = self.parts().into_iter().flat_map(Windowed::programs);
        let objects = programs.map(|programs| programs.object);
        let cost = Cost::read(self.meter, objects, sampler.summary(window.end_ns));
        let mut losses = waits.losses.clone();
        losses.absorb(&queue.losses);
        losses.absorb(&cpu.losses);
        let closing = Closing {
            events: (whole.events, closing::switches_and_wakeups(&cost)),
            ends: ends::describe(&wall),
            losses,
            check: Some(account.explained()),
            losses_of_ns: whole.lifetime_ns,
            ..self.waits.balance(&waits, &off, &cost)
        };
        report::report(self.args, &account, &wall, &closing)?;
        self.closing = Some(closing);
        Ok(())
    }

    fn closing(&mut self, _sampler: &Sampler<'_>, _window: Edges) -> Result<Closing> {
        self.closing.take().context("no report was made")
    }
}
