//! The rules of all tables together.

use std::io;

use libbpf_rs::MapHandle;
use unwind::{MAX_RULES, Rule, RuleSet};

use super::words::Shared;

/// Words of one rule.
const RULE_WORDS: usize = 2;

/// Rules by index, here and on the BPF side.
#[derive(Debug)]
pub(super) struct Rules {
    set: RuleSet,
    written: usize,
    shared: Shared,
}

impl Rules {
    /// `map` is the BPF side's array of rules.
    pub(super) fn new(map: &MapHandle) -> io::Result<Self> {
        Ok(Self {
            set: RuleSet::default(),
            // The all-zero rule is there already.
            written: 1,
            shared: Shared::map(map, MAX_RULES * RULE_WORDS)?,
        })
    }

    /// Indices of a table's own rules.
    pub(super) fn intern(&mut self, rules: &[Rule]) -> Vec<u16> {
        let indices = rules.iter().map(|rule| self.set.intern(*rule)).collect();
        for (index, rule) in self.set.rules().iter().enumerate().skip(self.written) {
            let bytes = rule.to_bytes();
            let (low, high) = bytes.split_at(4);
            let word = |half: &[u8]| u32::from_le_bytes(half.try_into().expect("four bytes"));
            self.shared
                .write(index * RULE_WORDS, &[word(low), word(high)]);
        }
        self.written = self.set.rules().len();
        indices
    }

    pub(super) fn get(&self, index: u32) -> Rule {
        let rule = usize::try_from(index)
            .ok()
            .and_then(|index| self.set.rules().get(index));
        rule.copied().unwrap_or(Rule::UNSUPPORTED)
    }

    /// How often there was no room for another rule.
    pub(super) fn refused(&self) -> u64 {
        self.set.refused()
    }
}
