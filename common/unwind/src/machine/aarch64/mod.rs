//! Everything that is aarch64's own: registers, rules, PLTs, and the way from a frame to its caller.
//!
//! A call leaves the return address in x30. Functions that call others save it with x29, as a frame record, which may lie
//! anywhere in the frame. Pointer authentication (PAC) signs return addresses with bits that are no part of the address.
//!
//! The sources are the Procedure Call Standard for the Arm 64-bit Architecture, "DWARF for the Arm 64-bit Architecture", and
//! the kernel's `arch/arm64/kernel/signal.c` and `vdso/sigreturn.S`.

use gimli::{Register, RegisterRule, UnwindSection};

use crate::convert::{Numbers, Reader, Row, cfa, fp};
use crate::frame::{End, Frame, Memory, add};
use crate::rule::{Cfa, FpMode, Rule};

mod code;
pub(super) mod leaf;
pub(super) mod plt;

/// DWARF numbers.
const X29: u16 = 29;
const X30: u16 = 30;
const SP: u16 = 31;
const NUMBERS: Numbers = Numbers {
    sp: SP,
    fp: X29,
    general: SP,
};

/// The return address by [`Rule::slot`]: in x30; beside the saved x29; where the rule says that x29 would be, if it is not saved.
const RA_IN_LR: u8 = 0;
const RA_BESIDE_FP: u8 = 62;
const RA_AT_FP_OFFSET: u8 = 63;

/// Bytes of a register, by which [`Rule::fp_offset`] counts.
const WORD: i64 = 8;

/// mov x8, #139 (rt_sigreturn); svc #0: a signal handler returns to these.
const SIGNAL_RETURN: [u32; 2] = [0xd280_1168, 0xd400_0001];
/// Offset of x29 in the signal frame, in bytes from sp there: x30, sp and pc follow.
const SIGNAL_FP: u64 = 312 + 29 * 8;

/// The rule that says the same as `row`.
pub(super) fn rule<'a, S: UnwindSection<Reader<'a>>>(row: &Row, section: &S) -> Rule {
    convert(row, section).unwrap_or(Rule::UNSUPPORTED)
}

fn convert<'a, S: UnwindSection<Reader<'a>>>(row: &Row, section: &S) -> Option<Rule> {
    let saved = match row.register(Register(X30)) {
        Some(RegisterRule::Undefined) => return Some(Rule::END),
        None | Some(RegisterRule::SameValue | RegisterRule::Register(Register(X30))) => None,
        Some(RegisterRule::Offset(offset)) => Some(offset),
        Some(_) => return None,
    };
    // The caller's sp is the CFA by definition, unless a rule says otherwise.
    match row.register(Register(SP)) {
        None | Some(RegisterRule::ValOffset(0)) => {}
        Some(_) => return None,
    }
    let (cfa, cfa_offset) = cfa(&NUMBERS, row.cfa(), section)?;
    let (fp, fp_offset) = fp((X29, WORD), row, section);
    let rule = Rule {
        cfa,
        fp,
        fp_offset,
        cfa_offset,
        slot: RA_IN_LR,
    };
    match saved {
        None => Some(rule),
        Some(saved) => with_saved(rule, saved),
    }
}

/// True of rows whose CFA is not the caller's sp: `_dl_runtime_resolve` says where the PLT's code has pushed the return address,
/// with a word below it, and not that both lie above its CFA; before its first instruction it says neither.
pub(super) fn is_behind_pushed(row: &Row) -> bool {
    matches!(
        row.register(Register(X30)),
        Some(RegisterRule::Offset(WORD))
    )
}

/// The rule of such a row. In the end both are popped again, and x30 has the return address.
fn behind_pushed(rule: Rule) -> Option<Rule> {
    let is_plain = matches!(rule.cfa, Cfa::Sp | Cfa::Bp) && rule.fp == FpMode::Same;
    let cfa_offset = rule.cfa_offset.checked_add(2 * WORD as i32)?;
    let slot = if cfa_offset == 0 { RA_IN_LR } else { 1 };
    is_plain.then_some(Rule {
        cfa_offset,
        slot,
        ..rule
    })
}

/// The return address is at CFA + `saved`.
fn with_saved(rule: Rule, saved: i64) -> Option<Rule> {
    if saved == WORD {
        return behind_pushed(rule);
    }
    let words = (saved % WORD == 0).then_some(saved / WORD)?;
    if rule.fp == FpMode::AtCfa && words == i64::from(rule.fp_offset) + 1 {
        return Some(Rule {
            slot: RA_BESIDE_FP,
            ..rule
        });
    }
    let below = u8::try_from(-words).ok();
    if let Some(slot) = below.filter(|words| (1..RA_BESIDE_FP).contains(words)) {
        return Some(Rule { slot, ..rule });
    }
    // Far below the CFA: where x29 would be.
    (rule.fp == FpMode::Same).then_some(Rule {
        fp_offset: i16::try_from(words).ok()?,
        slot: RA_AT_FP_OFFSET,
        ..rule
    })
}

/// The frame record is at CFA + `at`.
fn with_record(rule: Rule, at: i64) -> Option<Rule> {
    let words = (at % WORD == 0).then_some(at / WORD)?;
    Some(Rule {
        fp: FpMode::AtCfa,
        fp_offset: i16::try_from(words).ok()?,
        slot: RA_BESIDE_FP,
        ..rule
    })
}

/// Bytes from the CFA to where a rule says that x29 is saved.
fn fp_offset(rule: Rule) -> i32 {
    i32::from(rule.fp_offset) * 8
}

/// The rule of a place `depth` bytes below the caller's sp, by Go's table. Functions with a frame keep x30 at its lowest word, and
/// x29 below that.
pub(super) fn go_rule(depth: i32) -> Rule {
    let plain = Rule {
        cfa: Cfa::Sp,
        cfa_offset: depth,
        ..Rule::default()
    };
    match depth {
        0 => plain,
        1.. => with_record(plain, -i64::from(depth) - WORD).unwrap_or(Rule::UNSUPPORTED),
        // Hand-written code that leaves its caller's stack.
        _ => Rule::UNCOVERED,
    }
}

/// The rule where no table gives one: of a signal's return, and of code that makes or leaves its frame.
pub(super) fn rule_by_code(frame: &Frame, rule: Rule, memory: Memory<'_>) -> Rule {
    if is_signal_return(frame, rule, memory) {
        return Rule::SIGNAL;
    }
    if rule.cfa != Cfa::Uncovered || !frame.exact {
        return rule;
    }
    let return_address = frame.lr.map(|lr| lr & frame.code_mask);
    code::rule(frame.ip, return_address, memory).unwrap_or(rule)
}

/// True if a signal handler returns here, or the thread is on its way from there into the kernel, which puts sp back last but one.
/// Nobody else returns to code without a table or with the return address in x30.
fn is_signal_return(frame: &Frame, rule: Rule, memory: Memory<'_>) -> bool {
    let begins = |ip: u64| {
        let next = code::instruction(ip.wrapping_add(4), memory)?;
        Some([code::instruction(ip, memory)?, next])
    };
    let is_at = |passed: u64| begins(frame.ip.wrapping_sub(passed)) == Some(SIGNAL_RETURN);
    if frame.exact {
        return rule.cfa == Cfa::Uncovered && [0, 4, 8].into_iter().any(is_at);
    }
    let may_be = rule.cfa == Cfa::Uncovered || rule.slot == RA_IN_LR;
    may_be && frame.lr.is_none() && is_at(0)
}

/// The caller's frame by a rule that says something.
pub(super) fn caller(frame: &Frame, rule: Rule, memory: Memory<'_>) -> Result<Frame, End> {
    let read = |address| memory(address).ok_or(End::Unreadable);
    let cfa = match rule.cfa {
        Cfa::Signal => return interrupted(frame, memory),
        Cfa::End => return Err(End::Root),
        Cfa::Register => {
            let all = frame.leaf.as_ref().ok_or(End::Unsupported)?;
            let base = all.get(usize::from(rule.low())).ok_or(End::Unsupported)?;
            add(*base, rule.high())
        }
        // x29 points to the record of a function that has one.
        Cfa::Sp if frame.sp_is_bound => match rule.slot {
            RA_BESIDE_FP => add(frame.frame_pointer()?, -fp_offset(rule)),
            _ => return Err(End::NoTable),
        },
        _ => frame.cfa(rule, memory).ok_or(End::Unsupported)??,
    };
    // Functions without a frame have their caller's sp; they know x30, which is known once.
    if cfa < frame.sp || cfa == frame.sp && rule.slot != RA_IN_LR {
        return Err(End::NoTable);
    }
    let ip = match rule.slot {
        RA_IN_LR => frame.lr.ok_or(End::Unsupported)?,
        RA_BESIDE_FP => read(add(cfa, fp_offset(rule) + 8))?,
        RA_AT_FP_OFFSET => read(add(cfa, fp_offset(rule)))?,
        words => read(cfa.wrapping_sub(8 * u64::from(words)))?,
    };
    let bp = match rule.fp {
        FpMode::AtCfa => Some(read(add(cfa, fp_offset(rule)))?),
        FpMode::Same => frame.bp,
        FpMode::AtBp | FpMode::Lost => None,
    };
    returned(frame, ip, cfa, bp)
}

/// A return address without what PAC put into it; 0: the outermost frame.
fn returned(frame: &Frame, ip: u64, sp: u64, bp: Option<u64>) -> Result<Frame, End> {
    match ip & frame.code_mask {
        0 => Err(End::Root),
        ip => Ok(frame.returned(ip, sp, bp)),
    }
}

/// The caller by the frame record that x29 points to. It does not say how far its frame goes.
pub(super) fn caller_by_frame_pointer(frame: &Frame, memory: Memory<'_>) -> Result<Frame, End> {
    let (at, bp, ip) = frame.record(memory)?;
    Ok(Frame {
        sp_is_bound: true,
        ..returned(frame, ip, at.wrapping_add(16), Some(bp))?
    })
}

/// The frame that a signal interrupted. It may be on another stack, so `sp` may descend.
fn interrupted(frame: &Frame, memory: Memory<'_>) -> Result<Frame, End> {
    let at = frame.sp.wrapping_add(SIGNAL_FP);
    let read = |word: u64| memory(at.wrapping_add(8 * word)).ok_or(End::Unreadable);
    let (bp, lr, sp, ip) = (read(0)?, read(1)?, read(2)?, read(3)?);
    if ip == 0 {
        return Err(End::Root);
    }
    Ok(Frame {
        lr: Some(lr).filter(|lr| *lr != 0),
        exact: true,
        ..frame.returned(ip, sp, Some(bp))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;

    const STUB: u64 = 0x40_1008;

    /// The rule of a thread that is at `ip`, or returns there, with the signal's return at `STUB` and nothing else.
    fn rule_at(ip: u64, exact: bool, rule: Rule) -> Rule {
        let words = SIGNAL_RETURN.map(u64::from);
        let memory = |at| match at {
            STUB => Some(words[1] << 32 | words[0]),
            _ => Some(0),
        };
        let frame = Frame {
            exact,
            ..Frame::new(Architecture::Aarch64, ip, 0x8000, 0)
        };
        rule_by_code(&frame, rule, &memory)
    }

    #[test]
    fn the_return_from_a_signal_is_one_until_the_kernel_has_it() {
        let uncovered = Rule::UNCOVERED;
        for behind in [0, 4, 8] {
            assert_eq!(rule_at(STUB + behind, true, uncovered), Rule::SIGNAL);
        }
        for other in [STUB - 4, STUB + 12] {
            assert_eq!(rule_at(other, true, uncovered), uncovered);
        }
        assert_eq!(rule_at(STUB, false, uncovered), Rule::SIGNAL);
        assert_eq!(rule_at(STUB + 8, false, uncovered), uncovered);
        // A function that has a table may begin behind it.
        let leaf = Rule {
            cfa: Cfa::Sp,
            ..Rule::default()
        };
        assert_eq!(rule_at(STUB + 8, true, leaf), leaf);
    }
}
