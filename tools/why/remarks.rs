//! Words below a line: the lock, who is to blame, and whom that one waited for.

use std::sync::Arc;

use profile::text::{WIDTH, sentence};

use crate::why::account::Account;
use crate::why::chains::Chain;
use crate::why::endpoints;
use crate::why::line::{Blame, Culprit, Line, RUN_QUEUE};
use crate::why::sentences::{function, who};

/// Culprits of a line that people are shown, and the share from which.
const TOP_CULPRITS: usize = 3;
const LEAST_BLAME: f64 = 0.05;
/// Columns of words on waiters.
const WORDS: usize = WIDTH - 24;

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
        remarks.extend(waiters(line));
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
    let locked = line.locked.iter();
    remarks.extend(locked.map(|locked| format!("  {}", locked.sentence())));
    remarks
}

/// Functions that wait for a lock, if they are several: `in audit 50%, post 50%`.
fn waiters(line: &Line) -> Vec<String> {
    if line.places.len() < 2 {
        return Vec::new();
    }
    let share = |ns: u64| ns as f64 / line.time_ns().max(1) as f64;
    let large = line
        .places
        .iter()
        .filter(|(_, ns)| share(*ns) >= LEAST_BLAME);
    let part =
        |(place, ns): &(Arc<str>, u64)| format!("{} {:.0}%", function(place), 100.0 * share(*ns));
    let parts: Vec<String> = large.take(TOP_CULPRITS).map(part).collect();
    let lines = sentence(&parts, ",", WORDS).into_iter().enumerate();
    let begin = |at| if at == 0 { "  in" } else { "    " };
    lines
        .map(|(at, line)| format!("{} {line}", begin(at)))
        .collect()
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
        (culprit, RUN_QUEUE) if culprit.is_nameless() => {
            format!("  {share} behind others, which are not remembered")
        }
        (_, RUN_QUEUE) => format!("  {share} behind {who}"),
        (Culprit::Nobody, _) => format!("  {share} not over"),
        (Culprit::Program(_, Some(place)) | Culprit::Crowd(_, _, Some(place)), _) => {
            format!("  {share} ended by {who} in {}", function(place))
        }
        (Culprit::Disk(..) | Culprit::HeldBack, _) => format!("  {share} {who}"),
        _ => format!("  {share} ended by {who}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::lockstat::example_row;
    use crate::why::lock::Lock;
    use crate::why::tests::{MS, account, line, said, table};

    /// The time of a lock is one line's, however many functions wait for it.
    #[test]
    fn functions_that_wait_for_a_lock_are_told_together() {
        let told = |parts: &[(&str, u64)]| {
            let mut line = line("futex", parts.iter().map(|(_, ms)| ms).sum(), &[]);
            line.place = Some(parts[0].0.into());
            let places = parts.iter().map(|(place, ms)| ((*place).into(), ms * MS));
            (line.places, line.lock) = (places.collect(), Some(Lock::of(&example_row(100))));
            let account = account(vec![line]);
            (said(&account), table(&account))
        };
        let (said, table) = told(&[("audit", 500)]);
        assert!(said.contains(" in audit who "), "{said}");
        assert!(!table.contains("100%\n"), "{table}");
        let (said, table) = told(&[("audit", 300), ("post", 200)]);
        assert!(said.contains(" in audit and post who "), "{said}");
        assert!(table.contains("futex      audit +1"), "{table}");
        assert!(table.contains("  in audit 60%, post 40%"), "{table}");
        let (said, table) = told(&[("audit", 350), ("post", 140), ("close", 10)]);
        assert!(
            said.contains(" in audit and 2 other functions who "),
            "{said}"
        );
        // Those that are next to nothing are none of the table's.
        assert!(table.contains("  in audit 70%, post 28%\n"), "{table}");
    }

    #[test]
    fn who_held_a_lock_is_told_once() {
        let mut lines = Vec::from([300, 200, 100].map(|ms| line("gil", ms, &[])));
        for line in &mut lines {
            line.lock = Some(Lock::of(&example_row(100)));
        }
        // Another one of the same name.
        let mut other = example_row(100);
        other.identity.address += 64;
        lines[2].lock = Some(Lock::of(&other));
        let text = table(&account(lines));
        let said = text.lines().filter(|line| line.contains("  for "));
        let again: Vec<bool> = said.map(|line| line.ends_with(", as above")).collect();
        assert_eq!(again, [false, true, false], "{text}");
    }
}
