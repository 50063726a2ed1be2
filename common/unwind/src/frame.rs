//! The registers of one frame, as far as a walk knows them.

use crate::architecture::Architecture;
use crate::rule::{Cfa, Rule};

/// The end of a walk.
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

/// Reads 8 bytes of the stack's process.
pub(crate) type Memory<'m> = &'m dyn Fn(u64) -> Option<u64>;

/// The registers of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The architecture of the code.
    pub architecture: Architecture,
    /// rip or pc, or the return address.
    pub ip: u64,
    /// rsp or sp.
    pub sp: u64,
    /// rbp or x29, unless it is lost.
    pub bp: Option<u64>,
    /// x86-64: rbx, if the callee kept or saved it.
    pub bx: Option<u64>,
    /// aarch64: x30 of a leaf, and of what a signal interrupted.
    pub lr: Option<u64>,
    /// aarch64: sp is not known, but no lower than `sp`, after a step by the frame pointer: frame records may lie anywhere in
    /// their frames.
    pub sp_is_bound: bool,
    /// aarch64: the bits of a return address that pointer authentication leaves alone.
    pub code_mask: u64,
    /// `ip` is where the frame is, not where it returns to: a leaf, or what a signal interrupted.
    pub exact: bool,
    /// All registers by their DWARF numbers, in a leaf; those of x86-64 are 16.
    pub leaf: Option<[u64; 31]>,
}

impl Frame {
    /// A leaf's frame, of whose other registers nothing is known.
    pub fn new(architecture: Architecture, ip: u64, sp: u64, bp: u64) -> Self {
        Self {
            architecture,
            ip,
            sp,
            bp: Some(bp),
            bx: None,
            lr: None,
            sp_is_bound: false,
            code_mask: u64::MAX,
            exact: true,
            leaf: None,
        }
    }

    /// The same frame with a leaf's registers by their DWARF numbers; 31 at most.
    pub fn with_leaf(self, registers: &[u64]) -> Self {
        let mut all = [0; 31];
        all[..registers.len()].copy_from_slice(registers);
        Self {
            leaf: Some(all),
            ..self
        }
    }

    /// The address whose rule counts. A call may be a function's last instruction; then the return address is in
    /// another function.
    pub fn lookup_address(&self) -> u64 {
        if self.exact {
            self.ip
        } else {
            self.ip.wrapping_sub(1)
        }
    }

    /// The caller's frame, of which these registers are known and no others.
    pub(crate) fn returned(&self, ip: u64, sp: u64, bp: Option<u64>) -> Self {
        Self {
            ip,
            sp,
            bp,
            bx: None,
            lr: None,
            sp_is_bound: false,
            exact: false,
            leaf: None,
            ..*self
        }
    }

    /// The frame pointer.
    pub(crate) fn frame_pointer(&self) -> Result<u64, End> {
        self.bp.ok_or(End::Unsupported)
    }

    /// The CFA by a rule that is the same on every architecture; `None`: it is not.
    pub(crate) fn cfa(&self, rule: Rule, memory: Memory<'_>) -> Option<Result<u64, End>> {
        let base = match rule.cfa {
            Cfa::Sp | Cfa::SpDeref => self.sp,
            Cfa::Bp | Cfa::BpDeref => match self.frame_pointer() {
                Ok(bp) => bp,
                Err(end) => return Some(Err(end)),
            },
            _ => return None,
        };
        Some(match rule.cfa {
            Cfa::Sp | Cfa::Bp => Ok(add(base, rule.cfa_offset)),
            _ => memory(add(base, rule.high()))
                .map(|at| at.wrapping_add(rule.low().into()))
                .ok_or(End::Unreadable),
        })
    }

    /// The frame record that the frame pointer points to: where it is, the caller's frame pointer and the return address.
    pub(crate) fn record(&self, memory: Memory<'_>) -> Result<(u64, u64, u64), End> {
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
        Ok((bp, next, ip))
    }
}

/// Moves an address.
pub(crate) fn add(base: u64, offset: i32) -> u64 {
    base.wrapping_add_signed(offset.into())
}
