//! One row of gimli's table as a rule.

use gimli::{CfaRule, EndianSlice, LittleEndian, Register, RegisterRule, UnwindExpression};
use gimli::{UnwindContextStorage, UnwindSection, UnwindTableRow};

use crate::expression::{RA, RBP, RBX, RSP, Shape};
use crate::rule::{BX_KEPT, Cfa, FpMode, MAX_BX_SLOT, Rule};

/// How the bytes of a section are read.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;
/// A row of gimli's.
pub(crate) type Row = UnwindTableRow<usize, Storage>;

/// Room for gimli's rows. x86-64 has 17 registers that matter; less room than by default (192) bounds what
/// `DW_CFA_remember_state`, one byte in the file, can cost. Real files nest it twice; by default 4 levels fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = Box<[UnwindTableRow<usize, Self>; 8]>;
}

/// `*(rsp + 160)` and `rsp + 168`: where the kernel saved rsp and rip, seen from the return of a signal handler.
const SIGNAL_CFA: Shape = Shape::Deref(RSP, 160, 0);
const SIGNAL_RA: Shape = Shape::Register(RSP, 168);

/// The rule that says the same as `row`, and where rbx is if that is wanted.
pub(crate) fn rule<'a, S: UnwindSection<Reader<'a>>>(row: &Row, section: &S, bx: bool) -> Rule {
    let rule = convert(row, section).unwrap_or(Rule::UNSUPPORTED);
    let has_caller = ![Rule::UNSUPPORTED, Rule::END, Rule::SIGNAL].contains(&rule);
    Rule {
        bx_slot: if bx && has_caller { bx_slot(row) } else { 0 },
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
        RegisterRule::Offset(-8) => cfa(row.cfa(), section)?,
        RegisterRule::Register(Register(number)) => match row.cfa() {
            CfaRule::RegisterAndOffset {
                register: Register(RSP),
                offset,
            } => (Cfa::RaRegister, Rule::pack(*offset, general(number)?)?),
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
    let (fp, fp_offset) = fp(row, section);
    Some(Rule {
        cfa,
        fp,
        fp_offset,
        cfa_offset,
        bx_slot: 0,
    })
}

/// The number of a general register.
fn general(register: u16) -> Option<u8> {
    u8::try_from(register).ok().filter(|&r| u16::from(r) < RA)
}

fn cfa<'a, S: UnwindSection<Reader<'a>>>(rule: &CfaRule<usize>, section: &S) -> Option<(Cfa, i32)> {
    let shape = match rule {
        CfaRule::RegisterAndOffset { register, offset } => Shape::Register(register.0, *offset),
        CfaRule::Expression(expression) => shape(expression, section)?,
    };
    Some(match shape {
        Shape::Register(RSP, offset) => (Cfa::Sp, i32::try_from(offset).ok()?),
        Shape::Register(RBP, offset) => (Cfa::Bp, i32::try_from(offset).ok()?),
        Shape::Register(other, offset) => (Cfa::Register, Rule::pack(offset, general(other)?)?),
        Shape::Deref(RSP, at, plus) => (Cfa::SpDeref, Rule::pack(at, u8::try_from(plus).ok()?)?),
        Shape::Deref(RBP, at, plus) => (Cfa::BpDeref, Rule::pack(at, u8::try_from(plus).ok()?)?),
        Shape::Deref(..) => return None,
        Shape::Plt(threshold) => (Cfa::Plt, i32::try_from(threshold).ok()?),
    })
}

fn fp<'a, S: UnwindSection<Reader<'a>>>(row: &Row, section: &S) -> (FpMode, i16) {
    let (mode, offset) = match row.register(Register(RBP)) {
        None | Some(RegisterRule::SameValue | RegisterRule::Register(Register(RBP))) => {
            (FpMode::Same, 0)
        }
        Some(RegisterRule::Offset(offset)) => (FpMode::AtCfa, offset),
        Some(RegisterRule::Expression(address)) => match shape(&address, section) {
            Some(Shape::Register(RBP, offset)) => (FpMode::AtBp, offset),
            _ => (FpMode::Lost, 0),
        },
        Some(RegisterRule::ValExpression(value)) => match shape(&value, section) {
            Some(Shape::Register(RBP, 0)) => (FpMode::Same, 0),
            Some(Shape::Deref(RBP, offset, 0)) => (FpMode::AtBp, offset),
            _ => (FpMode::Lost, 0),
        },
        Some(_) => (FpMode::Lost, 0),
    };
    match i16::try_from(offset) {
        Ok(offset) => (mode, offset),
        Err(_) => (FpMode::Lost, 0),
    }
}

fn shape<'a, S: UnwindSection<Reader<'a>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
) -> Option<Shape> {
    Shape::of(expression.get(section).ok()?.0.slice())
}
