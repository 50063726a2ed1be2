//! What changed between two profiles, in words.

use std::collections::HashMap;
use std::io::{self, Write};

use super::scale::Scale;
use super::{Judged, Verdict};
use crate::escape::terminal;
use crate::recording::{NameId, Recording};
use crate::style::Style;
use crate::table::{Column, Table};
use crate::text::cut;
use crate::tree::{Class, Paths, Side, Tree};
use crate::units;

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

/// How the text looks.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Functions in each list.
    pub rows: usize,
    /// Columns.
    pub width: usize,
    /// Emphasis.
    pub style: Style,
    /// Changes within chance too.
    pub all: bool,
}

/// Writes what grew and shrank beyond chance, then what is on one side only.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    diff: &Diff,
    units: [&str; 2],
    options: &TableOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "{}\n", diff.scale.sentence(&diff.whole, units))?;
    if diff
        .whole
        .iter()
        .any(|side| side.count == 0 && side.total > 0)
    {
        writeln!(
            out,
            "The number of samples is not known: what chance did cannot be told apart.\n"
        )?;
    }
    let is_shown = |mover: &&Mover| {
        options.all
            || [mover.own_judged, mover.judged]
                .iter()
                .any(|judged| match judged.verdict {
                    Verdict::Grew | Verdict::Shrank => true,
                    Verdict::Unjudged => diff.scale.relative(judged, &diff.whole).abs() > 0.001,
                    Verdict::Unclear => false,
                })
    };
    let shown: Vec<&Mover> = diff.functions.iter().filter(is_shown).collect();
    if shown.is_empty() {
        writeln!(out, "No function changed more than chance does (99 %).")?;
    } else {
        table(&shown, &diff.scale, options).write(options.width, options.style, out)?;
        if shown.len() > options.rows {
            writeln!(out, "… {} more", shown.len() - options.rows)?;
        }
    }
    let quiet = diff.functions.len() - shown.len();
    if quiet > 0 {
        writeln!(
            out,
            "\n{} within chance, not listed (--all lists them).",
            units::counted(quiet as u64, "functions")
        )?;
    }
    one_sided(diff, 0, "only in BASE, gone from NEW", options, out)?;
    one_sided(diff, 1, "only in NEW", options, out)?;
    if !diff.inlining.is_empty() {
        let names: Vec<String> = diff
            .inlining
            .iter()
            .take(options.rows)
            .map(|name| terminal(name).into_owned())
            .collect();
        writeln!(
            out,
            "\nInlined in one, called in the other: {}",
            names.join(", ")
        )?;
    }
    Ok(())
}

fn table<'a>(shown: &[&'a Mover], scale: &Scale, options: &TableOptions) -> Table<'a> {
    let columns = |title| {
        [
            Column::right(title, 11).gap(2),
            Column::right("BASE", 9),
            Column::right("NEW", 9),
        ]
    };
    let mut all = [columns("SELF"), columns("TOTAL")].concat();
    all.push(Column::left("FUNCTION", 0));
    let mut table = Table::new(all);
    for mover in shown.iter().take(options.rows) {
        let own = cells(&mover.own_judged, scale);
        let total = cells(&mover.judged, scale);
        let word = match strongest(mover).verdict {
            Verdict::Grew => "grew",
            Verdict::Shrank => "shrank",
            Verdict::Unclear => "(chance)",
            Verdict::Unjudged => "(unjudged)",
        };
        let name = &mover.name;
        table.fitted([own, total].concat(), move |room| {
            let room = room.saturating_sub(word.len() + 1).max(20);
            format!("{} {word}", cut(&terminal(name), room))
        });
    }
    table
}

/// The judgement that the word is about: of the function alone where that is clear.
fn strongest(mover: &Mover) -> Judged {
    match mover.own_judged.verdict {
        Verdict::Grew | Verdict::Shrank => mover.own_judged,
        _ => mover.judged,
    }
}

fn cells(judged: &Judged, scale: &Scale) -> [String; 3] {
    let [base, new] = judged.levels.map(|level| scale.cell(level));
    [scale.change(judged.change()), base, new]
}

fn one_sided(
    diff: &Diff,
    side: usize,
    words: &str,
    options: &TableOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut movers: Vec<&Mover> = diff
        .functions
        .iter()
        .filter(|mover| mover.total[1 - side].total == 0 && mover.total[side].total > 0)
        .collect();
    movers.sort_by(|a, b| b.judged.levels[side].total_cmp(&a.judged.levels[side]));
    if movers.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{}, {words}:",
        units::counted(movers.len() as u64, "functions")
    )?;
    for mover in movers.iter().take(options.rows.min(10)) {
        let level = diff.scale.cell(mover.judged.levels[side]);
        writeln!(
            out,
            "{level:>11}  {}",
            cut(
                &terminal(&mover.name),
                options.width.saturating_sub(13).max(20)
            )
        )?;
    }
    if movers.len() > options.rows.min(10) {
        writeln!(
            out,
            "           … {} more",
            movers.len() - options.rows.min(10)
        )?;
    }
    Ok(())
}
