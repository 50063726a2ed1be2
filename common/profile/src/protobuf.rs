//! As much of the protocol buffers' wire format as pprof needs: varints and length-delimited fields.

/// Bytes of a message under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number; 0 is the default and takes no room.
    pub(crate) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    /// Text or an inner message.
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Numbers in one field.
    pub(crate) fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut inner = Self::default();
        for value in values {
            inner.varint(value);
        }
        self.bytes(field, &inner.0);
    }
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    /// A varint or a fixed number.
    Number(u64),
    /// Everything else, and where it begins.
    Bytes(&'a [u8], usize),
}

/// Damage, at a byte of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub(crate) usize);

/// Walks the fields of a message that begins at `base` of the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, at: 0, base }
    }

    fn damaged(&self) -> Damaged {
        Damaged(self.base + self.at)
    }

    fn varint(&mut self) -> Result<u64, Damaged> {
        let mut value = 0_u64;
        for shift in 0..10_u32 {
            let byte = *self.bytes.get(self.at).ok_or_else(|| self.damaged())?;
            // The tenth byte has room for one bit.
            if shift == 9 && byte > 1 {
                return Err(self.damaged());
            }
            self.at += 1;
            value |= u64::from(byte & 0x7f) << (7 * shift);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged())
    }

    fn take(&mut self, length: u64) -> Result<(&'a [u8], usize), Damaged> {
        let left = self.bytes.len() - self.at;
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= left);
        let length = length.ok_or_else(|| self.damaged())?;
        let start = self.at;
        self.at += length;
        Ok((&self.bytes[start..self.at], self.base + start))
    }

    fn field(&mut self) -> Result<(u64, Field<'a>), Damaged> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => {
                let (bytes, _) = self.take(8)?;
                Field::Number(
                    bytes
                        .iter()
                        .rev()
                        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
                )
            }
            2 => {
                let length = self.varint()?;
                let (bytes, base) = self.take(length)?;
                Field::Bytes(bytes, base)
            }
            5 => {
                let (bytes, _) = self.take(4)?;
                Field::Number(
                    bytes
                        .iter()
                        .rev()
                        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
                )
            }
            _ => return Err(self.damaged()),
        };
        Ok((tag >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // Nothing behind the damage can be trusted.
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

/// The numbers of a repeated field, packed or not, until there is one more than `most`: packed ones take eight times the
/// memory that they take in the document.
pub(crate) fn numbers(field: Field<'_>, into: &mut Vec<u64>, most: usize) -> Result<(), Damaged> {
    if into.len() > most {
        return Ok(());
    }
    match field {
        Field::Number(value) => into.push(value),
        Field::Bytes(bytes, base) => {
            let mut fields = Fields::new(bytes, base);
            while fields.at < bytes.len() && into.len() <= most {
                into.push(fields.varint()?);
            }
        }
    }
    Ok(())
}
