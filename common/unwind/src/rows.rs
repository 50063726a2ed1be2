//! Rows in the order of their addresses: equal neighbours merged, sorted into pages.

use crate::rule::Rule;
use crate::rule_set::RuleSet;
use crate::table::{PAGE_BITS, PAGE_MASK, Page, Table};
use elf::Error;

/// The most rows of one file: 64 MB. librustc_driver has 1 M.
const MAX_ROWS: usize = 16 << 20;
/// The most pages of one file: 1 GiB of text.
const MAX_PAGES: u64 = 1 << (30 - PAGE_BITS);

/// A table in the making.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    text_start: u64,
    pages: Vec<Page>,
    rows: Vec<u32>,
    rules: RuleSet,
    /// The newest row. It waits because the next one may be at the same address.
    newest: Option<(u64, u16)>,
    /// The rule of the row before.
    current: u16,
}

impl Rows {
    /// From `address` on `rule` is in force. Addresses never descend; of two rows at one address the second counts.
    pub(crate) fn push(&mut self, address: u64, rule: Rule) -> Result<(), Error> {
        let rule = self.rules.intern(rule);
        match self.newest {
            Some((_, newest)) if newest == rule => return Ok(()),
            Some((newest, _)) if newest >= address => {}
            _ => self.settle()?,
        }
        self.newest = Some((address, rule));
        Ok(())
    }

    /// The newest row will not be replaced any more.
    fn settle(&mut self) -> Result<(), Error> {
        let Some((address, rule)) = self.newest.take() else {
            return Ok(());
        };
        if rule == self.current {
            return Ok(());
        }
        if self.pages.is_empty() {
            self.text_start = address & !PAGE_MASK;
        }
        let offset = address.saturating_sub(self.text_start);
        if offset >> PAGE_BITS >= MAX_PAGES {
            return Err(Error::TooLarge("text"));
        }
        if self.rows.len() >= MAX_ROWS {
            return Err(Error::TooLarge("call frame information"));
        }
        while (self.pages.len() as u64) <= offset >> PAGE_BITS {
            self.pages.push(Page {
                first: u32::try_from(self.rows.len()).expect("at most MAX_ROWS rows"),
                count: 0,
                entry_rule: self.current,
            });
        }
        let page = self.pages.last_mut().expect("a page was just added");
        let low = u32::try_from(offset & PAGE_MASK).expect("ten bits");
        if low == 0 {
            page.entry_rule = rule;
        } else {
            self.rows.push(low << 16 | u32::from(rule));
            page.count += 1;
        }
        self.current = rule;
        Ok(())
    }

    /// The finished table.
    pub(crate) fn finish(mut self) -> Result<Table, Error> {
        self.settle()?;
        self.pages.shrink_to_fit();
        self.rows.shrink_to_fit();
        Ok(Table {
            text_start: self.text_start,
            pages: self.pages,
            rows: self.rows,
            rules: self.rules.into_rules(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Cfa;

    fn sp(cfa_offset: i32) -> Rule {
        Rule {
            cfa: Cfa::Sp,
            cfa_offset,
            ..Rule::default()
        }
    }

    fn table(rows: &[(u64, Rule)]) -> Table {
        let mut all = Rows::default();
        for &(address, rule) in rows {
            all.push(address, rule).unwrap();
        }
        all.finish().unwrap()
    }

    #[test]
    fn pages_remember_the_rule_that_reaches_into_them() {
        let table = table(&[
            (0x1001, sp(8)),
            (0x1400, sp(16)),
            (0x2000, sp(24)),
            (0x2001, sp(8)),
            (0x2002, Rule::UNCOVERED),
        ]);
        assert_eq!(table.text_start, 0x1000);
        assert_eq!(table.pages.len(), 5);
        assert_eq!(
            table.rows.len(),
            3,
            "rows at a page's first byte are the page's entry rule"
        );
        for (address, rule) in [
            (0, Rule::UNCOVERED),
            (0x1000, Rule::UNCOVERED),
            (0x1001, sp(8)),
            (0x13ff, sp(8)),
            (0x1400, sp(16)),
            (0x1c00, sp(16)),
            (0x1fff, sp(16)),
            (0x2000, sp(24)),
            (0x2001, sp(8)),
            (0x2002, Rule::UNCOVERED),
            (u64::MAX, Rule::UNCOVERED),
        ] {
            assert_eq!(table.lookup(address), rule, "{address:#x}");
        }
    }

    #[test]
    fn equal_neighbours_are_one_row_and_the_last_of_one_address_counts() {
        let table = table(&[
            (0x1001, sp(8)),
            (0x1002, sp(8)),
            (0x1003, sp(16)),
            (0x1003, sp(8)),
            (0x1004, sp(16)),
            (0x1005, Rule::UNCOVERED),
        ]);
        let lows: Vec<_> = table.rows.iter().map(|row| row >> 16).collect();
        assert_eq!(lows, [1, 4, 5]);
    }

    #[test]
    fn nothing_is_an_empty_table() {
        let table = table(&[]);
        assert_eq!(table.lookup(0), Rule::UNCOVERED);
        assert!(table.pages.is_empty());
    }

    #[test]
    fn a_gibibyte_of_text_is_the_most() {
        let mut rows = Rows::default();
        rows.push(0x1000, sp(8)).unwrap();
        rows.push(0x1000 + (1 << 30), sp(16)).unwrap();
        assert!(matches!(rows.finish(), Err(Error::TooLarge(_))));
    }
}
