//! Rules that the instructions give of a frame that has neither a rule nor a frame pointer of its own; as
//! `bpf/include/machine/arm64_code.bpf.h`, which see.

use crate::rule::{Cfa, FpMode, Rule};

use super::RA_BESIDE_FP;

const MOV_SP_TO_FP: u32 = 0x9100_03fd;

/// The rule for a leaf at `ip`, when what runs next is an epilogue, or a prologue not yet done. `return_address` is what x30 has.
pub(super) fn rule(
    ip: u64,
    return_address: Option<u64>,
    memory: impl Fn(u64) -> Option<u64>,
) -> Option<Rule> {
    let read = |at| instruction(at, &memory);
    let code = read(ip)?;
    if is_outside_frame(code) {
        let leaving = Rule {
            cfa: Cfa::Sp,
            ..Rule::default()
        };
        return is_call(read(return_address?.wrapping_sub(4))?).then_some(leaving);
    }
    if is_pop_of_record(code) {
        return Some(record(code));
    }
    let before = (code == MOV_SP_TO_FP).then(|| read(ip.wrapping_sub(4)))??;
    is_push_of_record(before).then(|| record(before))
}

/// Instructions lie at multiples of their length, so a word of memory has two, and is on one page.
pub(super) fn instruction(at: u64, memory: impl Fn(u64) -> Option<u64>) -> Option<u32> {
    if !at.is_multiple_of(4) {
        return None;
    }
    let word = memory(at & !7)?;
    Some((word >> (8 * (at & 4))) as u32)
}

/// The frame record is at sp; the CFA is as far up as the instruction moves sp.
fn record(code: u32) -> Rule {
    let words = ((code << 10).cast_signed() >> 25).unsigned_abs() as i16;
    Rule {
        cfa: Cfa::Sp,
        cfa_offset: 8 * i32::from(words),
        fp: FpMode::AtCfa,
        fp_offset: -words,
        slot: RA_BESIDE_FP,
    }
}

/// stp x29, x30, [sp, #imm]!
fn is_push_of_record(code: u32) -> bool {
    code & 0xffc0_7fff == 0xa980_7bfd
}

/// ldp x29, x30, [sp], #imm
fn is_pop_of_record(code: u32) -> bool {
    code & 0xffc0_7fff == 0xa8c0_7bfd
}

/// True if nothing of the frame is made yet, or nothing is left of it.
fn is_outside_frame(code: u32) -> bool {
    match code {
        // paciasp, pacibsp, bti c: where a function begins.
        0xd503_233f | 0xd503_237f | 0xd503_245f => true,
        // autiasp, autibsp, ret, retaa, retab: where it ends.
        0xd503_23bf | 0xd503_23ff | 0xd65f_03c0 | 0xd65f_0bff | 0xd65f_0fff => true,
        _ => is_push_of_record(code),
    }
}

/// bl, and blr in each of its forms.
fn is_call(code: u32) -> bool {
    code >> 26 == 0x25 || code & 0xfeff_f000 == 0xd63f_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: u64 = 0x40_1000;
    const CODE: u64 = BEFORE + 4;
    const BEFORE_CALLER: u64 = 0x50_0000;
    const CALLER: u64 = BEFORE_CALLER + 8;
    const PUSH: u32 = 0xa9bb_7bfd;
    const POP: u32 = 0xa8c5_7bfd;
    const BLR: u32 = 0xd63f_0020;

    /// The rule at `code`, behind `before`, for a caller that made the call `call`.
    fn found(before: u32, code: u32, call: u32) -> Option<Rule> {
        rule(CODE, Some(CALLER), |at| match at {
            BEFORE => Some(u64::from(code) << 32 | u64::from(before)),
            BEFORE_CALLER => Some(u64::from(call) << 32),
            _ => None,
        })
    }

    #[test]
    fn frames_in_the_making() {
        let nop = 0xd503_201f;
        let outside = Some(Rule {
            cfa: Cfa::Sp,
            ..Rule::default()
        });
        for code in [
            0xd503_233f,
            0xd503_245f,
            PUSH,
            0xd65f_03c0,
            0xd65f_0bff,
            0xd503_23bf,
        ] {
            for call in [0x9400_0001, 0x97ff_ffff, BLR, 0xd73f_0801, 0xd63f_083f] {
                assert_eq!(found(nop, code, call), outside, "{code:x} {call:x}");
            }
            // A branch, a branch to a register.
            for other in [0x1400_0001, 0xd61f_0020, nop] {
                assert_eq!(found(nop, code, other), None, "{code:x} {other:x}");
            }
        }
        let record = Some(Rule {
            cfa: Cfa::Sp,
            cfa_offset: 80,
            fp: FpMode::AtCfa,
            fp_offset: -10,
            slot: RA_BESIDE_FP,
        });
        assert_eq!(found(nop, POP, nop), record);
        assert_eq!(found(PUSH, MOV_SP_TO_FP, nop), record);
        assert_eq!(found(nop, MOV_SP_TO_FP, BLR), None);
        assert_eq!(found(PUSH, nop, BLR), None, "behind the prologue");
    }

    #[test]
    fn the_largest_frames_of_one_instruction() {
        // stp x29, x30, [sp, #-512]!; ldp x29, x30, [sp], #504
        let made = found(0xa9a0_7bfd, MOV_SP_TO_FP, BLR).expect("a record");
        assert_eq!((made.cfa_offset, made.fp_offset), (512, -64));
        let left = found(0, 0xa8df_fbfd, BLR).expect("a record");
        assert_eq!((left.cfa_offset, left.fp_offset), (504, -63));
    }
}
