//! One picture.

use std::io::{self, Write};

use super::layout::{Layout, Placed};
use super::{Texts, View, palette, words};
use crate::compare::Verdict;
use crate::compare::scale::Scale;
use crate::escape::{markup, terminal};
use crate::tree::{Class, Node, Tree};

/// Width before a browser lays it out anew, pixels.
const WIDTH: f64 = 1200.0;
/// Height of a box with its border.
const ROW: f64 = 19.0;
/// Width of a character of the monospaced font at 12 pixels.
const CHARACTER: f64 = 7.23;
/// Change of share that has the full colour: ten percentage points.
const FULL_CHANGE: f64 = 0.10;

const SCRIPT: &str = include_str!("graph.js");
const STYLE: &str = include_str!("graph.css");

/// A tree and how it is drawn.
pub(super) struct Picture<'a> {
    pub(super) tree: &'a Tree,
    pub(super) view: &'a View,
    pub(super) unit: &'a str,
}

impl Picture<'_> {
    /// Writes a file of its own.
    pub(super) fn write(&self, texts: &Texts, out: &mut impl Write) -> io::Result<()> {
        let layout = self.layout();
        let top = 148.0;
        let height = top + f64::from(layout.rows) * ROW + 34.0;
        writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
        self.open(&layout, height, top, &texts.title, out)?;
        writeln!(out, "<style>{STYLE}</style>")?;
        writeln!(
            out,
            r#"<rect class="paper" width="100%" height="100%" fill="white"/>"#
        )?;
        writeln!(
            out,
            r#"<text class="title" x="10" y="26">{}</text>"#,
            markup(&texts.title)
        )?;
        writeln!(
            out,
            r#"<text class="amount" x="10" y="46">{}</text>"#,
            markup(&texts.amount)
        )?;
        let [grows, width, order] = words::reading(self.view);
        writeln!(out, r#"<text class="reading" x="10" y="66">{grows}</text>"#)?;
        writeln!(
            out,
            r#"<text class="reading" x="10" y="82">{width} {order}</text>"#
        )?;
        self.legend(&layout, out)?;
        writeln!(
            out,
            r#"<text class="button reset" x="10" y="132" tabindex="0">Reset zoom (Esc)</text>"#
        )?;
        writeln!(
            out,
            r#"<text class="button search" x="150" y="132" tabindex="0">Search (/)</text>"#
        )?;
        writeln!(out, r#"<text class="found" x="250" y="132"/>"#)?;
        self.boxes(&layout, top, out)?;
        let y = height - 14.0;
        let note = omitted(&layout);
        writeln!(out, r#"<text class="details" x="10" y="{y}">{note}</text>"#)?;
        writeln!(out, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")
    }

    /// Writes a picture inside a page, which has the words, the buttons and the script.
    pub(super) fn embed(&self, out: &mut impl Write) -> io::Result<String> {
        let layout = self.layout();
        let height = f64::from(layout.rows) * ROW + 2.0;
        self.open(&layout, height, 1.0, "flame graph", out)?;
        self.boxes(&layout, 1.0, out)?;
        writeln!(out, "</svg>")?;
        Ok(omitted(&layout))
    }

    fn layout(&self) -> Layout {
        let side = usize::from(self.view.compared.is_some());
        Layout::of(self.tree, |node| {
            self.tree.nodes[node as usize].sides[side].total as f64
        })
    }

    fn open(
        &self,
        layout: &Layout,
        height: f64,
        top: f64,
        label: &str,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let grows = if self.view.icicle { "down" } else { "up" };
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="flame" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}" tabindex="0" data-grows="{grows}" data-rows="{}" data-row="{ROW}" data-top="{top}" data-width="{WIDTH}">"#,
            markup(label),
            layout.rows
        )
    }

    fn boxes(&self, layout: &Layout, top: f64, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, r#"<g class="boxes">"#)?;
        for placed in &layout.placed {
            let row = if self.view.icicle {
                placed.depth
            } else {
                layout.rows - 1 - placed.depth
            };
            let y = top + f64::from(row) * ROW;
            self.one_box(placed, y, out)?;
        }
        writeln!(out, "</g>")
    }

    fn one_box(&self, placed: &Placed, y: f64, out: &mut impl Write) -> io::Result<()> {
        let node = &self.tree.nodes[placed.node as usize];
        let (x, width) = (placed.x * WIDTH, placed.width * WIDTH);
        let (fill, mark) = self.look(node);
        let tooltip = words::tooltip(self.tree, node, self.view, self.unit);
        write!(
            out,
            r#"<g data-d="{}"><title>{}</title>"#,
            placed.depth,
            markup(&tooltip[0])
        )?;
        write!(out, "<desc>{}</desc>", markup(&tooltip[1..].join(" · ")))?;
        write!(
            out,
            r#"<rect x="{x:.3}" y="{y}" width="{width:.3}" height="{}" fill="{fill}"/>"#,
            ROW - 1.0
        )?;
        let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
        let label = format!("{mark}{}", terminal(self.tree.text(node)));
        let shown = if room >= 3 {
            crate::text::cut(&label, room)
        } else {
            String::new()
        };
        let mark = if mark.is_empty() {
            String::new()
        } else {
            format!(r#" data-m="{}""#, mark.trim())
        };
        writeln!(
            out,
            r#"<text x="{:.3}" y="{}"{mark}>{}</text></g>"#,
            x + 3.0,
            y + 13.0,
            markup(&shown)
        )
    }

    /// Colour, and a mark that says the same without it.
    fn look(&self, node: &Node) -> (String, &'static str) {
        let is_root = std::ptr::eq(node, &raw const self.tree.nodes[0]);
        let Some(scale) = &self.view.compared else {
            return (palette::of_name(node.class, self.tree.text(node)), "");
        };
        if is_root {
            return (palette::UNCHANGED.into(), "");
        }
        let whole = &self.tree.nodes[0].sides;
        let judged = scale.judge(&node.sides, whole);
        let change = scale.relative(&judged, whole) / FULL_CHANGE;
        match judged.verdict {
            Verdict::Grew => (palette::of_change(change), "▲ "),
            Verdict::Shrank => (palette::of_change(change), "▼ "),
            Verdict::Unclear => (palette::UNCHANGED.into(), ""),
            Verdict::Unjudged if change.abs() < 0.01 => (palette::UNCHANGED.into(), ""),
            Verdict::Unjudged => (
                palette::of_change(change),
                if change > 0.0 { "▲ " } else { "▼ " },
            ),
        }
    }

    /// Colour and word of what is in the picture.
    pub(super) fn legend_entries(&self, layout: Option<&Layout>) -> Vec<(String, String)> {
        if let Some(scale) = &self.view.compared {
            let entry = |colour: String, word: &str| (colour, word.to_owned());
            let [larger, smaller] = match scale {
                Scale::Shares => ["▲ red: larger share in NEW", "▼ blue: smaller share in NEW"],
                Scale::Values(_) => ["▲ red: more in NEW", "▼ blue: less in NEW"],
            };
            return vec![
                entry(palette::of_change(1.0), larger),
                entry(palette::of_change(-1.0), smaller),
                entry(palette::UNCHANGED.into(), "grey: no change beyond chance"),
            ];
        }
        let is_there = |class: Class| match layout {
            Some(layout) => layout
                .placed
                .iter()
                .skip(1)
                .any(|placed| self.tree.nodes[placed.node as usize].class == class),
            None => self
                .tree
                .nodes
                .iter()
                .skip(1)
                .any(|node| node.class == class),
        };
        let classes = Class::ALL.into_iter();
        let classes = classes.filter(|(class, _)| *class != Class::Separator && is_there(*class));
        classes
            .map(|(class, word)| (palette::of_class(class), word.to_owned()))
            .collect()
    }

    fn legend(&self, layout: &Layout, out: &mut impl Write) -> io::Result<()> {
        let mut x = 10.0;
        writeln!(out, r#"<g class="legend">"#)?;
        for (colour, word) in self.legend_entries(Some(layout)) {
            writeln!(
                out,
                r#"<rect x="{x:.0}" y="96" width="12" height="12" fill="{colour}" stroke="gray"/><text x="{:.0}" y="106">{}</text>"#,
                x + 17.0,
                markup(&word)
            )?;
            x += 17.0 + word.chars().count() as f64 * CHARACTER + 16.0;
        }
        writeln!(out, "</g>")
    }
}

/// The script and the style of pictures, for pages.
pub(super) fn script_and_style() -> (&'static str, &'static str) {
    (SCRIPT, STYLE)
}

fn omitted(layout: &Layout) -> String {
    match layout.omitted {
        0 => String::new(),
        n => format!(
            "{} narrower than a tenth of a pixel are not drawn",
            crate::units::counted(n as u64, "boxes")
        ),
    }
}
