//! What the tool and its reading process say to each other.
//!
//! The reading process is believed as little as the files that it reads: an answer is bounded and may hold anything.

use std::io;

use foreign::wire::at_most;
use postcard::experimental::serialized_size;
use serde::{Deserialize, Serialize};

use super::super::elfnames::Functions;

/// Addresses in one question; what fits an answer of ordinary names hundreds of times.
pub(super) const MAX_ADDRESSES: usize = 512;
/// An answer's bytes; what would not fit goes without a name.
pub(super) const MAX_ANSWER: usize = 16 << 20;
/// Of these, in front of the names.
const HEADER: usize = 16;

/// Names are asked for.
#[derive(Deserialize, Serialize)]
pub(super) struct Question {
    /// Which file; its descriptor comes along the first time.
    pub(super) file: u64,
    /// Debug information may be read, not only symbol tables.
    pub(super) dwarf: bool,
    /// ELF virtual addresses, at most [`MAX_ADDRESSES`].
    pub(super) addresses: Vec<u64>,
}

/// The functions at each address, or that the file is refused.
#[derive(Deserialize, Serialize)]
pub(super) enum Answer {
    Refused,
    Names(#[serde(deserialize_with = "at_most::<_, _, MAX_ADDRESSES>")] Vec<Option<Functions>>),
}

impl Answer {
    /// These functions, as far as there is room for them.
    pub(super) fn of(mut names: Vec<Option<Functions>>) -> Self {
        let mut left = MAX_ANSWER - HEADER - names.len();
        for functions in &mut names {
            let bytes = serialized_size(functions).unwrap_or(usize::MAX);
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => *functions = None,
            }
        }
        Self::Names(names)
    }

    /// The functions at the addresses of a question; `None` when the file is refused.
    ///
    /// # Errors
    ///
    /// `InvalidData` when this is no answer to it.
    pub(super) fn to(self, question: &Question) -> io::Result<Option<Vec<Option<Functions>>>> {
        let Self::Names(names) = self else {
            return Ok(None);
        };
        let is_sound = names.len() == question.addresses.len()
            && names.iter().flatten().all(Functions::is_bounded);
        if is_sound {
            Ok(Some(names))
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::damage::Seeded;
    use super::super::super::elfnames::{MAX_INLINED, Named};
    use super::*;
    use elf::MAX_NAME;

    fn named(name: &str, line: Option<(String, u32)>) -> Named {
        Named {
            name: name.into(),
            line,
        }
    }

    fn functions(named: Vec<Named>, sizeless: Option<u64>) -> Option<Functions> {
        Some(Functions { named, sizeless })
    }

    fn sample() -> Vec<Option<Functions>> {
        let outer = named("outer", Some(("a.c".into(), 7)));
        vec![
            None,
            functions(vec![outer, named("é()", None)], None),
            functions(vec![named("", None)], Some(4096)),
        ]
    }

    /// What a question about so many addresses comes to, if these bytes are the answer.
    fn heard(bytes: &[u8], addresses: usize) -> Option<Vec<Option<Functions>>> {
        let question = Question {
            file: 7,
            dwarf: true,
            addresses: vec![0; addresses],
        };
        let (answer, rest) = postcard::take_from_bytes::<Answer>(bytes).ok()?;
        answer.to(&question).ok()?.filter(|_| rest.is_empty())
    }

    fn said(names: Vec<Option<Functions>>) -> Vec<u8> {
        postcard::to_allocvec(&Answer::of(names)).unwrap()
    }

    #[test]
    fn a_lying_process_is_not_believed() {
        let whole = said(sample());
        assert_eq!(heard(&whole, 3), Some(sample()));
        for length in 0..whole.len() {
            assert_eq!(heard(&whole[..length], 3), None, "{length}");
        }
        assert_eq!(heard(&whole, 2), None, "more than was asked for");
        let long = "x".repeat(MAX_NAME + 9);
        for lie in [
            vec![],
            vec![named(&long, None)],
            vec![named("", Some((long.clone(), 1)))],
        ] {
            assert_eq!(heard(&said(vec![functions(lie, None)]), 1), None);
        }
        let deep = vec![named("", None); MAX_INLINED + 2];
        assert_eq!(heard(&said(vec![functions(deep, None)]), 1), None);
        let mut seeded = Seeded(11);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            seeded.damage(&mut bytes);
            heard(&bytes, 3);
        }
    }

    #[test]
    fn too_long_an_answer_loses_its_longest_parts() {
        let name = "x".repeat(MAX_NAME);
        let long = functions(vec![named(&name, None); MAX_INLINED], None);
        let bytes = said(vec![long; MAX_ADDRESSES]);
        assert!(bytes.len() <= MAX_ANSWER);
        let heard = heard(&bytes, MAX_ADDRESSES).unwrap();
        assert!(heard[0].is_some() && heard[MAX_ADDRESSES - 1].is_none());
    }
}
