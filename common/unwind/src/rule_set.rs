//! Rules by number: rows and pages name them with 16 bits.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::rule::Rule;

/// The most rules in one set; all files of a Debian system together need about 4 000.
pub const MAX_RULES: usize = 16384;

/// A list of different rules. The first is always [`Rule::UNCOVERED`].
#[derive(Clone, Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// Each row of a table is looked up, some ten million for a large program.
    index: HashMap<Rule, u16, RandomState>,
    /// Half of all requests repeat the one before.
    last: (Rule, u16),
    refused: u64,
}

impl Default for RuleSet {
    fn default() -> Self {
        Self {
            rules: vec![Rule::UNCOVERED],
            index: HashMap::from_iter([(Rule::UNCOVERED, 0)]),
            last: (Rule::UNCOVERED, 0),
            refused: 0,
        }
    }
}

impl RuleSet {
    /// The rule's index. When the set is full, a new rule becomes [`Rule::UNSUPPORTED`] and is counted as refused.
    pub fn intern(&mut self, rule: Rule) -> u16 {
        if rule == self.last.0 {
            return self.last.1;
        }
        let index = match self.index.get(&rule) {
            Some(&index) => index,
            None if self.is_full() && rule != Rule::UNSUPPORTED => {
                self.refused += 1;
                return self.intern(Rule::UNSUPPORTED);
            }
            None => self.add(rule),
        };
        self.last = (rule, index);
        index
    }

    fn add(&mut self, rule: Rule) -> u16 {
        let index = u16::try_from(self.rules.len()).expect("at most MAX_RULES rules");
        self.rules.push(rule);
        self.index.insert(rule, index);
        index
    }

    /// Whether new rules are refused; one place is kept for [`Rule::UNSUPPORTED`].
    pub fn is_full(&self) -> bool {
        self.rules.len() >= MAX_RULES - 1
    }

    /// How many requests met a full set.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The rules by index.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules by index.
    pub fn into_rules(self) -> Vec<Rule> {
        self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Cfa;

    #[test]
    fn a_full_set_says_so_and_keeps_working() {
        let mut set = RuleSet::default();
        let rule = |cfa_offset| Rule {
            cfa: Cfa::Sp,
            cfa_offset,
            ..Rule::default()
        };
        let many = i32::try_from(MAX_RULES).unwrap();
        for offset in 0..many - 2 {
            assert!(!set.is_full());
            set.intern(rule(offset));
        }
        assert!(set.is_full());
        let unsupported = set.intern(rule(many));
        assert_eq!(set.rules()[usize::from(unsupported)], Rule::UNSUPPORTED);
        assert_eq!(set.intern(rule(many + 1)), unsupported);
        assert_eq!(set.refused(), 2);
        assert_eq!(set.intern(rule(3)), 4);
        assert_eq!(set.intern(Rule::UNCOVERED), 0);
        assert_eq!(set.rules().len(), MAX_RULES);
    }
}
