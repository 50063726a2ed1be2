//! Procedure linkage tables of aarch64.

use crate::rule::{Cfa, Rule};

/// stp x16, x30, [sp, #-16]!: the first of the header, or behind a `bti c`.
const PUSH: u32 = 0xa9bf_7bf0;
const BTI_C: u32 = 0xd503_245f;
const NOP: u32 = 0xd503_201f;
const BR_X17: u32 = 0xd61f_0220;
/// autia1716: what a linker adds with `-z pac-plt`.
const AUTIA1716: u32 = 0xd503_219f;

/// The rules of a PLT by offset; none: not all of it is code that is known here. Entries jump and leave sp and x30 alone; the
/// header pushes x30 above x16.
pub(in crate::machine) fn rules(bytes: &[u8]) -> Vec<(u64, Rule)> {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let entry = Rule {
        cfa: Cfa::Sp,
        ..Rule::default()
    };
    let Some(header) = header(&words).filter(|_| rest.is_empty()) else {
        return Vec::new();
    };
    if !words[header.words..].iter().all(|word| is_entry(*word)) {
        return Vec::new();
    }
    let pushed = Rule {
        cfa_offset: 16,
        slot: 1,
        ..entry
    };
    let mut rules = vec![(0, entry)];
    if let Some(push) = header.push {
        rules.push((4 * (push as u64 + 1), pushed));
        rules.push((4 * header.words as u64, entry));
    }
    rules
}

/// The part in front of the entries.
struct Header {
    words: usize,
    /// Index of the instruction that pushes.
    push: Option<usize>,
}

/// `None`: nothing that is known here. Static programs have entries alone.
fn header(words: &[u32]) -> Option<Header> {
    const WORDS: usize = 8;
    let push = match words {
        [PUSH, ..] => 0,
        [BTI_C, PUSH, ..] => 1,
        [] => return None,
        _ => {
            return Some(Header {
                words: 0,
                push: None,
            });
        }
    };
    let behind = words.get(push + 1..WORDS)?;
    behind.iter().all(|word| is_entry(*word)).then_some(Header {
        words: WORDS,
        push: Some(push),
    })
}

/// adrp x16; ldr x17, [x16, #imm]; add x16, x16, #imm; br x17; and what is between.
fn is_entry(word: u32) -> bool {
    matches!(word, BTI_C | NOP | BR_X17 | AUTIA1716)
        || word & 0x9f00_001f == 0x9000_0010
        || word & 0xffc0_03ff == 0xf940_0211
        || word & 0xffc0_03ff == 0x9100_0210
}

#[cfg(test)]
mod tests {
    use super::*;

    /// adrp, ldr, add and br.
    const ENTRY: [u32; 4] = [0x9000_0110, 0xf947_d211, 0x913e_8210, BR_X17];

    fn rules_of(words: &[&[u32]]) -> Vec<(u64, i32, u8)> {
        let bytes: Vec<u8> = words
            .concat()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let rules = rules(&bytes).into_iter();
        rules
            .map(|(at, rule)| (at, rule.cfa_offset, rule.slot))
            .collect()
    }

    #[test]
    fn entries_leave_the_stack_alone() {
        let lazy = [&[PUSH][..], &ENTRY, &[NOP, NOP, NOP]].concat();
        let expected = vec![(0, 0, 0), (4, 16, 1), (32, 0, 0)];
        assert_eq!(rules_of(&[&lazy, &ENTRY, &ENTRY]), expected);
        let marked = [&[BTI_C, PUSH][..], &ENTRY, &[NOP, NOP]].concat();
        let entry = [&[BTI_C][..], &ENTRY[..3], &[AUTIA1716, BR_X17]].concat();
        let expected = vec![(0, 0, 0), (8, 16, 1), (32, 0, 0)];
        assert_eq!(rules_of(&[&marked, &entry, &entry]), expected);
        assert_eq!(rules_of(&[&ENTRY, &ENTRY]), [(0, 0, 0)]);
    }

    #[test]
    fn other_code_is_no_plt() {
        let ret = [0xd65f_03c0];
        assert_eq!(rules_of(&[&ENTRY, &ret]), []);
        assert_eq!(rules_of(&[&[PUSH], &ENTRY[..]]), [], "cut off");
        assert_eq!(rules_of(&[]), []);
        assert_eq!(rules(&[0; 3]), []);
    }
}
