//! The walk in Rust: what BPF does with the tables, step for step, for tests and for stacks that were copied.

use crate::frame::{End, Frame};
use crate::machine;
use crate::rule::{Cfa, Rule};
use crate::table::Table;

impl Frame {
    /// The rule of this frame, for which its table gives `rule`: where that says nothing, what the code is about to do may, if it
    /// makes or leaves its frame, or returns from a signal.
    pub fn rule_by_code(&self, rule: Rule, memory: impl Fn(u64) -> Option<u64>) -> Rule {
        machine::rule_by_code(self, rule, &memory)
    }

    /// The caller's frame.
    pub fn caller(&self, rule: Rule, memory: impl Fn(u64) -> Option<u64>) -> Result<Frame, End> {
        let rule = self.rule_by_code(rule, &memory);
        match rule.cfa {
            Cfa::Uncovered => self.caller_by_frame_pointer(memory),
            _ => machine::caller(self, rule, &memory),
        }
    }

    /// Without a rule, the code may keep a frame pointer: it points to the caller's, the return address is above.
    pub fn caller_by_frame_pointer(
        &self,
        memory: impl Fn(u64) -> Option<u64>,
    ) -> Result<Frame, End> {
        machine::caller_by_frame_pointer(self, &memory)
    }
}

/// The code addresses of a stack, innermost first, and why there are no more.
///
/// `memory` reads 8 bytes; `find` names the table for a code address and the bias of the addresses in it.
pub fn walk<'t>(
    mut frame: Frame,
    memory: impl Fn(u64) -> Option<u64>,
    find: impl Fn(u64) -> Option<(&'t Table, u64)>,
    max_depth: usize,
) -> (Vec<u64>, End) {
    let mut ips = Vec::new();
    while ips.len() < max_depth {
        ips.push(frame.ip);
        let address = frame.lookup_address();
        let rule = match find(address) {
            Some((table, bias)) => table.lookup(address.wrapping_sub(bias)),
            None => Rule::UNCOVERED,
        };
        match frame.caller(rule, &memory) {
            Ok(caller) => frame = caller,
            Err(end) => return (ips, end),
        }
    }
    (ips, End::Depth)
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
