//! Unwind tables for the BPF side: made from the files that processes map, loaded when a mapping appears, dropped when
//! nobody has it any more.
//!
//! Tables are made by threads of their own (`maker`), so that the collection goes on meanwhile.
//! A file's table is made once for equal content, however many processes and containers map it. All tables together have
//! 256 MiB (`words`); what does not fit goes without, is counted, and is walked by frame pointers.

mod command;
mod files;
mod free;
mod losses;
mod maker;
mod outside;
mod processes;
mod publish;
mod pythons;
mod queue;
mod rules;
mod seen;
mod settings;
mod tables;
mod walks;
mod words;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use host::descriptors;
use host::procs;
use symbols::mappings::Backing;
use symbols::{Executable, Symbolizer};

pub use outside::Registers;
pub use settings::{Maps, Method, Wanted};

use crate::interpreters::Pythons;
use files::Files;
use maker::{Made, Maker};
use processes::{Listed, Processes};
use rules::Rules;
use tables::{Module, Tables, Taken};
use words::Words;

/// Tables that nobody has mapped any more are kept as long as all of them take no more bytes: the next process of a busy
/// shell script maps them again.
const KEPT_BYTES: usize = 32 << 20;

/// Tables that are taken in before the processes are published that wait for them.
const TAKEN_AT_ONCE: usize = 32;

/// The whole machine's tables may take seconds; what is not there when the window opens comes in it.
const WAIT_FOR_ALL: Duration = Duration::from_millis(200);
/// Longer than the largest program takes.
const WAIT_FOR_FEW: Duration = Duration::from_secs(5);

/// Keeps the BPF side's tables in step with what processes map.
pub struct Unwinder {
    method: Method,
    later: bool,
    followed: HashSet<u32>,
    /// A command is traced with all that it starts.
    tree: bool,
    words: Words,
    rules: Rules,
    tables: Tables,
    maker: Maker,
    /// By the symbolizer's number.
    modules: HashMap<u32, State>,
    /// Processes with files that found no room at the maker's.
    postponed: HashSet<u32>,
    processes: Processes,
    files: Files,
    pub(crate) pythons: Pythons,
    /// Processes that were not looked at for an interpreter since their mappings changed.
    unlooked: HashSet<u32>,
}

/// What is known of a file.
enum State {
    /// Its table is being made, and these processes wait for it.
    Making(HashSet<u32>),
    /// It has none.
    Without,
    /// There was no room for it; there may be when others are dropped.
    NoRoom,
    With(Module),
}

impl Unwinder {
    /// Tables for nobody yet.
    ///
    /// # Errors
    ///
    /// When the maps cannot be shared.
    pub fn new(method: Method, maps: Maps, wanted: &Wanted) -> Result<Self> {
        let tables = Tables::default();
        let maker = Maker::new(descriptors::allowed() / 16).context("make an event counter")?;
        if method != Method::Fp {
            let started = maker.start(&tables.known());
            started.context("start threads for unwind tables")?;
        }
        Ok(Self {
            method,
            later: wanted.later,
            followed: wanted.at_start.iter().copied().collect(),
            tree: false,
            words: Words::new(maps.chunks),
            rules: Rules::new(&maps.rules).context("map unwind rules")?,
            tables,
            maker,
            modules: HashMap::new(),
            postponed: HashSet::new(),
            processes: Processes::new(maps.processes),
            files: Files::new(maps.files),
            pythons: Pythons::new(maps.pythons),
            unlooked: HashSet::new(),
        })
    }

    /// Shows calls of Python's interpreter below the functions that they run, if asked to.
    pub fn keep_loops(&mut self, keeps: bool) {
        self.pythons.keeps_loops = keeps;
    }

    /// A command is about to run as process `tgid`: its tables are wanted, its children's too.
    pub fn follow_command(&mut self, tgid: u32, program: &OsStr) {
        if self.method == Method::Fp {
            return;
        }
        self.tree = true;
        self.followed.insert(tgid);
        for file in command::files(program) {
            // Kept by content until the command maps it.
            self.maker.order(None, file);
        }
    }

    /// Readable when tables were made: time for an [`Unwinder::update`].
    pub fn fd(&self) -> i32 {
        self.maker.fd()
    }

    /// Takes in what processes have mapped and unmapped since the last call, and the tables that were made.
    pub fn update(&mut self, symbolizer: &mut Symbolizer) {
        let changed = symbolizer.take_changed();
        if self.method == Method::Fp {
            return;
        }
        for tgid in changed {
            if self.later || self.is_followed(tgid) {
                self.refresh(tgid, symbolizer);
            }
        }
        // All are taken: nothing would tell of those that are left.
        while let Some(made) = self.maker.take() {
            self.add(made, symbolizer);
        }
        self.resume(symbolizer);
        self.look_for_python(symbolizer);
        if self.words.bytes() > KEPT_BYTES && self.processes.take_dropped() {
            self.drop_unused();
        }
        self.words.reclaim();
    }

    /// As [`Unwinder::update`], and waits for tables that are being made: for all of them where a few processes are traced.
    pub fn finish(&mut self, symbolizer: &mut Symbolizer) {
        let few_or_all = [WAIT_FOR_FEW, WAIT_FOR_ALL];
        self.finish_within(few_or_all[usize::from(self.later)], symbolizer);
    }

    /// The same, and waits for all tables in any case: what follows is not to pay for them.
    pub fn finish_all(&mut self, symbolizer: &mut Symbolizer) {
        self.finish_within(WAIT_FOR_FEW, symbolizer);
    }

    fn finish_within(&mut self, patience: Duration, symbolizer: &mut Symbolizer) {
        self.update(symbolizer);
        let deadline = Instant::now() + patience;
        while let Some(made) = self.maker.wait(deadline) {
            self.add(made, symbolizer);
        }
    }

    fn is_followed(&mut self, tgid: u32) -> bool {
        if self.followed.contains(&tgid) {
            return true;
        }
        let inherited =
            self.tree && procs::parent(tgid).is_some_and(|parent| self.followed.contains(&parent));
        if inherited {
            self.followed.insert(tgid);
        }
        inherited
    }

    /// Publishes the present mappings of a process, or that it is gone.
    fn refresh(&mut self, tgid: u32, symbolizer: &mut Symbolizer) {
        let Some(start_stack) = procs::stack_start(tgid) else {
            self.processes.forget(tgid, &mut self.words);
            self.pythons.forget(tgid);
            self.followed.remove(&tgid);
            return;
        };
        // An exec between the two readings would join old mappings and a new stack: then its event comes, and all anew.
        let Some(executables) = symbolizer.executables(tgid) else {
            return;
        };
        let python = self.pythons.number((tgid, start_stack));
        self.publish((tgid, start_stack), &executables, python, symbolizer);
        self.unlooked.insert(tgid);
    }

    fn publish(
        &mut self,
        (tgid, start_stack): (u32, u64),
        executables: &[Executable],
        python: u32,
        symbolizer: &mut Symbolizer,
    ) {
        let listed = executables
            .iter()
            .filter_map(|executable| self.list(tgid, executable, symbolizer))
            .collect();
        self.processes
            .publish(tgid, start_stack, listed, python, &mut self.words);
    }

    fn list(
        &mut self,
        tgid: u32,
        executable: &Executable,
        symbolizer: &mut Symbolizer,
    ) -> Option<Listed> {
        let module = self.module(tgid, executable.module, symbolizer)?;
        let shift = module.shift(executable.start, executable.offset)?;
        self.publish_file(executable, &module, symbolizer);
        Some(Listed {
            begin: executable.start,
            end: executable.end,
            shift,
            module,
        })
    }

    /// The next process that maps the file needs no list to be walked.
    fn publish_file(
        &mut self,
        executable: &Executable,
        module: &Module,
        symbolizer: &mut Symbolizer,
    ) {
        let (id, offset) = (executable.module, executable.offset);
        if !self.files.is_new(id, offset, module) {
            return;
        }
        match executable.backing {
            Backing::Vdso => {
                if let Some(shift) = module.shift(0, offset) {
                    self.files.publish_vdso(shift, module);
                }
            }
            Backing::File(key) => {
                if let Some(file) = symbolizer.module_file(id) {
                    self.files.publish(key, file, offset, module);
                }
            }
            Backing::Anonymous => {}
        }
    }

    /// The file's table if it is there; if not, it is ordered, and the process is listed anew when it comes.
    fn module(&mut self, tgid: u32, id: u32, symbolizer: &mut Symbolizer) -> Option<Module> {
        match self.modules.get_mut(&id) {
            Some(State::With(module)) => return Some(module.clone()),
            Some(State::Without | State::NoRoom) => return None,
            Some(State::Making(waiting)) => {
                if waiting.insert(tgid) {
                    self.maker.hurry(id);
                }
                return None;
            }
            None => {}
        }
        if self.maker.has_room() {
            self.order(tgid, id, symbolizer);
        } else {
            self.postponed.insert(tgid);
        }
        None
    }

    fn order(&mut self, tgid: u32, id: u32, symbolizer: &mut Symbolizer) {
        let file = symbolizer.module_file(id);
        if let Some(file) = file.and_then(|file| file.try_clone().ok()) {
            self.maker.order(Some(id), file);
            self.modules
                .insert(id, State::Making(HashSet::from([tgid])));
        }
    }

    /// Takes in a table and others that are there, publishes them, and orders what found no room before.
    fn add(&mut self, made: Made, symbolizer: &mut Symbolizer) {
        let mut waiting = self.store(made);
        // A process that maps a thousand files is not published for the table of each.
        for _ in 1..TAKEN_AT_ONCE {
            let Some(next) = self.maker.take() else { break };
            waiting.extend(self.store(next));
        }
        for tgid in waiting {
            self.refresh(tgid, symbolizer);
        }
        self.resume(symbolizer);
    }

    /// Stores a table; the processes that wait for it.
    fn store(&mut self, made: Made) -> HashSet<u32> {
        let taken = self
            .tables
            .take(made.outcome, &mut self.words, &mut self.rules);
        let Some(id) = made.module else {
            if let Taken::Stored(module) = taken {
                self.files.publish_ahead(&made.file, &module);
            }
            return HashSet::new();
        };
        let before = match taken {
            Taken::Stored(module) => self.modules.insert(id, State::With(module)),
            Taken::Nothing => self.modules.insert(id, State::Without),
            Taken::NoRoom => self.modules.insert(id, State::NoRoom),
            // Who waits for it orders it again.
            Taken::Dropped => self.modules.remove(&id),
        };
        match before {
            Some(State::Making(waiting)) => waiting,
            _ => HashSet::new(),
        }
    }

    /// Orders what found no room before.
    fn resume(&mut self, symbolizer: &mut Symbolizer) {
        if self.postponed.is_empty() || !self.maker.has_much_room() {
            return;
        }
        let mut waiting: Vec<u32> = std::mem::take(&mut self.postponed).into_iter().collect();
        // Those come first, which is last here, of which a stack was seen.
        waiting.sort_unstable_by_key(|tgid| self.followed.contains(tgid));
        while self.maker.has_room()
            && let Some(tgid) = waiting.pop()
        {
            self.refresh(tgid, symbolizer);
        }
        self.postponed.extend(waiting);
    }

    fn drop_unused(&mut self) {
        let in_use = self.processes.tables_in_use();
        self.modules.retain(|_, state| match state {
            State::With(module) => in_use.contains(&module.stored.pages_at),
            State::Making(_) | State::Without => true,
            State::NoRoom => false,
        });
        self.files.keep(|pages_at| in_use.contains(&pages_at));
        self.tables.drop_unused(&mut self.words);
    }
}
