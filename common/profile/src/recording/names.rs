//! Texts by number, each kept once in one long string.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use foldhash::fast::RandomState;

/// A text's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(u32);

impl NameId {
    /// The empty text: nothing is known.
    pub const NONE: Self = Self(0);
    /// `-`, between user and kernel frames.
    pub const DASH: Self = Self(1);
    /// `--`, between a thread's frames and its waker's.
    pub const DASHES: Self = Self(2);
    /// `[idle]`.
    pub const IDLE: Self = Self(3);
    /// `[irq]`, in place of a waker's name.
    pub const IRQ: Self = Self(4);

    /// Whether there is a text.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// For tables with an entry per name.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All texts of a recording.
#[derive(Clone, Debug)]
pub struct Names {
    bytes: String,
    /// Where each text ends; it begins where the one before it ends.
    ends: Vec<usize>,
    /// Open addressing: number + 1 of a text, 0 where there is none. Its length is a power of two.
    slots: Vec<u32>,
    hasher: RandomState,
}

impl Default for Names {
    fn default() -> Self {
        let mut names = Self {
            bytes: String::new(),
            ends: Vec::new(),
            slots: vec![0; 64],
            hasher: RandomState::default(),
        };
        for text in ["", "-", "--", "[idle]", "[irq]"] {
            names.id(text);
        }
        names
    }
}

impl Names {
    /// The number of a text, new or known.
    pub fn id(&mut self, text: &str) -> NameId {
        if (self.ends.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let slot = self.slot(text);
        if let Some(number) = self.slots[slot].checked_sub(1) {
            return NameId(number);
        }
        let number = u32::try_from(self.ends.len()).expect("memory ends before 2^32 names");
        self.bytes.push_str(text);
        self.ends.push(self.bytes.len());
        self.slots[slot] = number + 1;
        NameId(number)
    }

    /// The number of a text that is there already.
    pub fn find(&self, text: &str) -> Option<NameId> {
        self.slots[self.slot(text)].checked_sub(1).map(NameId)
    }

    /// The text of a number.
    pub fn text(&self, id: NameId) -> &str {
        &self.bytes[self.place(id)]
    }

    /// [`Self::text`] for comparisons, which need not know that it is whole characters.
    pub(crate) fn bytes(&self, id: NameId) -> &[u8] {
        &self.bytes.as_bytes()[self.place(id)]
    }

    fn place(&self, id: NameId) -> Range<usize> {
        let before = id.index().checked_sub(1);
        before.map_or(0, |before| self.ends[before])..self.ends[id.index()]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: the empty text is always there.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Where a text is, or would be.
    fn slot(&self, text: &str) -> usize {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        let mask = self.slots.len() - 1;
        let mut slot = hasher.finish() as usize & mask;
        while let Some(number) = self.slots[slot].checked_sub(1) {
            if self.bytes(NameId(number)) == text.as_bytes() {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        for number in 0..self.ends.len() as u32 {
            let slot = self.slot(self.text(NameId(number)));
            self.slots[slot] = number + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_one_number_and_comes_back() {
        let mut names = Names::default();
        let ids: Vec<NameId> = (0..5000).map(|n| names.id(&format!("name {n}"))).collect();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(names.text(*id), format!("name {n}"));
            assert_eq!(names.id(&format!("name {n}")), *id);
        }
        assert_eq!(names.len(), 5005);
        assert_eq!((names.id(""), names.find("none")), (NameId::NONE, None));
    }
}
