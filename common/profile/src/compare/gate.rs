//! Whether a profile grew beyond limits, for machines to decide by.
//!
//! A function fails when its share grew by more than the limit and chance does not do that: once in a hundred gates of equal
//! profiles, all their functions together. Functions that could not exceed the limit whatever chance did are no tests
//! (R. E. Tarone, Biometrics 46, 1990), and functions that are in the same stacks are one. Calls of a function are tests of
//! their own: what grew in one place is seen better there than in the sum over all.

use std::collections::BTreeSet;

use super::diff::{Diff, own};
use super::{Judged, Verdict, judge};
use crate::draw::tree::{Class, Side, Tree};

/// What may grow, and by how much.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of any function's share, 0 to 1.
    pub growth: f64,
    /// Of the whole: 0.1 is ten percent.
    pub total: Option<f64>,
    /// Function's own share instead of its total's.
    pub own: bool,
}

/// A function that grew, wherever it is called from or in one place only.
#[derive(Clone, Debug)]
pub struct Guilty {
    /// The function, not escaped.
    pub name: String,
    /// What of it.
    pub place: Place,
    /// How much.
    pub judged: Judged,
}

/// What of a function grew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// All of it, with what it calls.
    Everywhere,
    /// The function alone.
    Itself,
    /// Where this one calls it.
    CalledBy(String),
}

/// What exceeded them.
#[derive(Clone, Debug, Default)]
pub struct Exceeded {
    /// Functions and calls, largest growth first.
    pub guilty: Vec<Guilty>,
    /// Growth of the whole.
    pub total: Option<f64>,
    /// Functions over the limit that chance explains.
    pub unclear: usize,
}

impl Exceeded {
    /// Whether the gate is shut.
    pub fn is_any(&self) -> bool {
        !self.guilty.is_empty() || self.total.is_some()
    }
}

/// Of all gates over equal profiles, as many fail.
const FALSE_ALARMS: f64 = 0.01;

/// Holds a comparison to limits.
pub fn gate(tree: &Tree, diff: &Diff, limits: &Limits) -> Exceeded {
    let candidates = candidates(tree, diff, limits);
    let least = least_z(&candidates, limits.growth);
    let mut exceeded = Exceeded::default();
    for candidate in candidates {
        let judged = candidate.judged;
        if growth(&judged) <= limits.growth {
            continue;
        }
        // Without counts the limit alone decides.
        if judged.verdict == Verdict::Unjudged || judged.z > least {
            exceeded.guilty.push(candidate);
        } else {
            exceeded.unclear += 1;
        }
    }
    exceeded
        .guilty
        .sort_by(|a, b| growth(&b.judged).total_cmp(&growth(&a.judged)));
    let [base, new] = diff.whole.map(|side| side.total as f64);
    let grown = new / base.max(1.0) - 1.0;
    exceeded.total = limits.total.filter(|limit| grown > *limit).map(|_| grown);
    exceeded
}

fn growth(judged: &Judged) -> f64 {
    judged.shares[1] - judged.shares[0]
}

/// Functions, then calls of functions, each only once if they are the same samples, and only if both profiles together
/// have enough to exceed the limit.
fn candidates(tree: &Tree, diff: &Diff, limits: &Limits) -> Vec<Guilty> {
    let new = diff.whole[1].total.max(1) as f64;
    let mut seen: BTreeSet<[u64; 2]> = BTreeSet::new();
    let mut is_new = |sides: &[Side; 2]| {
        let totals = sides.map(|side| side.total);
        (totals[0] as f64 + totals[1] as f64) / new > limits.growth && seen.insert(totals)
    };
    let mut candidates = Vec::new();
    for mover in &diff.functions {
        let total = (&mover.total, mover.judged, Place::Everywhere);
        let own = (&mover.own, mover.own_judged, Place::Itself);
        for (sides, judged, place) in [total, own].into_iter().skip(usize::from(limits.own)) {
            if is_new(sides) {
                candidates.push(Guilty {
                    name: mover.name.clone(),
                    place,
                    judged,
                });
            }
        }
    }
    for (id, node) in tree.nodes.iter().enumerate().skip(1) {
        let sides = if limits.own {
            own(tree, id)
        } else {
            node.sides
        };
        if node.class == Class::Function && is_new(&sides) {
            candidates.push(Guilty {
                name: tree.text(node).to_owned(),
                place: Place::CalledBy(tree.text(&tree.nodes[node.parent as usize]).to_owned()),
                judged: judge(&sides, &diff.whole),
            });
        }
    }
    candidates
}

/// The smallest z at which all tests together give so few false alarms. A test has fewer of them where the limit alone is
/// more than chance reaches.
fn least_z(candidates: &[Guilty], limit: f64) -> f64 {
    let alarms = |z: f64| {
        let each = candidates
            .iter()
            .filter(|candidate| candidate.judged.error > 0.0);
        each.map(|candidate| beyond(z.max(limit / candidate.judged.error)))
            .sum::<f64>()
    };
    let (mut low, mut high) = (2.0, 10.0);
    while high - low > 1e-3 {
        let middle = f64::midpoint(low, high);
        if alarms(middle) > FALSE_ALARMS {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

/// Probability that a standard normal number is larger (Abramowitz and Stegun 26.2.17; error below 7.5e-8).
fn beyond(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - beyond(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let sum = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let polynomial = sum
        .iter()
        .rev()
        .fold(0.0, |value, factor| (value + factor) * t);
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    density * polynomial
}

#[cfg(test)]
mod tests {
    use super::beyond;

    #[test]
    fn tails_are_those_of_the_table() {
        for (z, tail) in [
            (0.0, 0.5),
            (1.644_854, 0.05),
            (2.326_348, 0.01),
            (3.090_232, 0.001),
            (-1.0, 0.841_345),
        ] {
            assert!((beyond(z) - tail).abs() < 1e-6, "{z}: {}", beyond(z));
        }
    }
}
