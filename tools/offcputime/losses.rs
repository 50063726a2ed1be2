//! Time of targets that was seen and has no row.

use anyhow::Result;
use bpf::offcputime::OffcputimeSkel;
use loader::counters::Words;
use loader::section;
use profile::losses::Losses;

/// The only counter that is no time of targets.
pub(crate) const NEGATIVE: Words = ("losses.negative", "durations: clock went backwards");

/// Those of details, which offcputime itself has no use for.
pub(crate) const OF_DETAILS: [Words; 4] = [
    (
        "losses.processes_full",
        "threads that ended: table of processes full",
    ),
    ("losses.lengths_full", "lengths of waits: table full"),
    (
        "endpoints_full",
        "waits for files and connections: table full",
    ),
    ("cycles_full", "waits and calls for work cycles: ring full"),
];

/// Counters behind [`Lost`].
pub(crate) const IN_ACCOUNTING: [&str; 5] = [
    "losses.rows_full",
    "losses.rows_full_ns",
    "losses.unreported",
    "losses.unreported_ns",
    "losses.out_of_order",
];

/// Counters since the start; out of windows, estimates like the rest of the accounting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// The kernel's table was full.
    pub rows_full: u64,
    /// Its time, ns.
    pub rows_full_ns: u64,
    /// The stack was not walked.
    pub unreported: u64,
    /// Its time, ns.
    pub unreported_ns: u64,
    /// Switches that were not seen.
    pub out_of_order: u64,
}

impl Lost {
    pub(crate) fn read(skel: &OffcputimeSkel<'_>) -> Result<Self> {
        let losses = &section(skel.maps.bss_data.as_deref(), ".bss")?.losses;
        Ok(Self {
            rows_full: losses.rows_full,
            rows_full_ns: losses.rows_full_ns,
            unreported: losses.unreported,
            unreported_ns: losses.unreported_ns,
            out_of_order: losses.out_of_order,
        })
    }

    /// `unseen_ns`: time between switches of which one was not seen.
    pub(crate) fn count(self, losses: &mut Losses, unseen_ns: u64) {
        losses.time(
            "rows_full",
            "waits: table full",
            self.rows_full,
            self.rows_full_ns,
        );
        losses.time(
            "unreported",
            "waits: stack not walked",
            self.unreported,
            self.unreported_ns,
        );
        losses.time(
            "out_of_order",
            "switches not seen",
            self.out_of_order,
            unseen_ns,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_time_is_a_share_of_the_accounting_that_it_is_in() {
        let lost = Lost {
            rows_full: 5,
            rows_full_ns: 200,
            unreported: 2,
            unreported_ns: 50,
            out_of_order: 3,
        };
        let mut losses = Losses::default();
        lost.count(&mut losses, 30);
        assert_eq!(
            losses.describe(1_000),
            "LOST 5 waits: table full (20.00% of the time), 2 waits: stack not walked (5.00% of the time), \
             3 switches not seen (3.00% of the time)"
        );
    }
}
