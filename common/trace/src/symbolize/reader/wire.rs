//! What the tool and its reading process say to each other: a length and so many bytes, both ways.
//!
//! The reading process is believed as little as the files that it reads: an answer is bounded and may hold anything.

use super::super::demangle::MAX_NAME;
use super::super::elfnames::{Functions, MAX_INLINED, Named};

/// Addresses in one question; what fits an answer of ordinary names hundreds of times.
pub(super) const MAX_ADDRESSES: usize = 512;
/// An answer's bytes; what would not fit goes without a name.
pub(super) const MAX_ANSWER: usize = 16 << 20;
/// A question's bytes.
pub(super) const MAX_QUESTION: usize = 16 + 8 * MAX_ADDRESSES;
/// Bytes of the length in front.
pub(super) const PREFIX: usize = 4;

/// Names are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Which file; its descriptor comes along the first time.
    pub(super) file: u64,
    /// Debug information may be read, not only symbol tables.
    pub(super) dwarf: bool,
    /// ELF virtual addresses.
    pub(super) addresses: Vec<u64>,
}

/// One entry per address; `None` as a whole: the file is refused.
pub(super) type Answer = Option<Vec<Option<Functions>>>;

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; PREFIX];
        out.extend(self.file.to_le_bytes());
        out.push(u8::from(self.dwarf));
        self.addresses
            .iter()
            .for_each(|address| out.extend(address.to_le_bytes()));
        framed(out)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let (file, dwarf) = (rest.u64()?, rest.u8()? == 1);
        let mut addresses = Vec::new();
        while !rest.0.is_empty() {
            addresses.push(rest.u64()?);
        }
        Some(Self {
            file,
            dwarf,
            addresses,
        })
    }
}

/// In front: how many bytes follow.
fn framed(mut out: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(out.len() - PREFIX).expect("bounded by MAX_ANSWER");
    out[..PREFIX].copy_from_slice(&length.to_le_bytes());
    out
}

/// An answer, cut where it would become too long.
pub(super) fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut out = vec![0; PREFIX];
    out.push(u8::from(answer.is_some()));
    for functions in answer.iter().flatten() {
        let before = out.len();
        match functions {
            None => out.push(0),
            Some(functions) => encode_functions(functions, &mut out),
        }
        if out.len() > MAX_ANSWER - MAX_ADDRESSES {
            out.truncate(before);
            out.push(0);
        }
    }
    framed(out)
}

fn encode_functions(functions: &Functions, out: &mut Vec<u8>) {
    out.push(if functions.sizeless.is_some() { 2 } else { 1 });
    out.extend(functions.sizeless.unwrap_or(0).to_le_bytes());
    let count = u16::try_from(functions.named.len()).unwrap_or(u16::MAX);
    out.extend(count.to_le_bytes());
    for named in functions.named.iter().take(count.into()) {
        encode_text(&named.name, out);
        out.push(u8::from(named.line.is_some()));
        if let Some((file, line)) = &named.line {
            encode_text(file, out);
            out.extend(line.to_le_bytes());
        }
    }
}

fn encode_text(text: &str, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("names are cut");
    out.extend(length.to_le_bytes());
    out.extend(text.as_bytes());
}

/// Reads an answer to a question about `wanted` addresses; `None` when it is none.
pub(super) fn decode_answer(bytes: &[u8], wanted: usize) -> Option<Answer> {
    let mut rest = Rest(bytes);
    if rest.u8()? == 0 {
        return rest.0.is_empty().then_some(None);
    }
    let mut answer = Vec::with_capacity(wanted);
    for _ in 0..wanted {
        answer.push(match rest.u8()? {
            0 => None,
            kind => Some(decode_functions(kind == 2, &mut rest)?),
        });
    }
    rest.0.is_empty().then_some(Some(answer))
}

fn decode_functions(sizeless: bool, rest: &mut Rest<'_>) -> Option<Functions> {
    let start = rest.u64()?;
    let count = usize::from(rest.u16()?);
    if !(1..=MAX_INLINED + 1).contains(&count) {
        return None;
    }
    let mut named = Vec::new();
    for _ in 0..count {
        let name = rest.text()?;
        let line = match rest.u8()? {
            0 => None,
            _ => Some((rest.text()?, rest.u32()?)),
        };
        named.push(Named { name, line });
    }
    Some(Functions {
        named,
        sizeless: sizeless.then_some(start),
    })
}

/// What has not been read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        // A cut name has an ellipsis behind it.
        if length > MAX_NAME + 8 {
            return None;
        }
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::damage::Seeded;
    use super::*;

    fn sample() -> Answer {
        let named = |name: &str, line| Named {
            name: name.into(),
            line,
        };
        Some(vec![
            None,
            Some(Functions {
                named: vec![named("outer", Some(("a.c".into(), 7))), named("é()", None)],
                sizeless: None,
            }),
            Some(Functions {
                named: vec![named("", None)],
                sizeless: Some(4096),
            }),
        ])
    }

    #[test]
    fn what_is_said_is_heard() {
        let question = Question {
            file: 7,
            dwarf: true,
            addresses: vec![1, u64::MAX],
        };
        let bytes = question.encode();
        assert_eq!(bytes.len() - PREFIX, 25);
        assert_eq!(Question::decode(&bytes[PREFIX..]), Some(question));
        for answer in [None, sample()] {
            let bytes = encode_answer(&answer);
            assert_eq!(decode_answer(&bytes[PREFIX..], 3), Some(answer));
        }
    }

    #[test]
    fn a_lying_process_is_not_believed() {
        let whole = encode_answer(&sample());
        let whole = &whole[PREFIX..];
        for length in 0..whole.len() {
            assert_eq!(decode_answer(&whole[..length], 3), None, "{length}");
        }
        assert_eq!(decode_answer(whole, 2), None, "more than was asked for");
        let mut seeded = Seeded(11);
        for _ in 0..20_000 {
            let mut bytes = whole.to_vec();
            seeded.damage(&mut bytes);
            decode_answer(&bytes, 3);
        }
    }

    #[test]
    fn too_long_an_answer_loses_its_longest_parts() {
        let name = "x".repeat(MAX_NAME);
        let functions = Functions {
            named: vec![Named { name, line: None }; MAX_INLINED],
            sizeless: None,
        };
        let answer = Some(vec![Some(functions); MAX_ADDRESSES]);
        let bytes = encode_answer(&answer);
        assert!(bytes.len() <= MAX_ANSWER + PREFIX);
        let heard = decode_answer(&bytes[PREFIX..], MAX_ADDRESSES)
            .unwrap()
            .unwrap();
        assert!(heard[0].is_some() && heard[MAX_ADDRESSES - 1].is_none());
    }
}
