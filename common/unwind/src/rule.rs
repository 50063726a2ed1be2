//! What a row says: how to get from a frame to its caller; eight bytes, the same in BPF.

/// How the canonical frame address (CFA), the caller's stack pointer, is found. Of aarch64, x29 is what rbp is here, and sp
/// what rsp is.
///
/// On x86-64 the return address is at CFA - 8, except for `End`, `RaRegister` and `Signal`; on aarch64 [`Rule::slot`] says where. "High" and "low" are the upper 24
/// bits of `cfa_offset`, signed, and its lower 8 bits, unsigned.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// Nothing is known here: the walker uses the frame pointer.
    #[default]
    Uncovered = 0,
    /// CFA = rsp + `cfa_offset`.
    Sp = 1,
    /// CFA = rbp + `cfa_offset`.
    Bp = 2,
    /// CFA = *(rsp + high) + low.
    SpDeref = 3,
    /// CFA = *(rbp + high) + low.
    BpDeref = 4,
    /// CFA = rsp + 8, and 8 more from byte `cfa_offset` of the 16-byte entry on: a procedure linkage table.
    Plt = 5,
    /// A signal frame of the kernel: the registers are in the ucontext at rsp.
    Signal = 6,
    /// The outermost frame.
    End = 7,
    /// CFA = register low + high. Only in a leaf are registers other than rsp and rbp known, but for an rbx that the
    /// callee has kept, or saved where [`Rule::slot`] says.
    Register = 8,
    /// CFA = rsp + high, and the return address is in register low. Leaf only.
    RaRegister = 9,
    /// The file says something that no other rule can say.
    Unsupported = 10,
}

/// Where the caller's rbp is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FpMode {
    /// Where it was: in rbp.
    #[default]
    Same = 0,
    /// At CFA + `fp_offset`.
    AtCfa = 1,
    /// At rbp + `fp_offset`.
    AtBp = 2,
    /// Nobody knows.
    Lost = 3,
}

/// How to get from a frame to its caller. The all-zero rule is [`Rule::UNCOVERED`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// How the CFA is found.
    pub cfa: Cfa,
    /// Where the caller's rbp is.
    pub fp: FpMode,
    /// Number for `fp`: bytes on x86-64, words of 8 bytes on aarch64, whose frames are larger.
    pub fp_offset: i16,
    /// Bytes, or what `cfa` packs into it.
    pub cfa_offset: i32,
    /// Six bits that each architecture gives a meaning.
    ///
    /// x86-64: the caller's rbx is at CFA - 8 × this, or still in rbx (63); 0: not said. Said only in files that have rows with a
    /// CFA in rbx: the dynamic linker's lazy binding, whose callees leave it where it was or save it.
    ///
    /// aarch64: the return address is at CFA - 8 × this; 0: in x30; 62: beside the saved x29, in the
    /// word above; 63: where `fp_offset` says, and x29 is not saved.
    pub slot: u8,
}

impl Rule {
    /// No call frame information.
    pub const UNCOVERED: Self = Self::plain(Cfa::Uncovered);
    /// A signal frame of the kernel.
    pub const SIGNAL: Self = Self::plain(Cfa::Signal);
    /// The outermost frame.
    pub const END: Self = Self::plain(Cfa::End);
    /// Call frame information that this format cannot say.
    pub const UNSUPPORTED: Self = Self::plain(Cfa::Unsupported);

    const fn plain(cfa: Cfa) -> Self {
        Self {
            cfa,
            fp: FpMode::Same,
            fp_offset: 0,
            cfa_offset: 0,
            slot: 0,
        }
    }

    /// The upper 24 bits of `cfa_offset`.
    pub fn high(self) -> i32 {
        self.cfa_offset >> 8
    }

    /// The lower 8 bits of `cfa_offset`.
    pub fn low(self) -> u8 {
        self.cfa_offset.to_le_bytes()[0]
    }

    /// The other direction; `None` when the number does not fit into 24 bits.
    pub(crate) fn pack(high: i64, low: u8) -> Option<i32> {
        let high = i32::try_from(high).ok()?;
        Some(high.checked_mul(256)? | i32::from(low))
    }

    /// As BPF reads it.
    pub fn to_bytes(self) -> [u8; 8] {
        let fp = self.fp as u8 | self.slot << 2;
        let [f0, f1] = self.fp_offset.to_le_bytes();
        let [c0, c1, c2, c3] = self.cfa_offset.to_le_bytes();
        [self.cfa as u8, fp, f0, f1, c0, c1, c2, c3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_come_back() {
        for (high, low) in [(0, 0), (-8, 8), (160, 0), (-0x80_0000, 255), (0x7f_ffff, 1)] {
            let rule = Rule {
                cfa_offset: Rule::pack(high, low).unwrap(),
                ..Rule::default()
            };
            assert_eq!((i64::from(rule.high()), rule.low()), (high, low));
        }
        assert_eq!(Rule::pack(0x80_0000, 0), None);
        assert_eq!(Rule::pack(-0x80_0001, 0), None);
        assert_eq!(Rule::pack(i64::MIN, 0), None);
    }

    #[test]
    fn bytes_are_in_the_order_that_bpf_reads() {
        let rule = Rule {
            cfa: Cfa::Bp,
            fp: FpMode::AtCfa,
            fp_offset: -16,
            cfa_offset: 0x0102_0304,
            slot: 63,
        };
        assert_eq!(rule.to_bytes(), [2, 0xfd, 0xf0, 0xff, 4, 3, 2, 1]);
        assert_eq!(Rule::UNCOVERED.to_bytes(), [0; 8]);
    }
}
