//! Words below a line: the lock, who is to blame, and whom that one waited for.

use crate::why::account::Account;
use crate::why::chains::Chain;
use crate::why::endpoints;
use crate::why::line::{Blame, Culprit, Line, RUN_QUEUE};
use crate::why::sentences::{function, who};

/// Culprits of a line that people are shown, and the share from which.
const TOP_CULPRITS: usize = 3;
const LEAST_BLAME: f64 = 0.05;

/// Words on who is to blame for a line.
pub(super) fn remarks(account: &Account, line: &Line) -> Vec<String> {
    let told = line.told();
    let blames = told.iter().filter(|_| line.is_busy());
    let shares = blames.map(|blame| (blame, line.share(blame)));
    let large = shares.filter(|(_, share)| *share >= LEAST_BLAME);
    let large = large.take(TOP_CULPRITS);
    let blamed = large.map(|(blame, share)| remark(account, line, blame, share));
    let mut remarks = Vec::new();
    let before = before(account, line);
    if let Some(lock) = &line.lock {
        let again = if before.is_some() { ", as above" } else { "" };
        remarks.push(format!("  for {}{again}", lock.short()));
    }
    remarks.extend(line.is_unclear.then(|| "  perhaps for work".to_owned()));
    remarks.extend(blamed);
    if line.is_busy() {
        remarks.extend(endpoints::remarks(line));
    }
    if let Some(lock) = &line.lock {
        if before.is_none() {
            remarks.extend(lock.remarks());
        }
        let exact_ns = account.looked.is_none().then(|| line.time_ns());
        remarks.extend(exact_ns.and_then(|ns| lock.difference(ns)));
    }
    let chain = |line: &Line| line.chain.as_ref().map(Chain::remarks);
    let own = chain(line).filter(|own| before.and_then(chain).as_ref() != Some(own));
    remarks.extend(own.filter(|_| line.is_busy()).into_iter().flatten());
    let users = line.users.iter().filter_map(|users| users.remark(line));
    remarks.extend(users);
    remarks
}

/// The line above that is about the same lock: who held it is told there.
fn before<'a>(account: &'a Account, line: &Line) -> Option<&'a Line> {
    let identity = line.lock.as_ref()?.identity;
    let is_same = |other: &&Line| {
        other
            .lock
            .as_ref()
            .is_some_and(|lock| lock.identity == identity)
    };
    let first = account.lines.iter().find(is_same)?;
    (!std::ptr::eq(first, line)).then_some(first)
}

fn remark(account: &Account, line: &Line, blame: &Blame, share: f64) -> String {
    let share = format!("{:.0}%", 100.0 * share);
    let who = who(&blame.culprit, account);
    match (&blame.culprit, line.kind) {
        (Culprit::Function(..), _) => format!("  {share} {who}"),
        (_, RUN_QUEUE) => format!("  {share} behind {who}"),
        (Culprit::Nobody, _) => format!("  {share} not over"),
        (Culprit::Program(_, Some(place)) | Culprit::Crowd(_, _, Some(place)), _) => {
            format!("  {share} ended by {who} in {}", function(place))
        }
        (Culprit::Disk(..), _) => format!("  {share} {who}"),
        _ => format!("  {share} ended by {who}"),
    }
}
