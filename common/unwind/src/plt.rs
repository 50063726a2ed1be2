//! Procedure linkage tables that nobody describes. LLVM's linker, which links every Rust program, writes the same
//! code as GNU linkers but no call frame information for it; GNU linkers write none for the stubs through which static programs
//! call what is chosen when they start (`memcpy`), nor any on aarch64. The rules are only given to code that was recognized.

use elf::Error;

use crate::counts::Counts;
use crate::entries::{Context, Entry, Section};
use crate::rows::Rows;
use crate::rule::Rule;
use crate::text::Text;

/// A `.plt` section, or other code whose rules are known by its offsets.
#[derive(Default)]
pub(crate) struct Plt {
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// By offset.
    pub(crate) rules: Vec<(u64, Rule)>,
}

impl Section for Plt {
    fn collect(
        &mut self,
        section: usize,
        text: &Text,
        entries: &mut Vec<Entry>,
        _: &mut Counts,
    ) -> Result<(), Error> {
        let range = text.clip(self.address, self.length);
        if let Some(range) =
            range.filter(|range| !self.rules.is_empty() && range.end - range.start == self.length)
        {
            entries.push(Entry::new(range, section, 0));
        }
        Ok(())
    }

    fn rows(
        &mut self,
        entry: &Entry,
        _: &mut Context,
        rows: &mut Rows,
        _: &mut Counts,
    ) -> Result<(), Error> {
        for (offset, rule) in &self.rules {
            rows.push(entry.start + offset, *rule)?;
        }
        Ok(())
    }
}
