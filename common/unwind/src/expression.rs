//! The few DWARF expressions that linkers and hand-written assembly put into call frame information.

use gimli::{Encoding, EndianSlice, Expression, Format, LittleEndian, Operation};

type Op<'a> = Operation<EndianSlice<'a, LittleEndian>>;

/// DWARF numbers of rsp and the return address on x86-64, of which GNU linkers describe the PLT.
const RSP: u16 = 7;
const RA: u16 = 16;

/// Operations in the longest expression that means something here, the PLT's.
const MAX_OPERATIONS: usize = 9;

const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: Format::Dwarf32,
    version: 5,
};

/// An expression that means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// register + offset
    Register(u16, i64),
    /// *(register + offset) + addend
    Deref(u16, i64, u64),
    /// rsp + 8 + ((rip & 15) >= threshold) * 8, on x86-64
    Plt(u64),
}

impl Shape {
    /// Recognizes an expression.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let mut rest = Expression(EndianSlice::new(bytes, LittleEndian)).operations(ENCODING);
        let mut operations = [const { Operation::Nop }; MAX_OPERATIONS];
        let mut count = 0;
        while let Some(operation) = rest.next().ok()? {
            *operations.get_mut(count)? = operation;
            count += 1;
        }
        match &operations[..count] {
            [base] => register(base).map(|(r, n)| Self::Register(r, n)),
            [base, deref] => dereferenced(base, deref, 0),
            [base, deref, Operation::PlusConstant { value }] => dereferenced(base, deref, *value),
            nine => plt(nine),
        }
    }
}

fn register(operation: &Op<'_>) -> Option<(u16, i64)> {
    match operation {
        Operation::RegisterOffset {
            register, offset, ..
        } => Some((register.0, *offset)),
        _ => None,
    }
}

fn dereferenced(base: &Op<'_>, deref: &Op<'_>, addend: u64) -> Option<Shape> {
    let (register, offset) = register(base)?;
    match deref {
        Operation::Deref {
            size: 8,
            space: false,
            ..
        } => Some(Shape::Deref(register, offset, addend)),
        _ => None,
    }
}

/// What GNU linkers write for `.plt`: each 16-byte entry ends with `push index; jmp resolver`, and `threshold` is where
/// the jump begins, 11 or (behind endbr64) 10.
fn plt(operations: &[Op<'_>]) -> Option<Shape> {
    use Operation::{And, Ge, Plus, Shl, UnsignedConstant};
    let [
        sp,
        ip,
        UnsignedConstant { value: 15 },
        And,
        UnsignedConstant { value },
        Ge,
        UnsignedConstant { value: 3 },
        Shl,
        Plus,
    ] = operations
    else {
        return None;
    };
    (register(sp)? == (RSP, 8) && register(ip)? == (RA, 0)).then_some(Shape::Plt(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_plt_expressions() {
        for (lit, threshold) in [(0x3b, 11), (0x3a, 10)] {
            let bytes = [0x77, 8, 0x80, 0, 0x3f, 0x1a, lit, 0x2a, 0x33, 0x24, 0x22];
            assert_eq!(Shape::of(&bytes), Some(Shape::Plt(threshold)));
            assert_eq!(Shape::of(&bytes[..10]), None, "cut off");
        }
        let other_shift = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x32, 0x24, 0x22];
        assert_eq!(Shape::of(&other_shift), None);
        let other_base = [0x77, 16, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(Shape::of(&other_base), None);
        let other_register = [0x77, 8, 0x79, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(Shape::of(&other_register), None, "r9");
        assert_eq!(Shape::of(&[0x96; 10]), None, "ten operations");
    }

    #[test]
    fn dereferences() {
        // breg7 160; deref: the CFA of glibc's __restore_rt
        let restore = [0x77, 0xa0, 0x01, 0x06];
        assert_eq!(Shape::of(&restore), Some(Shape::Deref(RSP, 160, 0)));
        // breg6 -40; deref; plus_uconst 8: OpenSSL
        let openssl = [0x76, 0x58, 0x06, 0x23, 8];
        assert_eq!(Shape::of(&openssl), Some(Shape::Deref(6, -40, 8)));
        assert_eq!(Shape::of(&[0x76, 0]), Some(Shape::Register(6, 0)));
        assert_eq!(Shape::of(&[0x76, 0, 0x94, 4]), None, "deref_size 4");
        assert_eq!(Shape::of(&[]), None);
        assert_eq!(Shape::of(&[0x76]), None, "cut off");
    }
}
