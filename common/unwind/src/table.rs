//! The unwind table of one file, and how an address is looked up in it.

use crate::rule::Rule;

/// log2 of the bytes in a page of the index.
pub const PAGE_BITS: u32 = 10;
/// The part of an address that is the offset in its page.
pub(crate) const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;

/// Where the rows of 1 KiB of text are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Index of its first row.
    pub first: u32,
    /// Number of its rows, at most 1023: none is at the page's first byte.
    pub count: u16,
    /// Index of the rule in force at the page's first byte.
    pub entry_rule: u16,
}

const _: () = assert!(size_of::<Page>() == 8);

/// The unwind table of one file. Addresses are those of its program headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Address of the first page, a multiple of 1024.
    pub text_start: u64,
    /// One for each 1 KiB of text.
    pub pages: Vec<Page>,
    /// Offset in the page << 16 | index of the rule from there on; ascending within a page.
    pub rows: Vec<u32>,
    /// The first is [`Rule::UNCOVERED`] (or there is none, in a table without pages).
    pub rules: Vec<Rule>,
}

impl Table {
    /// The rule at an address.
    pub fn lookup(&self, address: u64) -> Rule {
        self.find(address).unwrap_or(Rule::UNCOVERED)
    }

    fn find(&self, address: u64) -> Option<Rule> {
        let offset = address.checked_sub(self.text_start)?;
        let page = self.pages.get(usize::try_from(offset >> PAGE_BITS).ok()?)?;
        let first = usize::try_from(page.first).ok()?;
        let rows = self.rows.get(first..first + usize::from(page.count))?;
        let after = rows.partition_point(|&row| u64::from(row >> 16) <= offset & PAGE_MASK);
        let rule = match after.checked_sub(1) {
            Some(last) => rows[last] & 0xffff,
            None => page.entry_rule.into(),
        };
        self.rules.get(usize::try_from(rule).ok()?).copied()
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        size_of_val(&*self.pages) + size_of_val(&*self.rows) + size_of_val(&*self.rules)
    }
}
