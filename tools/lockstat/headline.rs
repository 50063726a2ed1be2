//! The lock that a report begins with.

use crate::lockstat::row::{For, LockRow, SURE};

/// Class of futexes that nothing is known of.
pub(crate) const UNKNOWN: &str = "unknown";

/// The lock to speak of: the one with most waiting that is contention.
pub(crate) fn worst(rows: &[LockRow]) -> Option<&LockRow> {
    rows.iter()
        .find(|row| is_contention(row))
        .or_else(|| rows.first())
}

/// Rows of the same sort as the one to speak of: waits for work are no part of the sums of those for locks.
pub(crate) fn like<'a>(
    rows: &'a [LockRow],
    worst: &LockRow,
) -> impl Iterator<Item = &'a LockRow> + Clone {
    let is_lock = is_contention(worst);
    rows.iter().filter(move |row| is_contention(row) == is_lock)
}

/// Looks whether threads wait for each other, and not for work, as far as anyone can tell.
pub(crate) fn is_contention(row: &LockRow) -> bool {
    row.what != For::Work
}

/// Looks whether a class was taken for the likeliest. Nothing is known of an unknown one, and nothing guessed.
pub(crate) fn is_guess(row: &LockRow) -> bool {
    row.confidence < SURE && row.class != UNKNOWN
}
