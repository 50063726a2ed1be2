//! A program's mappings and the tables of their code, laid out as user space does it for the kernel side.

use std::collections::BTreeMap;

use fastrand::Rng;
use unwind::{Cfa, FpMode, Page, Rule, Table};

use crate::memory::{Memory, PAGE};

/// Words of one chunk of tables.
pub(crate) const CHUNK: u32 = 1 << 19;
const TABLE_PAGE: u64 = 1024;
/// Bytes of code around an address that belong to nobody else.
const AROUND: u64 = 24;

/// The kernel's knowledge of a mapping, beside its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    File,
    Vdso,
    /// Neither a file nor the vDSO.
    Anonymous,
    /// It is another address space's by now.
    Stale,
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Bytes of its table in front of the mapping.
    pub(crate) skip: u64,
    pub(crate) backing: Backing,
    /// Pages of its table; 0: it has none.
    pub(crate) pages: u64,
    /// Lengths and rules by offset from the table's begin.
    placed: BTreeMap<u64, (u64, u16)>,
    pub(crate) table: Table,
}

/// The place that an instruction shall have.
#[derive(Default)]
pub(crate) struct Wanted {
    /// `None`: a place without rule.
    pub(crate) rule: Option<Rule>,
    /// The frame is at it, and does not return to it.
    pub(crate) exact: bool,
    pub(crate) before: Vec<u8>,
    pub(crate) code: Vec<u8>,
    /// The address's last four bits: from the first on, before the second.
    pub(crate) low: Option<(u64, u64)>,
    /// Its module, that of the program itself if `None`.
    pub(crate) module: Option<usize>,
}

pub(crate) struct World {
    pub(crate) memory: Memory,
    /// Modules in the order of their addresses.
    pub(crate) modules: Vec<Module>,
    pub(crate) rules: Vec<Rule>,
    taken: BTreeMap<u64, u64>,
}

impl World {
    /// `unlisted`: the kernel is asked for mappings, and these may be of any kind.
    pub(crate) fn drawn(rng: &mut Rng, unlisted: bool) -> Self {
        let mut at = [0x40_0000, 0x5555_5555_4000, 0x7fff_e000_0000][rng.usize(0..3)];
        let mut modules = Vec::new();
        for number in 0..[1, 2, 3, 8, 9, 20, 40, 90][rng.usize(0..8)] {
            at += [0, 0, PAGE, 0x10_0000][rng.usize(0..4)];
            let length = PAGE * rng.u64(1..6);
            let backing = match rng.u32(0..12) {
                0 if unlisted => Backing::Anonymous,
                1 if unlisted => Backing::Stale,
                2 if unlisted
                    && number > 0
                    && !modules
                        .iter()
                        .any(|it: &Module| it.backing == Backing::Vdso) =>
                {
                    Backing::Vdso
                }
                _ => Backing::File,
            };
            let skip = rng.u64(0..3) * 16 * rng.u64(0..100);
            let most = (skip + length).div_ceil(TABLE_PAGE);
            let pages = match rng.u32(0..6) {
                0 => 0,
                1 => rng.u64(skip / TABLE_PAGE + 1..=most),
                _ => most,
            };
            modules.push(Module {
                begin: at,
                end: at + length,
                skip,
                backing,
                pages: if number == 0 { most } else { pages },
                placed: BTreeMap::new(),
                table: Table::default(),
            });
            at += length;
        }
        modules[0].backing = Backing::File;
        Self {
            memory: Memory::default(),
            modules,
            rules: vec![Rule::UNCOVERED],
            taken: BTreeMap::new(),
        }
    }

    fn rule_index(&mut self, rule: Rule) -> u16 {
        let found = self.rules.iter().position(|it| *it == rule);
        let index = found.unwrap_or_else(|| {
            self.rules.push(rule);
            self.rules.len() - 1
        });
        u16::try_from(index).expect("few")
    }

    /// The mapping that holds an address.
    pub(crate) fn module_of(&self, pc: u64) -> Option<&Module> {
        self.modules
            .iter()
            .find(|it| (it.begin..it.end).contains(&pc))
    }

    /// True: a walk that is at this address has met a table.
    pub(crate) fn has_table(&self, pc: u64) -> bool {
        self.module_of(pc).is_some_and(Module::has_table)
    }

    fn is_free(&self, from: u64, to: u64) -> bool {
        let before = self.taken.range(..to).next_back();
        before.is_none_or(|(_, end)| *end <= from)
    }

    /// A place among bytes: often one of the first or last, or beside a page's edge.
    fn offset(rng: &mut Rng, bytes: u64) -> u64 {
        let edge = [TABLE_PAGE, PAGE][rng.usize(0..2)] * rng.u64(0..=bytes / TABLE_PAGE);
        let offset = match rng.u32(0..8) {
            0 => rng.u64(0..2),
            1 => bytes - 1 - rng.u64(0..2).min(bytes - 1),
            2..=4 => edge.saturating_sub(3) + rng.u64(0..6),
            _ => rng.u64(0..bytes),
        };
        offset.min(bytes - 1)
    }

    fn somewhere(&self, rng: &mut Rng, wanted: &Wanted) -> Option<(u64, Option<usize>)> {
        let at = wanted
            .module
            .unwrap_or_else(|| rng.usize(0..self.modules.len()));
        let module = &self.modules[at];
        let pc = module.begin + Self::offset(rng, module.end - module.begin);
        let is_covered = module.has_table() && module.covers(pc);
        match wanted.rule {
            Some(_) => is_covered.then_some((pc, Some(at))),
            None if rng.u32(0..4) == 0 => {
                let around = [module.begin - 1, module.end, module.end + 0x800];
                let outside = around[rng.usize(0..3)].saturating_add(rng.u64(0..40));
                self.module_of(outside).is_none().then_some((outside, None))
            }
            None => Some((pc, is_covered.then_some(at))),
        }
    }

    /// Puts code somewhere, and its rule into the table there. `None`: there is no room.
    pub(crate) fn place(&mut self, rng: &mut Rng, wanted: &Wanted) -> Option<u64> {
        for _ in 0..200 {
            let Some((pc, at)) = self.somewhere(rng, wanted) else {
                continue;
            };
            let ip = pc + u64::from(!wanted.exact);
            let code = wanted.code.len() as u64;
            let is_low = wanted
                .low
                .is_none_or(|(from, to)| (from..to).contains(&(ip & 15)));
            let is_whole = ip % PAGE + code <= PAGE;
            if !is_low || !is_whole || !self.is_free(ip - AROUND, ip + AROUND) {
                continue;
            }
            self.taken.insert(ip - AROUND, ip + AROUND);
            if code > 0 {
                self.memory.write(ip, &wanted.code);
            }
            if !wanted.before.is_empty() {
                self.memory
                    .write(ip - wanted.before.len() as u64, &wanted.before);
            }
            if let Some(at) = at {
                let rule = self.rule_index(wanted.rule.unwrap_or(Rule::UNCOVERED));
                let module = &mut self.modules[at];
                let offset = module.offset_of(pc);
                module.placed.insert(offset, (rng.u64(1..4), rule));
            }
            return Some(ip);
        }
        None
    }

    fn distractor(&mut self, rng: &mut Rng) -> u16 {
        let rule = Rule {
            cfa: [Cfa::Sp, Cfa::Bp, Cfa::End, Cfa::Uncovered][rng.usize(0..4)],
            fp: FpMode::Same,
            fp_offset: 0,
            cfa_offset: 8 * rng.i32(1..9),
            slot: 0,
        };
        self.rule_index(if rule.cfa == Cfa::Uncovered {
            Rule::UNCOVERED
        } else {
            rule
        })
    }

    /// The tables, with other rules around what was placed.
    pub(crate) fn make_tables(&mut self, rng: &mut Rng) {
        for at in 0..self.modules.len() {
            let bytes = self.modules[at].pages * TABLE_PAGE;
            if bytes == 0 {
                continue;
            }
            let mut rows = BTreeMap::from([(0, self.distractor(rng))]);
            for _ in 0..rng.u64(0..=bytes / 64) {
                rows.insert(rng.u64(0..bytes), self.distractor(rng));
            }
            for (offset, (length, rule)) in std::mem::take(&mut self.modules[at].placed) {
                rows.retain(|row, _| !(offset..=offset + length).contains(row));
                rows.insert(offset, rule);
                rows.insert(offset + length, self.distractor(rng));
            }
            self.modules[at].table = table(&rows, self.modules[at].pages);
        }
        let rules = self.rules.clone();
        for module in &mut self.modules {
            module.table.rules.clone_from(&rules);
        }
    }

    /// Makes all pages of code readable, and one in front of each mapping.
    pub(crate) fn map_code(&mut self) {
        for module in &self.modules {
            for page in (module.begin - PAGE..module.end).step_by(PAGE as usize) {
                self.memory.map(page);
            }
        }
    }

    /// The rule for an address, by the tables as user space has them.
    pub(crate) fn rule(&self, pc: u64) -> Rule {
        let module = self.module_of(pc).filter(|it| it.has_table());
        module.map_or(Rule::UNCOVERED, |module| {
            module.table.lookup(module.offset_of(pc))
        })
    }
}

impl Module {
    pub(crate) fn has_table(&self) -> bool {
        self.pages > 0 && matches!(self.backing, Backing::File | Backing::Vdso)
    }

    fn offset_of(&self, pc: u64) -> u64 {
        pc - self.begin + self.skip
    }

    fn covers(&self, pc: u64) -> bool {
        self.offset_of(pc) / TABLE_PAGE < self.pages
    }
}

fn table(rows: &BTreeMap<u64, u16>, pages: u64) -> Table {
    let mut table = Table::default();
    let mut current = 0;
    for page in 0..pages {
        let begin = page * TABLE_PAGE;
        current = rows.get(&begin).copied().unwrap_or(current);
        let first = table.rows.len();
        let entry_rule = current;
        for (offset, rule) in rows.range(begin + 1..begin + TABLE_PAGE) {
            let low = u32::try_from(offset - begin).expect("10 bits");
            table.rows.push(low << 16 | u32::from(*rule));
            current = *rule;
        }
        table.pages.push(Page {
            first: u32::try_from(first).expect("few"),
            count: u16::try_from(table.rows.len() - first).expect("10 bits"),
            entry_rule,
        });
    }
    table
}
