//! The order of an account's lines: what it cost, and that before it which is known to have cost anything.

use std::cmp::Reverse;

use profile::rank::Rank;

use crate::why::line::{FOR_CHILD, IDLE, Line};

/// Share of the largest line that is enough for one to come before those that may be idleness.
const ENOUGH: f64 = 0.1;

/// The most time first, and idleness last; before that come waits that may be for work, unless next to nothing else is there.
pub(crate) fn rank(lines: &mut [Line]) {
    // The sentences pass over waits for children.
    let is_told = |line: &&Line| line.is_busy() && line.kind != FOR_CHILD;
    let busy = lines.iter().filter(is_told);
    let most_ns = busy.clone().map(Line::time_ns).max().unwrap_or(0);
    let is_enough = |line: &Line| line.time_ns() as f64 >= ENOUGH * most_ns as f64;
    let is_known = busy.filter(|line| !line.is_unclear).any(is_enough);
    lines.rank_by_key(|line| {
        let order = (
            line.kind == IDLE,
            is_known && line.is_unclear,
            Reverse(line.ns),
        );
        let lock = line.lock.as_ref().map(|lock| lock.name.clone());
        (order, line.kind, line.place.clone(), lock)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::tests::{account, line, said};

    #[test]
    fn waits_that_may_be_for_work_are_no_answer_unless_nothing_else_is_there() {
        let unclear = |ms| Line {
            is_unclear: true,
            ..line("futex", ms, &[])
        };
        let ranked = |ms| {
            let mut lines = vec![unclear(800), line("pipe", ms, &[])];
            rank(&mut lines);
            account(lines)
        };
        let text = said(&ranked(80));
        assert!(text.contains("40% perhaps waiting for work"), "{text}");
        assert!(
            text.contains("most of the rest, 100% (80.0 ms), was spent waiting on pipes"),
            "{text}"
        );
        let text = said(&ranked(79));
        assert!(
            text.contains("91% (800 ms), was spent waiting for locks or condition variables in get (perhaps for work)"),
            "{text}"
        );
        assert!(!text.contains("perhaps waiting for work"), "{text}");
    }
}
