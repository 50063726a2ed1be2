//! Fields of a protocol buffer, one by one: a whole document at once takes many times its size.

use std::iter;

use prost::{Message, decode_length_delimiter};

use super::ReadError;

/// Longest message and list of comments, bytes: in memory they take up to sixteen times as much. There is room for as many frames and
/// labels as are read.
pub(super) const LARGEST_MESSAGE: usize = 1 << 20;

/// A field of the document.
pub(super) struct Field<'a> {
    pub(super) number: usize,
    /// With its number, as a message that has nothing else.
    pub(super) whole: &'a [u8],
    /// Empty for a plain number.
    pub(super) content: &'a [u8],
    /// Beginning of the content.
    pub(super) at: usize,
}

impl<'a> Field<'a> {
    fn next(document: &'a [u8], at: &mut usize) -> Result<Self, ReadError> {
        let start = *at;
        let key = varint(document, at)?;
        let length = match key & 7 {
            0 => varint(document, at).map(|_| 0)?,
            1 => 8,
            2 => varint(document, at)?,
            5 => 4,
            _ => return Err(damaged(start)),
        };
        let content = document[*at..].get(..length);
        let content = content.ok_or_else(|| damaged(*at))?;
        *at += length;
        Ok(Self {
            number: key >> 3,
            whole: &document[start..*at],
            content,
            at: *at - length,
        })
    }

    pub(super) fn message<M: Message + Default>(&self) -> Result<M, ReadError> {
        if self.content.len() > LARGEST_MESSAGE {
            let what = "a sample or location of more than 1 MiB";
            return Err(ReadError::at(what, self.at as u64));
        }
        M::decode(self.content).map_err(|_| damaged(self.at))
    }
}

pub(super) fn fields(document: &[u8]) -> impl Iterator<Item = Result<Field<'_>, ReadError>> {
    let mut at = 0;
    iter::from_fn(move || (at < document.len()).then(|| Field::next(document, &mut at)))
}

fn varint(document: &[u8], at: &mut usize) -> Result<usize, ReadError> {
    let mut rest = &document[*at..];
    // Lengths are written as all numbers are.
    let value = decode_length_delimiter(&mut rest).map_err(|_| damaged(*at))?;
    *at = document.len() - rest.len();
    Ok(value)
}

pub(super) fn damaged(at: usize) -> ReadError {
    ReadError::at("not a pprof profile, or damaged here", at as u64)
}
