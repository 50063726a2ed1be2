//! The last word of a rule: what the futex is that is waited for.

/// A rule's word on the futex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// It stands for the waiter and not for the lock.
    pub(super) is_own: bool,
    /// Bytes from the lock's beginning to it.
    pub(super) behind: u8,
    /// The only value that it is expected to hold; `None`: any.
    pub(super) value: Option<u32>,
}

impl Word {
    /// Forms of the word, for whoever wrote another one.
    pub(super) const FORMS: &'static str =
        "only 'own', '+BYTES' or '=NUMBER', of 32 bits, may stand here";

    /// `own`, `+4`, `=-1` or `=0x80000000`; `None`: none of these.
    pub(super) fn read(word: &str) -> Option<Self> {
        if word == "own" {
            return Some(Self {
                is_own: true,
                ..Self::default()
            });
        }
        if let Some(bytes) = word.strip_prefix('+') {
            return Some(Self {
                behind: bytes.parse().ok()?,
                ..Self::default()
            });
        }
        Some(Self {
            value: Some(number(word.strip_prefix('=')?)?),
            ..Self::default()
        })
    }
}

/// Futex words are 32 bits, whatever sign programs give them.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => {
            let signed = || text.parse().ok().map(i32::cast_unsigned);
            text.parse().ok().or_else(signed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_whose_the_futex_is_where_it_lies_or_what_it_holds() {
        let own = Word {
            is_own: true,
            ..Word::default()
        };
        let second = Word {
            behind: 4,
            ..Word::default()
        };
        let holds = |value| Word {
            value: Some(value),
            ..Word::default()
        };
        assert_eq!(Word::read("own"), Some(own));
        assert_eq!(Word::read("+4"), Some(second));
        assert_eq!(Word::read("=-1"), Some(holds(u32::MAX)));
        assert_eq!(Word::read("=0x80000000"), Some(holds(1 << 31)));
        for wrong in ["4", "+", "+-4", "+256", "=", "=0x", "=4294967296", "mine"] {
            assert_eq!(Word::read(wrong), None, "{wrong}");
        }
    }
}
