//! Changes between two profiles, function by function.

use std::collections::HashMap;

use super::Judged;
use super::scale::Scale;
use crate::recording::{NameId, Recording};
use crate::tree::{Class, Paths, Side, Tree};

/// A function with what both profiles have of it.
#[derive(Clone, Debug)]
pub struct Mover {
    /// Its name, not escaped.
    pub name: String,
    /// With all that it called, once per stack.
    pub total: [Side; 2],
    /// Alone.
    pub own: [Side; 2],
    /// Of `total`.
    pub judged: Judged,
    /// Of `own`.
    pub own_judged: Judged,
}

/// Two profiles, function by function.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Functions of either, the largest change of their own share first.
    pub functions: Vec<Mover>,
    /// Everything.
    pub whole: [Side; 2],
    /// Shares or values, which are compared.
    pub scale: Scale,
    /// Names that are only ever inlined in one profile, and never in the other.
    pub inlining: Vec<String>,
}

/// A tree with BASE on side 0 and NEW on side 1. Functions are told apart by name, so that a compiler's other choice of what to
/// inline moves nothing.
pub fn tree(base: &Recording, new: &Recording, mut paths: Paths) -> Tree {
    paths.names_only = true;
    let mut tree = Tree::default();
    tree.add(base, paths, 0);
    tree.add(new, paths, 1);
    tree
}

/// Compares all functions of a tree of both.
pub fn functions(tree: &Tree, base: &Recording, new: &Recording, scale: Scale) -> Diff {
    let whole = tree.nodes[0].sides;
    let own = tree.own_sides();
    let mut sums: HashMap<NameId, (Side2, Side2)> = HashMap::new();
    for (id, node) in tree.nodes.iter().enumerate().skip(1) {
        if !matches!(node.class, Class::Function) {
            continue;
        }
        let sums = sums.entry(node.name).or_default();
        if is_entered(tree, id) {
            add(&mut sums.0, &node.sides);
        }
        add(&mut sums.1, &own[id]);
    }
    let mut functions: Vec<Mover> = sums
        .into_iter()
        .map(|(name, (total, own))| Mover {
            name: tree.names.text(name).to_owned(),
            judged: scale.judge(&total, &whole),
            own_judged: scale.judge(&own, &whole),
            total,
            own,
        })
        .collect();
    let change = |judged: &Judged| judged.change().abs();
    functions.sort_by(|a, b| {
        let by_change = change(&b.own_judged).total_cmp(&change(&a.own_judged));
        by_change
            .then_with(|| change(&b.judged).total_cmp(&change(&a.judged)))
            .then_with(|| a.name.cmp(&b.name))
    });
    Diff {
        functions,
        whole,
        scale,
        inlining: inlining(base, new),
    }
}

type Side2 = [Side; 2];

fn add(sum: &mut Side2, sides: &Side2) {
    for (sum, side) in sum.iter_mut().zip(sides) {
        sum.total = sum.total.saturating_add(side.total);
        sum.own = sum.own.saturating_add(side.own);
        sum.count = sum.count.saturating_add(side.count);
        sum.squares += side.squares;
    }
}

/// Whether a function's box is the first of its stack: a recursive one counts once, where it is entered.
pub(super) fn is_entered(tree: &Tree, id: usize) -> bool {
    let name = tree.nodes[id].name;
    let mut at = tree.nodes[id].parent as usize;
    while at != 0 {
        let node = &tree.nodes[at];
        if node.name == name && node.class == Class::Function {
            return false;
        }
        at = node.parent as usize;
    }
    true
}

/// Functions that one profile has as calls only and the other inlined only.
fn inlining(base: &Recording, new: &Recording) -> Vec<String> {
    let kinds = |recording: &Recording| {
        let mut kinds: HashMap<String, [bool; 2]> = HashMap::new();
        for frame in recording.frames() {
            let name = recording.text(frame.name).to_owned();
            kinds.entry(name).or_default()[usize::from(frame.inlined)] = true;
        }
        kinds
    };
    let (base, new) = (kinds(base), kinds(new));
    let mut changed: Vec<String> = base
        .into_iter()
        .filter(|(name, kind)| {
            new.get(name)
                .is_some_and(|other| kind[0] != other[0] && kind[1] != other[1])
        })
        .map(|(name, _)| name)
        .collect();
    changed.sort();
    changed
}
