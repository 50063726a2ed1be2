//! Flame graphs: SVG that a browser searches and zooms, and a page around it. Nothing is loaded from anywhere.

mod account;
mod html;
mod layout;
mod palette;
mod svg;
mod timeline;
mod words;

use std::io::{self, Write};

use crate::compare::scale::Scale;
use crate::folded::Idle;
use crate::recording::Recording;
use crate::tree::{Paths, Tree};
pub use account::{Account, Bar};
use svg::Picture;
pub use timeline::{Piece, Strip, Timeline};
pub use words::{amount, subject};

/// What is drawn, and how.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What it is about; empty: made from tool and values.
    pub title: String,
    /// Words and bars above the pictures of a page.
    pub account: Account,
    /// Root at the top.
    pub icicle: bool,
    /// From the leaves: what is called, on what calls it.
    pub inverted: bool,
    /// Reasons of waits as boxes.
    pub reason: bool,
    /// Idle waits.
    pub idle: Idle,
    /// The tree has two sides, and changes of this have colours.
    pub compared: Option<Scale>,
}

impl View {
    /// The usual picture under a title; idle waits are folded, as for people everywhere.
    pub fn titled(title: &str) -> Self {
        Self {
            title: title.into(),
            idle: Idle::Fold,
            ..Self::default()
        }
    }

    fn paths(&self) -> Paths {
        Paths {
            inverted: self.inverted,
            reason: self.reason,
            idle: self.idle,
            names_only: false,
        }
    }
}

/// Draws a recording.
///
/// # Errors
///
/// Those of `out`.
pub fn svg(recording: &Recording, view: &View, out: &mut impl Write) -> io::Result<()> {
    let tree = Tree::of(recording, view.paths());
    let texts = texts(recording, view, &tree);
    let (tree, unit) = (&tree, recording.unit());
    Picture { tree, view, unit }.write(&texts, out)
}

/// Draws a recording from both ends, with a table of its functions.
///
/// # Errors
///
/// Those of `out`.
pub fn html(recording: &Recording, view: &View, out: &mut impl Write) -> io::Result<()> {
    html::write(recording, view, out)
}

/// Draws two profiles over each other, in a page with `table` below it; see [`crate::compare`] for both.
///
/// # Errors
///
/// Those of `out`.
pub fn compared_html(
    tree: &Tree,
    view: &View,
    unit: &str,
    (amount, table): (&str, &str),
    out: &mut impl Write,
) -> io::Result<()> {
    let texts = Texts::of_change(view, amount);
    html::compared(&Picture { tree, view, unit }, &texts, table, out)
}

/// Draws two profiles over each other; see [`crate::compare`] for the tree.
///
/// # Errors
///
/// Those of `out`.
pub fn compared(
    tree: &Tree,
    view: &View,
    unit: &str,
    amount: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let texts = Texts::of_change(view, amount);
    Picture { tree, view, unit }.write(&texts, out)
}

/// What stands above a picture.
struct Texts {
    title: String,
    amount: String,
}

impl Texts {
    fn of_change(view: &View, amount: &str) -> Self {
        Self {
            title: view.title.clone(),
            amount: amount.to_owned(),
        }
    }
}

fn texts(recording: &Recording, view: &View, tree: &Tree) -> Texts {
    Texts {
        title: subject(recording, &view.title),
        amount: amount(recording, tree.totals()[0]),
    }
}
