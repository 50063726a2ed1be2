//! Everything that is x86-64's own: registers, rules, PLTs, and the way from a frame to its caller.

use gimli::{CfaRule, Register, RegisterRule, UnwindSection};

use crate::convert::{Numbers, Reader, Row, cfa, fp, shape};
use crate::expression::Shape;
use crate::frame::{End, Frame, Memory, add};
use crate::rule::{Cfa, FpMode, Rule};

mod code;
pub(super) mod plt;

/// DWARF numbers.
const RBX: u16 = 3;
const RBP: u16 = 6;
const RSP: u16 = 7;
const RA: u16 = 16;
const NUMBERS: Numbers = Numbers {
    sp: RSP,
    fp: RBP,
    general: RA,
};

/// The [`Rule::slot`] of code that has not touched rbx: the largest of six bits.
const BX_KEPT: u8 = 63;
/// The largest that is a place.
const MAX_BX_SLOT: u8 = BX_KEPT - 1;

/// Offset of rbp in the signal frame, in bytes from rsp at the trampoline: the ucontext is there, and in it, from
/// byte 40 on, r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
const SIGNAL_BP: u64 = 40 + 80;
const SIGNAL_BX: u64 = 40 + 88;
const SIGNAL_SP: u64 = 40 + 120;
const SIGNAL_IP: u64 = 40 + 128;

/// `*(rsp + 160)` and `rsp + 168`: where the kernel saved rsp and rip, seen from the return of a signal handler.
const SIGNAL_CFA: Shape = Shape::Deref(RSP, 160, 0);
const SIGNAL_RA: Shape = Shape::Register(RSP, 168);

/// The rule that says the same as `row`, and where rbx is if that is wanted.
pub(super) fn rule<'a, S: UnwindSection<Reader<'a>>>(row: &Row, section: &S, bx: bool) -> Rule {
    let rule = convert(row, section).unwrap_or(Rule::UNSUPPORTED);
    let has_caller = ![Rule::UNSUPPORTED, Rule::END, Rule::SIGNAL].contains(&rule);
    Rule {
        slot: if bx && has_caller { bx_slot(row) } else { 0 },
        ..rule
    }
}

fn bx_slot(row: &Row) -> u8 {
    let offset = match row.register(Register(RBX)) {
        Some(RegisterRule::Offset(offset)) => offset,
        // A callee saves it before it uses it; till then nothing is said.
        Some(RegisterRule::SameValue) | None => return BX_KEPT,
        Some(_) => return 0,
    };
    let slot = (offset % 8 == 0).then_some(-(offset / 8));
    let slot = slot.and_then(|slot| u8::try_from(slot).ok());
    slot.filter(|slot| *slot <= MAX_BX_SLOT).unwrap_or(0)
}

fn convert<'a, S: UnwindSection<Reader<'a>>>(row: &Row, section: &S) -> Option<Rule> {
    let (cfa, cfa_offset) = match row.register(Register(RA))? {
        RegisterRule::Undefined => return Some(Rule::END),
        RegisterRule::Offset(-8) => cfa(&NUMBERS, row.cfa(), section)?,
        RegisterRule::Register(Register(number)) => match row.cfa() {
            CfaRule::RegisterAndOffset {
                register: Register(RSP),
                offset,
            } => (
                Cfa::RaRegister,
                Rule::pack(*offset, NUMBERS.general(number)?)?,
            ),
            _ => return None,
        },
        RegisterRule::Expression(address) => {
            let CfaRule::Expression(cfa) = row.cfa() else {
                return None;
            };
            let signal =
                shape(cfa, section)? == SIGNAL_CFA && shape(&address, section)? == SIGNAL_RA;
            return signal.then_some(Rule::SIGNAL);
        }
        _ => return None,
    };
    // The caller's rsp is the CFA by definition, unless a rule says otherwise (as longjmp's and setcontext's do).
    match row.register(Register(RSP)) {
        None | Some(RegisterRule::ValOffset(0)) => {}
        Some(_) => return None,
    }
    let (fp, fp_offset) = fp((RBP, 1), row, section);
    Some(Rule {
        cfa,
        fp,
        fp_offset,
        cfa_offset,
        slot: 0,
    })
}

/// True if the CFA is in rbx, which is known in callers only if rows say where it was saved.
pub(super) fn needs_bx(rule: Rule) -> bool {
    rule.cfa == Cfa::Register && u16::from(rule.low()) == RBX
}

/// The rule of a place `depth` bytes below the return address, by Go's table. Functions with a frame keep their caller's frame
/// pointer at its top.
pub(super) fn go_rule(depth: i32) -> Option<Rule> {
    let (fp, fp_offset) = if depth >= 8 {
        (FpMode::AtCfa, -16)
    } else {
        (FpMode::Same, 0)
    };
    Some(Rule {
        cfa: Cfa::Sp,
        cfa_offset: depth.checked_add(8).filter(|offset| *offset >= 8)?,
        fp,
        fp_offset,
        slot: 0,
    })
}

/// The rule that the code gives where no table does, if it makes or leaves its frame.
pub(super) fn rule_by_code(frame: &Frame, rule: Rule, memory: Memory<'_>) -> Rule {
    if rule.cfa != Cfa::Uncovered {
        return rule;
    }
    code::rule(frame.ip, frame.sp, frame.exact, memory).unwrap_or(rule)
}

/// A register by its DWARF number.
fn register(frame: &Frame, number: u8) -> Result<u64, End> {
    match (u16::from(number), &frame.leaf) {
        (RSP, _) => Ok(frame.sp),
        (RBP, _) => frame.frame_pointer(),
        (_, Some(all)) if frame.exact => all
            .get(usize::from(number))
            .copied()
            .ok_or(End::Unsupported),
        (RBX, None) => frame.bx.ok_or(End::Unsupported),
        _ => Err(End::Unsupported),
    }
}

/// The caller's frame by a rule that says something.
pub(super) fn caller(frame: &Frame, rule: Rule, memory: Memory<'_>) -> Result<Frame, End> {
    let read = |address| memory(address).ok_or(End::Unreadable);
    let mut ra = None;
    let cfa = match rule.cfa {
        Cfa::Plt => {
            let pushed = i64::from(rule.cfa_offset) <= (frame.ip & 15) as i64;
            add(frame.sp, if pushed { 16 } else { 8 })
        }
        Cfa::Signal => return interrupted(frame, memory),
        Cfa::End => return Err(End::Root),
        Cfa::Register => add(register(frame, rule.low())?, rule.high()),
        Cfa::RaRegister => {
            ra = Some(register(frame, rule.low())?);
            add(frame.sp, rule.high())
        }
        _ => frame.cfa(rule, memory).ok_or(End::Unsupported)??,
    };
    // A call pushed something, so the stack grew, or this is a leaf that popped its return address.
    if cfa < frame.sp || cfa == frame.sp && !frame.exact {
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
        FpMode::Same => frame.bp,
        FpMode::AtCfa => Some(read(add(cfa, rule.fp_offset.into()))?),
        FpMode::AtBp => Some(read(add(frame.frame_pointer()?, rule.fp_offset.into()))?),
        FpMode::Lost => None,
    };
    let bx = match rule.slot {
        0 => None,
        BX_KEPT => match &frame.leaf {
            Some(all) => Some(all[usize::from(RBX)]),
            None => frame.bx,
        },
        slot => Some(read(cfa.wrapping_sub(8 * u64::from(slot)))?),
    };
    Ok(Frame {
        bx,
        ..frame.returned(ip, cfa, bp)
    })
}

/// The caller by the frame pointer: rbp points to the caller's, the return address is above.
pub(super) fn caller_by_frame_pointer(frame: &Frame, memory: Memory<'_>) -> Result<Frame, End> {
    let (at, bp, ip) = frame.record(memory)?;
    Ok(frame.returned(ip, at.wrapping_add(16), Some(bp)))
}

/// The frame that a signal interrupted. It may be on another stack, so `sp` may descend.
fn interrupted(frame: &Frame, memory: Memory<'_>) -> Result<Frame, End> {
    let read = |offset| memory(frame.sp.wrapping_add(offset)).ok_or(End::Unreadable);
    let ip = read(SIGNAL_IP)?;
    if ip == 0 {
        return Err(End::Root);
    }
    Ok(Frame {
        bx: Some(read(SIGNAL_BX)?),
        exact: true,
        ..frame.returned(ip, read(SIGNAL_SP)?, Some(read(SIGNAL_BP)?))
    })
}
