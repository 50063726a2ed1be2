//! Circumstances that an engine is made for.

use std::ffi::OsString;
use std::rc::Rc;

use anyhow::Result;
use budget::meter::Meter;
use host::privileges;
use libbpf_rs::{Link, MapCore};
use loader::iterate;
use stacks::unwind::{Maps, Method, Unwinder};
use stacks::{StackTable, Walker};
use symbols::{KernelNames, Origin, Symbolizer};

use crate::Options;
use crate::probe::Kernel;
use crate::targets::{Settings, Targets};

/// Circumstances that an engine is made for.
pub struct Setup<'a> {
    /// The tool's command.
    pub tool: &'static str,
    /// Nothing is said but results and errors.
    pub quiet: bool,
    /// The running one.
    pub kernel: &'a Kernel,
    /// Whom it was asked to look at.
    pub asked: &'a Targets,
    /// The same for the BPF side.
    pub targets: &'a Settings,
    /// Programs to load, see [`Options::programs`].
    pub programs: Vec<(&'static str, bool)>,
    /// `-- COMMAND` that is about to run: its process ID and program.
    pub command: Option<(u32, OsString)>,
    /// Measures what it costs.
    pub meter: &'a Meter,
    /// Unwind tables that another engine keeps; `None`: the engine has its own.
    pub tables: Option<Rc<Maps>>,
    /// That engine's way to walk by them threads that do not run.
    pub walker: Option<Walker>,
    /// Names of kernel code, the same for all engines of a session.
    pub kernel_names: KernelNames,
}

/// Stacks that an engine takes.
pub struct StackSetup {
    /// The BPF side's maps of unwind tables.
    pub tables: Maps,
    /// The way to walk user stacks.
    pub method: Method,
    /// Inlined functions get frames of their own.
    pub inline: bool,
    /// Calls of an interpreter's loop stay in stacks.
    pub native: bool,
    /// Place that kernel stacks are taken at.
    pub origin: Origin,
}

impl Setup<'_> {
    /// The same for another tool's engine, which is to be a part of this one's.
    #[must_use]
    pub fn for_part(&self, part: &impl Options) -> Self {
        Self {
            programs: part.programs(self.kernel, self.targets),
            command: self.command.clone(),
            tables: self.tables.clone(),
            walker: self.walker.clone(),
            kernel_names: self.kernel_names.clone(),
            ..*self
        }
    }

    /// The same for an engine that walks by the unwind tables of another one, which sees all threads that it sees.
    #[must_use]
    pub fn sharing(self, (tables, walker): (Maps, Walker)) -> Self {
        Self {
            tables: Some(Rc::new(tables)),
            walker: Some(walker),
            ..self
        }
    }

    /// Tells the BPF side the targets by its maps of them, and takes in those that run by `seed`, its iterator over all tasks.
    ///
    /// # Errors
    ///
    /// The kernel's refusals.
    pub fn seed(
        &self,
        tgids: &impl MapCore,
        tids: &impl MapCore,
        seed: Option<&Link>,
    ) -> Result<()> {
        self.targets.fill(tgids, tids)?;
        iterate::run(seed).map(drop)
    }

    /// A table of the stacks that come through `ring`, the BPF side's `stack_ring`; unwind tables for the targets are being made.
    ///
    /// # Errors
    ///
    /// Descriptors, threads or memory run out.
    pub fn stacks(&self, setup: StackSetup, ring: &impl MapCore) -> Result<StackTable> {
        // Another engine's words are this one's, too.
        if !self.quiet && self.tables.is_none() {
            privileges::say_unseen(self.tool);
        }
        // By frame pointers, it makes no tables.
        let method = match self.tables {
            Some(_) => Method::Fp,
            None => setup.method,
        };
        let mut unwinder = Unwinder::new(method, setup.tables, &self.asked.wanted())?;
        unwinder.keep_loops(setup.native);
        let symbolizer = Symbolizer::new(symbols::Options {
            inline: setup.inline,
            kernel: self.kernel_names.clone(),
            ..symbols::Options::default()
        })?;
        let mut stacks = StackTable::new(symbolizer, unwinder, setup.origin);
        if let Some(walker) = &self.walker {
            stacks.borrow_from(Rc::clone(walker));
        }
        stacks.listen(ring)?;
        let command = self.command.as_ref();
        let command = command.map(|(pid, program)| (*pid, program.as_os_str()));
        stacks.prepare(self.asked.processes_at_start(), command);
        Ok(stacks)
    }
}
