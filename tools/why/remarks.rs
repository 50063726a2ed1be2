//! Words below a line: the lock, who is to blame, and whom that one waited for.

use crate::why::account::Account;
use crate::why::chains::Chain;
use crate::why::line::{Blame, Culprit, Line, RUN_QUEUE};
use crate::why::sentences::{function, who};

/// Culprits of a line that people are shown, and the share from which.
const TOP_CULPRITS: usize = 3;
const LEAST_BLAME: f64 = 0.05;

/// Words on who is to blame for a line.
pub(super) fn remarks(account: &Account, line: &Line) -> Vec<String> {
    let told = match line.kind {
        RUN_QUEUE => line.told(),
        _ => line.blames.clone(),
    };
    let blames = told.iter().filter(|_| line.is_busy());
    let shares = blames.map(|blame| (blame, line.share(blame)));
    let large = shares.filter(|(_, share)| *share >= LEAST_BLAME);
    let large = large.take(TOP_CULPRITS);
    let blamed = large.map(|(blame, share)| remark(account, line, blame, share));
    let lock = line.lock.iter();
    let name = lock.clone().map(|lock| format!("  for {}", lock.short()));
    let is_exact = account.looked.is_none();
    let holders = lock.flat_map(|lock| lock.remarks(line.time_ns(), is_exact));
    let chain = line.chain.iter().filter(|_| line.is_busy());
    let users = line.users.iter().filter_map(|users| users.remark(line));
    let remarks = name.chain(blamed).chain(holders);
    remarks
        .chain(chain.flat_map(Chain::remarks))
        .chain(users)
        .collect()
}

fn remark(account: &Account, line: &Line, blame: &Blame, share: f64) -> String {
    let share = format!("{:.0}%", 100.0 * share);
    let who = who(&blame.culprit, account);
    match (&blame.culprit, line.kind) {
        (Culprit::Function(..), _) => format!("  {share} {who}"),
        (_, RUN_QUEUE) => format!("  {share} behind {who}"),
        (Culprit::Nobody, _) => format!("  {share} not over"),
        (Culprit::Program(_, Some(place)), _) => {
            format!("  {share} ended by {who} in {}", function(place))
        }
        (Culprit::Disk(..), _) => format!("  {share} {who}"),
        _ => format!("  {share} ended by {who}"),
    }
}
