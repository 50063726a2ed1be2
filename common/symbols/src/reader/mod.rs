//! Asks a process of its own for the names in other people's files.
//!
//! The libraries for ELF, DWARF and compressed sections are made for honest files. They map a file whose owner may cut it
//! short (SIGBUS), recurse as deep as its debug information is nested (stack overflow), unpack what claims to be small,
//! follow names in it. None of that can be caught in the process in which it happens. Here it happens in one that has
//! nothing to lose (see `child`): if it dies, or takes too long, that file is refused, and the next process goes on. A file system
//! that twice delivers nothing for seconds is left alone: the report is waited for.
//!
//! Who makes it die pays: after a second time that owner's files are not read any more in this run. Time is counted, too
//! (see `spent`), also that of answers: a small file can take long without any harm to the process. What nobody but root can have
//! written has an account for each file system, since all containers may have the same root; everything else has one together.

mod answer;
mod child;
mod spent;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use foreign::helper::{Helper, READS_NAMES, is_silence};

use super::elfnames::{ElfNames, Functions};
use answer::{Answer, MAX_ADDRESSES, MAX_ANSWER, Question};
use spent::{MAX_LOST, MAX_LOST_OF_ROOT, Spent};

/// For an answer: indexing the debug information of the largest programs takes some seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Deaths of the reading process that one owner's files on one file system may cause.
const MAX_DEATHS: u32 = 2;
/// As many for those that only root can have written: honest files that the libraries do not understand, most likely.
const MAX_DEATHS_OF_ROOT: u32 = 8;
/// Times that a file system may not answer, after which no more of its files are read.
const MAX_SILENCES: u32 = 2;
/// Whose file, as far as the kernel knows: containers have file systems of their own, and all are root in theirs.
type Owner = (u32, u64);

/// The reading process, if there is one, and what became of those before.
pub(super) struct Reader {
    inline: bool,
    process: Option<Process>,
    deaths: HashMap<Owner, u32>,
    /// Times that a file system did not deliver what was read of it, by device.
    silences: HashMap<u64, u32>,
    /// By file system for files of root, `None` for all others.
    spent: HashMap<Option<u64>, Spent>,
    /// Files whose debug information made it die.
    without_dwarf: HashSet<u64>,
    /// Files that made it die all the same, or that were not given to it because of what their owner did before.
    bad: HashSet<u64>,
}

impl Reader {
    pub(super) fn new(inline: bool) -> Self {
        Self {
            inline,
            process: None,
            deaths: HashMap::new(),
            silences: HashMap::new(),
            spent: HashMap::new(),
            without_dwarf: HashSet::new(),
            bad: HashSet::new(),
        }
    }

    /// Drops everything that was read.
    pub(super) fn reset(&mut self) {
        self.process = None;
    }

    /// Files that were refused so far.
    pub(super) fn refused(&self) -> u64 {
        self.bad.len() as u64
    }

    /// The functions at ELF virtual addresses of `file`, which is known as `id` until the next reset; `dwarf` allows to
    /// read its debug information.
    pub(super) fn resolve(
        &mut self,
        id: u64,
        file: &File,
        dwarf: bool,
        addresses: &[u64],
    ) -> Vec<Option<Functions>> {
        let mut found = Vec::with_capacity(addresses.len());
        for part in addresses.chunks(MAX_ADDRESSES) {
            let dwarf = dwarf && !self.without_dwarf.contains(&id);
            let mut answer = self.ask(id, file, dwarf, part);
            if dwarf && matches!(answer, Heard::Nothing) {
                self.without_dwarf.insert(id);
                answer = self.ask(id, file, false, part);
            }
            match answer {
                Heard::Names(names) => found.extend(names),
                Heard::Nothing | Heard::Refused => {
                    self.bad.insert(id);
                    found.extend(part.iter().map(|_| None));
                }
            }
        }
        found
    }

    fn ask(&mut self, id: u64, file: &File, dwarf: bool, addresses: &[u64]) -> Heard {
        let Ok(metadata) = file.metadata() else {
            return Heard::Refused;
        };
        if self.bad.contains(&id) || !self.is_admitted(&metadata) {
            return Heard::Refused;
        }
        let question = Question {
            file: id,
            dwarf,
            addresses: addresses.to_vec(),
        };
        let started = self
            .process
            .take()
            .map_or_else(|| Process::start(self.inline), Ok);
        let Ok(mut process) = started else {
            return Heard::Refused;
        };
        let (began, cpu_ns) = (Instant::now(), process.helper.cpu_ns());
        let heard = process.ask(&question, file);
        let spent = self.spent.entry(account(&metadata)).or_default();
        match heard {
            Ok(answer) => {
                // Of a busy machine's time the file is not guilty.
                let took = Duration::from_nanos(process.helper.cpu_ns().saturating_sub(cpu_ns));
                spent.answer(took, metadata.blocks().saturating_mul(512));
                self.process = Some(process);
                answer.map_or(Heard::Refused, Heard::Names)
            }
            Err(error) if is_silence(&error) => {
                *self.silences.entry(metadata.dev()).or_default() += 1;
                Heard::Refused
            }
            Err(_) => {
                spent.lost += began.elapsed();
                *self.deaths.entry(owner(&metadata)).or_default() += 1;
                Heard::Nothing
            }
        }
    }

    fn is_admitted(&self, metadata: &Metadata) -> bool {
        let account = account(metadata);
        let deaths = self.deaths.get(&owner(metadata)).copied().unwrap_or(0);
        let lost = self.spent.get(&account).map_or(Duration::ZERO, |s| s.lost);
        let (most, longest) = match account {
            Some(_) => (MAX_DEATHS_OF_ROOT, MAX_LOST_OF_ROOT),
            None => (MAX_DEATHS, MAX_LOST),
        };
        let silences = self.silences.get(&metadata.dev()).copied().unwrap_or(0);
        deaths < most && lost < longest && silences < MAX_SILENCES
    }
}

fn owner(metadata: &Metadata) -> Owner {
    (metadata.uid(), metadata.dev())
}

/// Whose time it is: see [`Reader::spent`].
fn account(metadata: &Metadata) -> Option<u64> {
    let is_roots = metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    is_roots.then(|| metadata.dev())
}

/// What came of a question.
enum Heard {
    /// One entry per address.
    Names(Vec<Option<Functions>>),
    /// The file was not read.
    Refused,
    /// The process died, or had to be killed.
    Nothing,
}

/// One reading process.
struct Process {
    helper: Helper,
    /// Files that it has.
    known: HashSet<u64>,
}

impl Process {
    fn start(inline: bool) -> io::Result<Self> {
        Ok(Self {
            helper: Helper::start(&READS_NAMES, |socket| {
                child::serve(socket, ElfNames::new(inline))
            })?,
            known: HashSet::new(),
        })
    }

    fn ask(
        &mut self,
        question: &Question,
        file: &File,
    ) -> io::Result<Option<Vec<Option<Functions>>>> {
        let is_new = self.known.insert(question.file);
        self.helper.ask(question, is_new.then(|| file.as_fd()))?;
        let message = self.helper.hear(PATIENCE, MAX_ANSWER, false)?;
        message.read::<Answer>()?.to(question)
    }
}
