//! The one form of saying by how much a figure is off.

use std::fmt::{Debug, Display};
use std::ops::RangeBounds;

use oracle::Bracket;

/// The figure lies within its bounds; `context` is what to look at if it does not. What was measured is printed in either case.
#[track_caller]
pub(crate) fn assert_within<N: PartialOrd + Debug>(
    what: impl Display,
    found: N,
    bounds: impl RangeBounds<N> + Debug,
    context: impl Display,
) {
    eprintln!("{what}: {found:?}, {bounds:?}");
    assert!(
        bounds.contains(&found),
        "{what}: {found:?} is not within {bounds:?}: {context:#}"
    );
}

/// Asserts as many events as between the two logs, in a sum (ns) inside their bracket.
#[track_caller]
pub(crate) fn assert_bracketed(
    what: impl Display,
    (count, sum_ns): (u64, u64),
    truth: &Bracket,
    context: impl Display,
) {
    eprintln!("{what}: {count} times, {sum_ns} ns; {truth:?}");
    assert!(
        truth.holds(count, sum_ns),
        "{what}: {count} times, {sum_ns} ns; {truth:?}: {context:#}"
    );
}

/// `found`, and what was not seen, are `expected`.
#[track_caller]
pub(crate) fn assert_all(
    what: impl Display,
    found: u64,
    unseen: u64,
    expected: u64,
    context: impl Display,
) {
    let least = expected.saturating_sub(unseen);
    assert_within(what, found, least..=expected, context);
}
