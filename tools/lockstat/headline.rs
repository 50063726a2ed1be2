//! The lock that a report begins with.

use crate::lockstat::row::{For, LockRow, SURE};

/// Class of futexes that nothing is known of.
pub(crate) const UNKNOWN: &str = "unknown";

/// Share of the most waiting that is enough for a row that nothing is guessed of to be spoken of instead.
const ENOUGH: f64 = 0.1;

/// The lock to speak of: the one with most waiting that is contention. One that is known comes before a guess, unless that is by far
/// the longer wait.
pub(crate) fn worst(rows: &[LockRow]) -> Option<&LockRow> {
    let mut waits = rows.iter().filter(|row| is_contention(row)).peekable();
    let most = *waits.peek().or(rows.first().as_ref())?;
    let is_sure = |row: &&LockRow| row.what == For::Others && row.confidence >= SURE;
    let is_enough = |row: &&LockRow| row.total_ns as f64 >= ENOUGH * most.total_ns as f64;
    Some(waits.filter(is_enough).find(is_sure).unwrap_or(most))
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

/// Looks whether all waits together are nobody's trouble: no more than a hundredth of one thread's time.
pub(crate) fn is_little(all_ns: u64, window_ns: u64) -> bool {
    all_ns <= window_ns / 100
}
