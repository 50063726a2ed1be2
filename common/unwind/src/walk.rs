//! The walk in Rust: what BPF does with the tables, step for step, for tests and for stacks that were copied.

use crate::code;
use crate::expression::{RBP, RBX, RSP};
use crate::rule::{BX_KEPT, Cfa, FpMode, Rule};
use crate::table::Table;

/// Offset of rbp in the signal frame, in bytes from rsp at the trampoline: the ucontext is there, and in it, from
/// byte 40 on, r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
const SIGNAL_BP: u64 = 40 + 80;
const SIGNAL_BX: u64 = 40 + 88;
const SIGNAL_SP: u64 = 40 + 120;
const SIGNAL_IP: u64 = 40 + 128;

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the outermost frame.
    Root,
    /// At the greatest depth.
    Depth,
    /// No rule covers the code, and the frame pointer is none.
    NoTable,
    /// The stack could not be read.
    Unreadable,
    /// The rule is one for leaves or for nobody, or contradicts the stack.
    Unsupported,
}

/// The registers of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// rip, or the return address.
    pub ip: u64,
    /// rsp.
    pub sp: u64,
    /// rbp, unless it is lost.
    pub bp: Option<u64>,
    /// rbx, if the callee kept or saved it.
    pub bx: Option<u64>,
    /// `ip` is where the frame is, not where it returns to: a leaf, or what a signal interrupted.
    pub exact: bool,
    /// All registers by their DWARF numbers, in a leaf.
    pub leaf: Option<[u64; 16]>,
}

impl Frame {
    /// The address whose rule counts. A call may be a function's last instruction; then the return address is in
    /// another function.
    pub fn lookup_address(&self) -> u64 {
        if self.exact {
            self.ip
        } else {
            self.ip.wrapping_sub(1)
        }
    }

    fn register(&self, number: u8) -> Result<u64, End> {
        match (u16::from(number), &self.leaf) {
            (RSP, _) => Ok(self.sp),
            (RBP, _) => self.bp.ok_or(End::Unsupported),
            (_, Some(all)) if self.exact => all
                .get(usize::from(number))
                .copied()
                .ok_or(End::Unsupported),
            (RBX, None) => self.bx.ok_or(End::Unsupported),
            _ => Err(End::Unsupported),
        }
    }

    /// The caller's frame.
    pub fn caller(&self, rule: Rule, memory: impl Fn(u64) -> Option<u64>) -> Result<Frame, End> {
        let read = |address| memory(address).ok_or(End::Unreadable);
        let mut ra = None;
        let bp = || self.bp.ok_or(End::Unsupported);
        let add = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
        let cfa = match rule.cfa {
            Cfa::Uncovered => return self.caller_without_rule(memory),
            Cfa::Sp => add(self.sp, rule.cfa_offset),
            Cfa::Bp => add(bp()?, rule.cfa_offset),
            Cfa::SpDeref => read(add(self.sp, rule.high()))?.wrapping_add(rule.low().into()),
            Cfa::BpDeref => read(add(bp()?, rule.high()))?.wrapping_add(rule.low().into()),
            Cfa::Plt => {
                let pushed = i64::from(rule.cfa_offset) <= (self.ip & 15) as i64;
                add(self.sp, if pushed { 16 } else { 8 })
            }
            Cfa::Signal => return self.interrupted(memory),
            Cfa::End => return Err(End::Root),
            Cfa::Register => add(self.register(rule.low())?, rule.high()),
            Cfa::RaRegister => {
                ra = Some(self.register(rule.low())?);
                add(self.sp, rule.high())
            }
            Cfa::Unsupported => return Err(End::Unsupported),
        };
        // A call pushed something, so the stack grew, or this is a leaf that popped its return address.
        if cfa < self.sp || cfa == self.sp && !self.exact {
            return Err(End::Unsupported);
        }
        let ip = match ra {
            Some(ra) => ra,
            None => read(cfa.wrapping_sub(8))?,
        };
        if ip == 0 {
            return Err(End::Root);
        }
        let bp = match rule.fp {
            FpMode::Same => self.bp,
            FpMode::AtCfa => Some(read(add(cfa, rule.fp_offset.into()))?),
            FpMode::AtBp => Some(read(add(bp()?, rule.fp_offset.into()))?),
            FpMode::Lost => None,
        };
        let bx = match rule.bx_slot {
            0 => None,
            BX_KEPT => match &self.leaf {
                Some(all) => Some(all[usize::from(RBX)]),
                None => self.bx,
            },
            slot => Some(read(cfa.wrapping_sub(8 * u64::from(slot)))?),
        };
        Ok(Frame {
            ip,
            sp: cfa,
            bp,
            bx,
            exact: false,
            leaf: None,
        })
    }

    /// By what the code is about to do, if it makes or leaves its frame; else by the frame pointer.
    fn caller_without_rule(&self, memory: impl Fn(u64) -> Option<u64>) -> Result<Frame, End> {
        match code::rule(self.ip, self.sp, self.exact, &memory) {
            Some(rule) => self.caller(rule, &memory as &dyn Fn(u64) -> Option<u64>),
            None => self.caller_by_frame_pointer(memory),
        }
    }

    /// Without a rule, the code may keep a frame pointer: rbp points to the caller's, the return address is above.
    pub fn caller_by_frame_pointer(
        &self,
        memory: impl Fn(u64) -> Option<u64>,
    ) -> Result<Frame, End> {
        let bp = self.bp.ok_or(End::NoTable)?;
        if bp == 0 {
            return Err(End::Root);
        }
        if bp < self.sp || bp % 8 != 0 {
            return Err(End::NoTable);
        }
        let next = memory(bp).ok_or(End::Unreadable)?;
        let ip = memory(bp.wrapping_add(8)).ok_or(End::Unreadable)?;
        if ip == 0 {
            return Err(End::Root);
        }
        Ok(Frame {
            ip,
            sp: bp.wrapping_add(16),
            bp: Some(next),
            bx: None,
            exact: false,
            leaf: None,
        })
    }

    /// The frame that a signal interrupted. It may be on another stack, so `sp` may descend.
    fn interrupted(&self, memory: impl Fn(u64) -> Option<u64>) -> Result<Frame, End> {
        let read = |offset| memory(self.sp.wrapping_add(offset)).ok_or(End::Unreadable);
        let ip = read(SIGNAL_IP)?;
        if ip == 0 {
            return Err(End::Root);
        }
        Ok(Frame {
            ip,
            sp: read(SIGNAL_SP)?,
            bp: Some(read(SIGNAL_BP)?),
            bx: Some(read(SIGNAL_BX)?),
            exact: true,
            leaf: None,
        })
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
