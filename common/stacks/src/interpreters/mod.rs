//! Functions of Python: interpreters among the processes, for the BPF side, and names and places of functions in stacks.
//!
//! The BPF side walks the interpreter's own frames behind the native ones (`python_walk.bpf.h`). Here the two are joined, and
//! functions get their names out of the process's memory, soon after the stack has come.

mod codes;
mod join;
mod layout;
mod locks;
mod outer;
mod outside;
mod parts;
mod process;
mod splice;
mod turns;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foreign::pages::Kept;
use host::{WALKS_PYTHON, procs};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use profile::losses::Losses;
use python::{Refusal, Runtime};
use symbols::{Executable, Symbolizer};

use crate::record::PythonStack;
use codes::Codes;
pub use locks::{LOCKS_TOLD, PythonLocks};
pub(crate) use parts::{Part, named};
use process::{Binaries, KeptPages, Traced, may_hold};
pub use turns::{PYTHON_WAITS, waits_for_python};

/// `MAX_PYTHONS` of the BPF side; number 0 is none.
const MOST_LAYOUTS: usize = 256;
/// Processes that are remembered.
const MOST_PROCESSES: usize = 1 << 15;
/// Time between looks at one that has not made its interpreter yet: the first time, and at most.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_secs(1);

/// This stands for functions outside of the outermost that was walked.
const CUT: &str = "[Python: more functions]";

/// Facts known of a process's interpreter.
enum State {
    /// It has one.
    Runs(Arc<Runtime>),
    /// It will have one, most likely.
    Early { again: Instant, wait: Duration },
    /// None, or one that is not walked.
    Without,
}

struct Process {
    /// Tells an address space from the one before exec.
    space: u64,
    /// Files that were looked at.
    modules: Vec<u32>,
    state: State,
}

/// Interpreters, and names of their functions.
pub(crate) struct Pythons {
    /// `pythons`
    map: MapHandle,
    /// Its contents, from number 1 on.
    layouts: Vec<[u8; layout::BYTES]>,
    processes: HashMap<u32, Process>,
    /// Ranges of files that hold the interpreter's loop, by module: file offsets.
    loops: HashMap<u32, Vec<Range<u64>>>,
    binaries: Binaries,
    codes: Codes,
    /// Calls of the loop are shown, too, below the functions that they run.
    pub(crate) keeps_loops: bool,
    locks: locks::Locks,
    /// Processes that run Python.
    found: u64,
    refused: u64,
    /// Interpreters that the BPF side could not be told of.
    no_room: u64,
    /// The reason why one was, the last time.
    refusal: Option<Refusal>,
    /// Stacks whose functions are not all there.
    cut: u64,
    unreadable: u64,
    /// Stacks of which the halves do not fit, or that have functions of an outer interpreter.
    unmatched: u64,
}

impl Pythons {
    /// `map` is the BPF side's table of interpreters.
    pub(crate) fn new(map: MapHandle) -> Self {
        Self {
            map,
            layouts: Vec::new(),
            processes: HashMap::new(),
            loops: HashMap::new(),
            binaries: Binaries::default(),
            codes: Codes::default(),
            keeps_loops: false,
            locks: locks::Locks::default(),
            found: 0,
            refused: 0,
            no_room: 0,
            refusal: None,
            cut: 0,
            unreadable: 0,
            unmatched: 0,
        }
    }

    /// Looks for an interpreter in a process that maps these files, unless it is known; returns whether it has found one. `space`: see
    /// [`host::procs::stack_start`].
    pub(crate) fn look(
        &mut self,
        (tgid, space): (u32, u64),
        executables: &[Executable],
        symbolizer: &mut Symbolizer,
    ) -> bool {
        if !WALKS_PYTHON {
            return false;
        }
        let is_candidate = |file: &&Executable| may_hold(symbolizer.module_path(file.module));
        let mut modules: Vec<u32> = executables
            .iter()
            .filter(is_candidate)
            .map(|file| file.module)
            .collect();
        modules.dedup();
        if modules.is_empty() {
            return false;
        }
        let known = self
            .processes
            .get(&tgid)
            .filter(|known| known.space == space && known.modules == modules);
        let wait = match known.map(|known| &known.state) {
            Some(State::Runs(_) | State::Without) => return false,
            Some(State::Early { again, .. }) if Instant::now() < *again => return false,
            Some(State::Early { wait, .. }) => (*wait * 2).min(LATER),
            None => SOON,
        };
        let state = self.state(tgid, executables, symbolizer, wait);
        let is_found = matches!(state, State::Runs(_));
        if let State::Runs(runtime) = &state {
            self.locks.learn((tgid, space), runtime);
        }
        if self.processes.len() >= MOST_PROCESSES {
            self.processes.clear();
        }
        self.processes.insert(
            tgid,
            Process {
                space,
                modules,
                state,
            },
        );
        is_found
    }

    /// The same for one that was not looked at yet, of which a stack has come.
    pub(crate) fn ensure(&mut self, tgid: u32, symbolizer: &mut Symbolizer) {
        let is_known = |process: &Process| matches!(process.state, State::Runs(_));
        if self.processes.get(&tgid).is_some_and(is_known) {
            return;
        }
        if let Some(space) = procs::stack_start(tgid)
            && let Some(executables) = symbolizer.executables(tgid)
        {
            self.look((tgid, space), &executables, symbolizer);
        }
    }

    fn state(
        &mut self,
        tgid: u32,
        executables: &[Executable],
        symbolizer: &mut Symbolizer,
        wait: Duration,
    ) -> State {
        let Some(process) = Traced::new(tgid, executables, &mut self.binaries, symbolizer) else {
            return State::Without;
        };
        match Runtime::find(&process) {
            Ok(Some(runtime)) => {
                self.found += 1;
                self.learn_loops(&runtime, executables);
                State::Runs(Arc::new(runtime))
            }
            Ok(None) => State::Without,
            Err(refusal) if refusal.may_pass() => State::Early {
                again: Instant::now() + wait,
                wait,
            },
            Err(refusal) => {
                self.refused += 1;
                self.refusal = Some(refusal);
                State::Without
            }
        }
    }

    /// The loop's code by its file, for processes that are gone before anyone has looked at them.
    fn learn_loops(&mut self, runtime: &Runtime, executables: &[Executable]) {
        for range in &runtime.loops {
            let holder = executables
                .iter()
                .find(|file| file.start <= range.start && range.end <= file.end);
            let Some(file) = holder else { continue };
            let offset = |address: u64| address - file.start + file.offset;
            let range = offset(range.start)..offset(range.end);
            let known = self.loops.entry(file.module).or_default();
            if !known.contains(&range) {
                known.push(range);
            }
        }
    }

    /// Number of a process's interpreter on the BPF side, which learns it; 0: it has none, or runs another program by now.
    pub(crate) fn number(&mut self, (tgid, space): (u32, u64)) -> u32 {
        let process = self.processes.get(&tgid);
        let Some(State::Runs(runtime)) = process
            .filter(|process| process.space == space)
            .map(|process| &process.state)
        else {
            return 0;
        };
        let Some(layout) = layout::encode(runtime) else {
            self.no_room += 1;
            return 0;
        };
        let known = self.layouts.iter().position(|known| *known == layout);
        let number = known.unwrap_or(self.layouts.len()) + 1;
        if known.is_none() {
            let key = u32::try_from(number).expect("few").to_ne_bytes();
            if number >= MOST_LAYOUTS || self.map.update(&key, &layout, MapFlags::ANY).is_err() {
                self.no_room += 1;
                return 0;
            }
            self.layouts.push(layout);
        }
        u32::try_from(number).expect("few")
    }

    /// Processes that may have made their interpreters by now.
    pub(crate) fn due(&self) -> Vec<u32> {
        let now = Instant::now();
        let is_due = |process: &Process| matches!(&process.state, State::Early { again, .. } if *again <= now);
        let due = self.processes.iter().filter(|(_, process)| is_due(process));
        due.map(|(tgid, _)| *tgid).collect()
    }

    /// The process is gone.
    pub(crate) fn forget(&mut self, tgid: u32) {
        self.processes.remove(&tgid);
    }

    /// The interpreter of a process, and the address space that it is in.
    fn runtime(&self, tgid: u32) -> Option<(u64, Arc<Runtime>)> {
        match self.processes.get(&tgid)? {
            Process {
                space,
                state: State::Runs(runtime),
                ..
            } => Some((*space, Arc::clone(runtime))),
            _ => None,
        }
    }

    /// Functions of a thread that does not run, by the address that its own data lies around. `None`: it runs no Python.
    pub(crate) fn walk(
        &self,
        tgid: u32,
        thread_pointer: u64,
        memory: &Kept,
    ) -> Option<PythonStack> {
        let (_, runtime) = self.runtime(tgid)?;
        outside::walk(&KeptPages(tgid, memory), &runtime, thread_pointer)
    }

    /// Those that did not fit, or were not to be read.
    pub(crate) fn count_losses(&self, losses: &mut Losses) {
        let unnamed = &self.codes.unnamed;
        losses.count("python_cut", "stacks of Python: too deep", self.cut);
        losses.count(
            "python_unreadable",
            "stacks of Python: memory not there",
            self.unreadable,
        );
        losses.count(
            "python_unmatched",
            "stacks of Python: functions missing",
            self.unmatched,
        );
        losses.count(
            "python_replaced",
            "functions of Python: code replaced",
            unnamed.replaced,
        );
        losses.count(
            "python_unread",
            "functions of Python: not read in time",
            unnamed.unread,
        );
        losses.count(
            "python_functions_full",
            "functions of Python: no room",
            unnamed.full,
        );
        losses.count(
            "python_full",
            "interpreters of Python: no room",
            self.no_room,
        );
    }

    /// Words for `-v`.
    pub(crate) fn describe(&self) -> String {
        let why = self
            .refusal
            .as_ref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        format!(
            "{} processes run Python, {} not walked{why}",
            self.found, self.refused
        )
    }
}
