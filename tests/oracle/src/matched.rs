//! The same of two logs.

use std::fmt::Debug;

use anyhow::{Result, ensure};

use crate::Logs;
use crate::event::Event;

/// What both logs have: each found in the log before the tool, and in the one after it.
///
/// # Errors
///
/// When they have not the same, by number and `key`: the logs, not the tool, are to blame.
pub(crate) fn matched<T: Debug, K: PartialEq>(
    logs: &Logs,
    replay: impl Fn(&[Event]) -> Vec<T>,
    key: impl Fn(&T) -> K,
) -> Result<Vec<(T, T)>> {
    let (before, after) = (replay(&logs.before), replay(&logs.after));
    let counts = (before.len(), after.len());
    ensure!(counts.0 == counts.1, "the logs have {counts:?} of them");
    let both = before.into_iter().zip(after).map(|(early, late)| {
        ensure!(
            key(&early) == key(&late),
            "the logs have {early:?} and {late:?} for the same"
        );
        Ok((early, late))
    });
    both.collect()
}
