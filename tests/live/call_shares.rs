//! Two accounts of where the same seconds went, function by function.

use std::collections::{BTreeMap, BTreeSet};

/// Functions compared, the heaviest first.
const COMPARED: usize = 20;
/// Below this share of all stacks a function is not compared.
const SMALL: f64 = 0.02;
/// Standard deviations of the difference of two shares.
const SIGMAS: f64 = 4.0;

/// The functions on each stack, and whether it reaches the thread's root.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) stacks: Vec<Functions>,
}

/// One stack's.
pub(crate) struct Functions {
    pub(crate) names: BTreeSet<String>,
    pub(crate) rooted: bool,
    pub(crate) weight: u64,
}

impl Account {
    fn all(&self) -> f64 {
        self.stacks.iter().map(|stack| stack.weight).sum::<u64>() as f64
    }

    /// Share of the stacks that end before the root.
    pub(crate) fn cut(&self) -> f64 {
        let cut = self.stacks.iter().filter(|stack| !stack.rooted);
        cut.map(|stack| stack.weight).sum::<u64>() as f64 / self.all()
    }

    /// The least and the most that a function's inclusive share can be.
    ///
    /// A stack that was cut has its leaf's side only: whether the function is further up, nobody knows. Leaving such
    /// stacks out would be worse than this, for it is the deep ones that are cut.
    fn share(&self, function: &str) -> (f64, f64) {
        let (mut least, mut unknown) = (0, 0);
        for stack in &self.stacks {
            if stack.names.contains(function) {
                least += stack.weight;
            } else if !stack.rooted {
                unknown += stack.weight;
            }
        }
        (
            least as f64 / self.all(),
            (least + unknown) as f64 / self.all(),
        )
    }

    fn shares(&self) -> BTreeMap<&str, f64> {
        let names = self.stacks.iter().flat_map(|stack| &stack.names);
        let names: BTreeSet<&str> = names.map(String::as_str).collect();
        names
            .into_iter()
            .map(|name| (name, self.share(name).0))
            .collect()
    }
}

/// Fails where the inclusive shares of a heavy function differ by more than sampling explains.
///
/// A function is heavy that is so in either account: one that is missing in the other is found.
pub(crate) fn assert_agree(what: &str, ours: &Account, theirs: &Account) {
    let mut heavy = ours.shares();
    for (name, share) in theirs.shares() {
        let known = heavy.entry(name).or_default();
        *known = known.max(share);
    }
    let mut heavy: Vec<(&str, f64)> = heavy
        .into_iter()
        .filter(|(_, share)| *share >= SMALL)
        .collect();
    heavy.sort_by(|a, b| b.1.total_cmp(&a.1));
    heavy.truncate(COMPARED);
    assert!(heavy.len() >= 5, "{what}: too few functions: {heavy:?}");
    let (own, other) = (ours.all(), theirs.all());
    let mut wrong = Vec::new();
    for (name, _) in heavy {
        let ((low, high), (their_low, their_high)) = (ours.share(name), theirs.share(name));
        let pooled = (low * own + their_low * other) / (own + other);
        let sigma = (pooled * (1.0 - pooled) * (1.0 / own + 1.0 / other)).sqrt();
        let apart = (low - their_high).max(their_low - high).max(0.0);
        let line = format!(
            "{what}: {name}: {:.2}% here, {:.2}% there, {:.1} sigmas",
            low * 100.0,
            their_low * 100.0,
            if apart > 0.0 { apart / sigma } else { 0.0 }
        );
        eprintln!("{line}");
        if apart > SIGMAS * sigma {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
