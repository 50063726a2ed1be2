//! `--comm GLOB`, compiled to the Shift-And tables that BPF programs match names with.
//!
//! Every position of the pattern is a bit; a byte of the name moves all live positions on at once (Baeza-Yates and
//! Gonnet, CACM 35, 1992), so that the BPF side needs neither branches nor backtracking.

use std::fmt;
use std::str::FromStr;

/// Positions that fit the 32-bit state, its end included.
const MAX_POSITIONS: usize = 30;

/// A compiled pattern: literals, `?`, `*`, `[a-z]`, `[!x]`, `\` before a special character.
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    pattern: String,
    /// Bit i of `accept[b]`: position i takes byte b.
    pub accept: [u32; 256],
    /// Bit i: position i is a `*`.
    pub star: u32,
    /// The state in which the whole pattern has matched.
    pub final_mask: u32,
}

impl Glob {
    /// The pattern as it was given.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The same steps as `glob_match` in `bpf/include/glob.bpf.h`.
    pub fn matches(&self, name: &[u8]) -> bool {
        let step = |state: u32, byte: &u8| {
            self.close(((state & self.accept[usize::from(*byte)]) << 1) | (state & self.star))
        };
        let bytes = name.iter().take_while(|byte| **byte != 0).take(16);
        bytes.fold(self.close(1), step) & self.final_mask != 0
    }

    /// A star may also match nothing.
    fn close(&self, state: u32) -> u32 {
        state | ((state & self.star) << 1)
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut glob = Self {
            pattern: text.to_owned(),
            accept: [0; 256],
            star: 0,
            final_mask: 0,
        };
        let mut position = 0;
        let mut rest = text.as_bytes();
        while let Some((&first, tail)) = rest.split_first() {
            if position == MAX_POSITIONS {
                return Err(format!(
                    "longer than {MAX_POSITIONS} characters; names have 15"
                ));
            }
            let bit = 1_u32 << position;
            rest = tail;
            match first {
                // Closing over two stars in a row would take two steps.
                b'*' if position > 0 && glob.star & (bit >> 1) != 0 => continue,
                b'*' => glob.star |= bit,
                b'?' => glob.accept.iter_mut().for_each(|mask| *mask |= bit),
                b'[' => rest = glob.accept_class(tail, bit)?,
                b'\\' => {
                    let (&literal, tail) = tail.split_first().ok_or("ends in a backslash")?;
                    glob.accept[usize::from(literal)] |= bit;
                    rest = tail;
                }
                literal => glob.accept[usize::from(literal)] |= bit,
            }
            position += 1;
        }
        if position == 0 {
            return Err("empty".into());
        }
        glob.final_mask = 1 << position;
        Ok(glob)
    }
}

impl Glob {
    /// Takes in `a-z]…` behind a `[`; returns what follows the `]`.
    fn accept_class<'a>(&mut self, text: &'a [u8], bit: u32) -> Result<&'a [u8], String> {
        let (negated, body) = match text.first() {
            Some(b'!' | b'^') => (true, &text[1..]),
            _ => (false, text),
        };
        // A `]` that comes first is a member.
        let end = body
            .iter()
            .skip(1)
            .position(|byte| *byte == b']')
            .ok_or("[ without ]")?
            + 1;
        let (members, rest) = (&body[..end], &body[end + 1..]);
        let mut wanted = [false; 256];
        let mut at = 0;
        while at < members.len() {
            let (low, high, used) = match members[at..] {
                [low, b'-', high, ..] => (low, high, 3),
                _ => (members[at], members[at], 1),
            };
            for byte in low..=high {
                wanted[usize::from(byte)] = true;
            }
            at += used;
        }
        for (mask, member) in self.accept.iter_mut().zip(wanted) {
            if member != negated {
                *mask |= bit;
            }
        }
        Ok(rest)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Glob").field(&self.pattern).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// Every pattern of up to four of these pieces against every name of up to four of these letters.
    const PIECES: [&str; 8] = ["a", "b", "?", "*", "[ab]", "[!a]", "\\*", "[b-c]"];
    const LETTERS: [u8; 4] = *b"abc*";

    fn combinations<T: Copy>(items: &[T], longest: usize) -> Vec<Vec<T>> {
        let mut all: Vec<Vec<T>> = vec![vec![]];
        let mut last = all.clone();
        for _ in 0..longest {
            last = last
                .iter()
                .flat_map(|head| items.iter().map(|item| [&head[..], &[*item]].concat()))
                .collect();
            all.extend(last.clone());
        }
        all
    }

    #[test]
    fn agrees_with_fnmatch() {
        for pieces in combinations(&PIECES, 3) {
            let pattern = pieces.concat();
            let Ok(glob) = pattern.parse::<Glob>() else {
                continue;
            };
            let c_pattern = CString::new(pattern.as_str()).unwrap();
            for name in combinations(&LETTERS, 4) {
                let c_name = CString::new(name.clone()).unwrap();
                // SAFETY: both are C strings.
                let expected =
                    unsafe { libc::fnmatch(c_pattern.as_ptr(), c_name.as_ptr(), 0) } == 0;
                assert_eq!(
                    glob.matches(&name),
                    expected,
                    "{pattern} {}",
                    String::from_utf8_lossy(&name)
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_compiled_is_said() {
        assert!("".parse::<Glob>().is_err());
        assert!("[a".parse::<Glob>().is_err());
        assert!("a\\".parse::<Glob>().is_err());
        assert!(
            "x".repeat(31)
                .parse::<Glob>()
                .unwrap_err()
                .contains("longer than 30")
        );
    }
}
