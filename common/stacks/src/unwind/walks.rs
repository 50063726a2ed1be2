//! Walks of threads that are not running, by the tables that there are.

use foreign::pages::Kept;
use unwind::Rule;

use super::Unwinder;
use super::outside::{Registers, Walk, read_word, walk};
use super::tables::rule_at;

impl Unwinder {
    /// The rules for a thread's code, for a walk in user space.
    pub fn rule(&self, tgid: u32, address: u64) -> Rule {
        let listed = self.processes.find(tgid, address);
        listed.map_or(Rule::UNCOVERED, |listed| {
            let offset = address.wrapping_sub(listed.shift);
            rule_at(&listed.module.stored, &self.words, &self.rules, offset)
        })
    }

    /// The stack of a blocked thread.
    pub(crate) fn walk(
        &self,
        tgid: u32,
        registers: Registers,
        outer_sp: u64,
        memory: &Kept,
    ) -> Walk {
        let read = |address| read_word(memory, tgid, address);
        walk(read, registers, outer_sp, self.method, |address| {
            self.rule(tgid, address)
        })
    }
}
