//! Whether a profile grew beyond limits, for machines to decide by.
//!
//! A function fails when its share grew by more than the limit and chance does not do that: once in a hundred gates of equal
//! profiles, all their functions together. Growths are compared by how far they are beyond the limit, in standard errors:
//! that leaves small functions, for which the limit itself is more than chance reaches, and gives its allowance to the large
//! ones. Calls of a function are tests of their own: what grew in one place is seen better there than in the sum over all.

use std::collections::{HashMap, HashSet};

use super::diff::{Diff, is_entered};
use super::random::Random;
use super::scale::Values;
use super::shuffle::{Part, excess, least_excess};
use super::{Judged, Verdict};
use crate::recording::NameId;
use crate::tree::{Class, Node, Side, Tree};

/// What may grow, and by how much.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Of any function's share, 0 to 1.
    pub growth: f64,
    /// Growth of the whole, as these values measure it: 0.1 is ten percent.
    pub total: Option<(f64, Values)>,
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
    /// Growth of the whole: 0.1 is ten percent.
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

/// A test: samples, and what is said where they are too many.
struct Candidate {
    part: Part,
    guilty: Guilty,
}

/// Holds a comparison to limits.
pub fn gate(tree: &Tree, diff: &Diff, limits: &Limits) -> Exceeded {
    let own = tree.own_sides();
    let candidates = candidates(tree, diff, &own, limits);
    let is_over = |candidate: &Candidate| growth(&candidate.guilty.judged) > limits.growth;
    let mut exceeded = Exceeded::default();
    if candidates.iter().any(is_over) {
        let parts = candidates
            .iter()
            .map(|Candidate { part, guilty }| (part, guilty.judged));
        let parts: Vec<(&Part, Judged)> = parts.collect();
        let least = least_excess(tree, &own, &parts, limits.growth);
        for Candidate { guilty, .. } in candidates.into_iter().filter(is_over) {
            let judged = guilty.judged;
            let excess = excess(growth(&judged), judged.error, limits.growth);
            // Without counts the limit alone decides.
            if judged.verdict == Verdict::Unjudged || excess > least {
                exceeded.guilty.push(guilty);
            } else {
                exceeded.unclear += 1;
            }
        }
    }
    exceeded
        .guilty
        .sort_by(|a, b| growth(&b.judged).total_cmp(&growth(&a.judged)));
    if let Some((limit, values)) = &limits.total {
        let [base, new] = values.levels(&diff.whole);
        let grown = new / base.max(f64::MIN_POSITIVE) - 1.0;
        exceeded.total = (grown > *limit).then_some(grown);
    }
    exceeded
}

fn growth(judged: &Judged) -> f64 {
    judged.change()
}

/// Functions, then calls of functions, each only once if they are the same samples, and only if both profiles together
/// have enough to exceed the limit.
fn candidates(tree: &Tree, diff: &Diff, own: &[[Side; 2]], limits: &Limits) -> Vec<Candidate> {
    let new = diff.whole[1].total.max(1) as f64;
    let signatures = Signatures::new(tree);
    let mut seen = HashSet::new();
    let mut candidates = Vec::new();
    let mut add = |sides: &[Side; 2], part: Part, name: &str, place: Place, judged: Judged| {
        let both: f64 = sides.iter().map(|side| side.total as f64).sum();
        if both / new > limits.growth && seen.insert(signatures.of(&part)) {
            let name = name.to_owned();
            let guilty = Guilty {
                name,
                place,
                judged,
            };
            candidates.push(Candidate { part, guilty });
        }
    };
    let boxes = boxes(tree);
    for mover in &diff.functions {
        let found = tree.names.find(&mover.name).and_then(|id| boxes.get(&id));
        let Some([entered, all]) = found else {
            continue;
        };
        if !limits.own {
            let part = Part::whole(entered.clone());
            add(
                &mover.total,
                part,
                &mover.name,
                Place::Everywhere,
                mover.judged,
            );
        }
        let part = Part::alone(all.clone());
        add(
            &mover.own,
            part,
            &mover.name,
            Place::Itself,
            mover.own_judged,
        );
    }
    for (id, node) in (0..).zip(&tree.nodes).skip(1) {
        if node.class == Class::Function {
            let (sides, part) = if limits.own {
                (&own[id as usize], Part::alone(vec![id]))
            } else {
                (&node.sides, Part::whole(vec![id]))
            };
            let caller = tree.text(&tree.nodes[node.parent as usize]).to_owned();
            let judged = diff.scale.judge(sides, &diff.whole);
            add(
                sides,
                part,
                tree.text(node),
                Place::CalledBy(caller),
                judged,
            );
        }
    }
    candidates
}

/// Boxes of each function: those where it is entered, and all.
fn boxes(tree: &Tree) -> HashMap<NameId, [Vec<u32>; 2]> {
    let mut boxes: HashMap<NameId, [Vec<u32>; 2]> = HashMap::new();
    for (id, node) in (0..).zip(&tree.nodes).skip(1) {
        if node.class == Class::Function {
            let [entered, all] = boxes.entry(node.name).or_default();
            all.push(id);
            if is_entered(tree, id as usize) {
                entered.push(id);
            }
        }
    }
    boxes
}

/// Sums of random numbers, one of each box with samples of its own: the same samples have the same sum.
struct Signatures {
    alone: Vec<u64>,
    whole: Vec<u64>,
}

impl Signatures {
    fn new(tree: &Tree) -> Self {
        let mut random = Random::new(0);
        let number = |node: &Node| match node.sides {
            [Side { own: 0, .. }, Side { own: 0, .. }] => 0,
            _ => random.bits(),
        };
        let alone: Vec<u64> = tree.nodes.iter().map(number).collect();
        let mut whole = alone.clone();
        for (id, node) in tree.nodes.iter().enumerate().skip(1).rev() {
            let below = node.parent as usize;
            whole[below] = whole[below].wrapping_add(whole[id]);
        }
        Self { alone, whole }
    }

    fn of(&self, part: &Part) -> u64 {
        let whole = part.whole.iter().map(|id| self.whole[*id as usize]);
        let alone = part.alone.iter().map(|id| self.alone[*id as usize]);
        whole.chain(alone).fold(0, u64::wrapping_add)
    }
}
