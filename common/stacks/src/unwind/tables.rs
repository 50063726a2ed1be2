//! One table per file content, stored where BPF reads it while some process needs it.

use std::collections::HashMap;
use std::rc::Rc;

use unwind::{Image, PAGE_BITS, Rule, Table};

use super::free::Run;
use super::maker::{Known, Outcome};
use super::rules::Rules;
use super::words::{CHUNK_WORDS, Words};

/// A table in the words.
#[derive(Debug)]
pub(super) struct Stored {
    /// Word of its page index.
    pub(super) pages_at: u32,
    pub(super) pages: u32,
    /// Address of the first page in the file's own address space.
    pub(super) text_start: u64,
    runs: Vec<Run>,
}

impl Stored {
    /// Index of the rule at an offset from the first page; as `find_rule` in unwind_tables.bpf.h.
    pub(super) fn find(&self, words: &Words, offset: u64) -> u32 {
        let Some(page) = u32::try_from(offset >> PAGE_BITS)
            .ok()
            .filter(|page| *page < self.pages)
        else {
            return 0;
        };
        let (first, packed) = (
            words.read(self.pages_at + page * 2),
            words.read(self.pages_at + page * 2 + 1),
        );
        let low = u32::try_from(offset & ((1 << PAGE_BITS) - 1)).expect("10 bits");
        let wanted = low << 16 | 0xffff;
        let rows = first..first + (packed & 0xffff);
        let last = rows
            .map(|at| words.read(at))
            .take_while(|row| *row <= wanted)
            .last();
        last.map_or(packed >> 16, |row| row & 0xffff)
    }
}

/// A file's table, and what places its mappings.
#[derive(Clone, Debug)]
pub(super) struct Module {
    image: Rc<Image>,
    pub(super) stored: Rc<Stored>,
}

impl Module {
    /// What is subtracted from an address for the offset into the table's index, where the mapping of `offset` starts at
    /// `start`.
    pub(super) fn shift(&self, start: u64, offset: u64) -> Option<u64> {
        let bias = self.image.bias(start, offset)?;
        Some(bias.wrapping_add(self.stored.text_start))
    }

    /// Where in the file the loader's mappings of code start.
    pub(super) fn code_offsets(&self) -> impl Iterator<Item = u64> {
        let page = elf::page();
        let code = self
            .image
            .loads()
            .iter()
            .filter(|load| load.is_executable());
        code.map(move |load| load.offset & !(page - 1))
    }
}

/// What a file's outcome came to.
pub(super) enum Taken {
    Stored(Module),
    /// It has no table.
    Nothing,
    /// There is no room now.
    NoRoom,
    /// An equal file's table was there when this one was read, and has been dropped since; it must be read again.
    Dropped,
}

/// What did not become a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableLosses {
    /// Files that are broken, or not for this machine.
    pub(super) broken: u64,
    /// Files for which there was no room.
    pub(super) no_room: u64,
}

/// All tables.
#[derive(Default)]
pub(super) struct Tables {
    /// By the file's content: equal builds share.
    by_content: HashMap<u128, Rc<Stored>>,
    known: Known,
    pub(super) losses: TableLosses,
    /// Rows in all tables made so far, and the bytes that they took.
    pub(super) rows: u64,
    pub(super) made: u64,
}

impl Tables {
    /// The contents that are stored, for whoever makes tables.
    pub(super) fn known(&self) -> Known {
        self.known.clone()
    }

    /// Takes in what was made of a file.
    pub(super) fn take(&mut self, outcome: Outcome, words: &mut Words, rules: &mut Rules) -> Taken {
        let (image, key, table) = match outcome {
            Outcome::Nothing | Outcome::Later => return Taken::Nothing,
            Outcome::Broken => {
                self.losses.broken += 1;
                return Taken::Nothing;
            }
            Outcome::Table(image, key, table) => (Rc::from(image), key, table),
        };
        if let Some(stored) = self.by_content.get(&key) {
            let stored = Rc::clone(stored);
            return Taken::Stored(Module { image, stored });
        }
        let Some(table) = table else {
            return Taken::Dropped;
        };
        let Some(stored) = store(&table, words, rules) else {
            self.losses.no_room += 1;
            return Taken::NoRoom;
        };
        self.rows += table.rows.len() as u64;
        self.made += 1;
        let stored = Rc::new(stored);
        self.by_content.insert(key, Rc::clone(&stored));
        self.known.lock().insert(key);
        Taken::Stored(Module { image, stored })
    }

    /// Gives up tables that only this list still knows.
    pub(super) fn drop_unused(&mut self, words: &mut Words) {
        let mut known = self.known.lock();
        self.by_content.retain(|key, stored| {
            let used = Rc::strong_count(stored) > 1;
            if !used {
                known.remove(key);
                for run in &stored.runs {
                    words.retire(*run);
                }
            }
            used
        });
    }
}

/// Puts rows and pages into the words. Rows of one page stay in one chunk.
fn store(table: &Table, words: &mut Words, rules: &mut Rules) -> Option<Stored> {
    let indices = rules.intern(&table.rules);
    let mut runs = Vec::new();
    let stored = place(table, &indices, words, &mut runs);
    if stored.is_none() {
        for run in &runs {
            words.retire(*run);
        }
    }
    let (pages_at, pages) = stored?;
    Some(Stored {
        pages_at,
        pages,
        text_start: table.text_start,
        runs,
    })
}

fn place(
    table: &Table,
    indices: &[u16],
    words: &mut Words,
    runs: &mut Vec<Run>,
) -> Option<(u32, u32)> {
    let rule = |index: u16| {
        let known = indices.get(usize::from(index)).copied();
        u32::from(known.unwrap_or(0))
    };
    let mut index = Vec::with_capacity(table.pages.len() * 2);
    let mut pages = table.pages.as_slice();
    while !pages.is_empty() {
        let (group, rest) = pages.split_at(pages_of_one_chunk(pages));
        let mut rows = Vec::new();
        let mut starts = Vec::with_capacity(group.len());
        for page in group {
            starts.push(rows.len());
            let first = page.first as usize;
            let own = table.rows.get(first..first + usize::from(page.count))?;
            rows.extend(own.iter().map(|row| {
                let [low, high] = [row & 0xffff, row >> 16];
                high << 16 | rule(u16::try_from(low).expect("16 bits"))
            }));
        }
        let run = words.store(&rows, true)?;
        runs.push(run);
        for (page, start) in group.iter().zip(starts) {
            index.push(run.at + u32::try_from(start).ok()?);
            index.push(u32::from(page.count) | rule(page.entry_rule) << 16);
        }
        pages = rest;
    }
    let run = words.store(&index, false)?;
    runs.push(run);
    Some((run.at, u32::try_from(table.pages.len()).ok()?))
}

/// How many pages' rows one chunk holds, at least one page's.
fn pages_of_one_chunk(pages: &[unwind::Page]) -> usize {
    let mut rows = 0;
    let fit = pages.iter().take_while(|page| {
        rows += u32::from(page.count);
        rows <= CHUNK_WORDS
    });
    fit.count().max(1)
}

/// The rule at `offset`, for walks in user space.
pub(super) fn rule_at(stored: &Stored, words: &Words, rules: &Rules, offset: u64) -> Rule {
    rules.get(stored.find(words, offset))
}
