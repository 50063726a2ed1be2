//! One row of gimli's table as a rule: what all architectures share. The rest is in `machine`.

use gimli::{CfaRule, EndianSlice, LittleEndian, Register, RegisterRule, UnwindExpression};
use gimli::{UnwindContextStorage, UnwindSection, UnwindTableRow};

use crate::expression::Shape;
use crate::rule::{Cfa, FpMode, Rule};

/// How the bytes of a section are read.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;
/// A row of gimli's.
pub(crate) type Row = UnwindTableRow<usize, Storage>;

/// Room for gimli's rows. x86-64 has 17 registers that matter, aarch64 22; less room than by default (192) bounds what
/// `DW_CFA_remember_state`, one byte in the file, can cost. Real files nest it twice; by default 4 levels fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = Box<[UnwindTableRow<usize, Self>; 8]>;
}

/// The DWARF numbers of the registers that rules are made of.
pub(crate) struct Numbers {
    pub(crate) sp: u16,
    pub(crate) fp: u16,
    /// Registers that a rule may name lie below this.
    pub(crate) general: u16,
}

impl Numbers {
    /// The number of a general register.
    pub(crate) fn general(&self, register: u16) -> Option<u8> {
        u8::try_from(register)
            .ok()
            .filter(|&number| u16::from(number) < self.general)
    }
}

/// The kind of a CFA, and its number.
pub(crate) fn cfa<'a, S: UnwindSection<Reader<'a>>>(
    numbers: &Numbers,
    rule: &CfaRule<usize>,
    section: &S,
) -> Option<(Cfa, i32)> {
    let (sp, fp) = (numbers.sp, numbers.fp);
    let shape = match rule {
        CfaRule::RegisterAndOffset { register, offset } => Shape::Register(register.0, *offset),
        CfaRule::Expression(expression) => shape(expression, section)?,
    };
    Some(match shape {
        Shape::Register(base, offset) if base == sp => (Cfa::Sp, i32::try_from(offset).ok()?),
        Shape::Register(base, offset) if base == fp => (Cfa::Bp, i32::try_from(offset).ok()?),
        Shape::Register(other, offset) => {
            let packed = Rule::pack(offset, numbers.general(other)?)?;
            (Cfa::Register, packed)
        }
        Shape::Deref(base, at, plus) if base == sp => {
            (Cfa::SpDeref, Rule::pack(at, u8::try_from(plus).ok()?)?)
        }
        Shape::Deref(base, at, plus) if base == fp => {
            (Cfa::BpDeref, Rule::pack(at, u8::try_from(plus).ok()?)?)
        }
        Shape::Deref(..) => return None,
        Shape::Plt(threshold) => (Cfa::Plt, i32::try_from(threshold).ok()?),
    })
}

/// The place of the caller's frame pointer: bytes, which the rule counts in units of `unit`.
pub(crate) fn fp<'a, S: UnwindSection<Reader<'a>>>(
    (number, unit): (u16, i64),
    row: &Row,
    section: &S,
) -> (FpMode, i16) {
    let (mode, offset) = match row.register(Register(number)) {
        None | Some(RegisterRule::SameValue) => (FpMode::Same, 0),
        Some(RegisterRule::Register(Register(other))) if other == number => (FpMode::Same, 0),
        Some(RegisterRule::Offset(offset)) => (FpMode::AtCfa, offset),
        Some(RegisterRule::Expression(address)) => match shape(&address, section) {
            Some(Shape::Register(base, offset)) if base == number => (FpMode::AtBp, offset),
            _ => (FpMode::Lost, 0),
        },
        Some(RegisterRule::ValExpression(value)) => match shape(&value, section) {
            Some(Shape::Register(base, 0)) if base == number => (FpMode::Same, 0),
            Some(Shape::Deref(base, offset, 0)) if base == number => (FpMode::AtBp, offset),
            _ => (FpMode::Lost, 0),
        },
        Some(_) => (FpMode::Lost, 0),
    };
    let units = (offset % unit == 0).then_some(offset / unit);
    match units.map(i16::try_from) {
        Some(Ok(units)) => (mode, units),
        _ => (FpMode::Lost, 0),
    }
}

/// The expression, if it is one that means something here.
pub(crate) fn shape<'a, S: UnwindSection<Reader<'a>>>(
    expression: &UnwindExpression<usize>,
    section: &S,
) -> Option<Shape> {
    Shape::of(expression.get(section).ok()?.0.slice())
}
