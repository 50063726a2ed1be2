//! Unwind tables in words: those that there are, and those that found no room.

use profile::losses::Losses;

use super::Unwinder;

impl Unwinder {
    /// Counts what did not fit.
    pub fn count_losses(&self, losses: &mut Losses) {
        losses.count(
            "unwind_tables_full",
            "unwind tables: no room",
            self.tables.losses.no_room + self.processes.no_room,
        );
        losses.count(
            "unwind_rules_full",
            "unwind rules: no room",
            self.rules.refused(),
        );
    }

    /// Words for `-v`.
    pub fn describe(&self) -> String {
        format!(
            "{} unwind tables of {} rows for {} processes in {} MiB; {} files broken, {} still to be read",
            self.tables.made,
            self.tables.rows,
            self.processes.len(),
            self.words.bytes() >> 20,
            self.tables.losses.broken,
            self.maker.open(),
        )
    }
}
