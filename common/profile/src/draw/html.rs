//! The page: words, both pictures, the heaviest functions, what was lost.

use std::io::{self, Write};

use super::svg::{Picture, script_and_style};
use super::{Texts, View, texts, words};
use crate::ask::top::{By, top};
use crate::escape::markup;
use crate::recording::Recording;
use crate::statistics::share;
use crate::text::{self, cut};
use crate::tree::Tree;
use crate::units;

const STYLE: &str = include_str!("page.css");
/// Rows of the table.
const ROWS: usize = 30;

pub(super) fn write(recording: &Recording, view: &View, out: &mut impl Write) -> io::Result<()> {
    let tree = Tree::of(recording, view.paths());
    head(&texts(recording, view, &tree), out)?;
    let other = View {
        inverted: !view.inverted,
        ..view.clone()
    };
    view.account.write(out)?;
    choice(view, out)?;
    let picture = Picture {
        tree: &tree,
        view,
        unit: recording.unit(),
    };
    section(&picture, ("graph", false), out)?;
    let picture = Picture {
        tree: &Tree::of(recording, other.paths()),
        view: &other,
        ..picture
    };
    section(&picture, ("other", true), out)?;
    table(recording, out)?;
    if !recording.header.comments.is_empty() {
        writeln!(out, "<h2>Notes of the run</h2>\n<ul>")?;
        for comment in &recording.header.comments {
            writeln!(out, "<li>{}</li>", markup(comment))?;
        }
        writeln!(out, "</ul>")?;
    }
    foot(out)
}

/// The page of a comparison; `table` is what it is in words.
pub(super) fn compared(
    picture: &Picture<'_>,
    texts: &Texts,
    table: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    head(texts, out)?;
    section(picture, ("graph", false), out)?;
    writeln!(out, "<h2>What changed</h2>")?;
    text(table, out)?;
    foot(out)
}

/// Lines as a terminal shows them; none of an empty text.
fn text(text: &str, out: &mut impl Write) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    writeln!(out, "<pre>")?;
    for line in text.lines() {
        writeln!(out, "{}", markup(line))?;
    }
    writeln!(out, "</pre>")
}

fn head(texts: &Texts, out: &mut impl Write) -> io::Result<()> {
    let (_, graph_style) = script_and_style();
    let (title, amount) = (markup(&texts.title), markup(&texts.amount));
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">"
    )?;
    writeln!(
        out,
        r#"<meta name="viewport" content="width=device-width, initial-scale=1">"#
    )?;
    // Whatever gets past the escaping still cannot load or send anything.
    writeln!(
        out,
        r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; form-action 'none'; base-uri 'none'">"#
    )?;
    writeln!(
        out,
        "<title>{title}</title>\n<style>\n{STYLE}{graph_style}</style>\n</head>\n<body>"
    )?;
    writeln!(out, "<h1>{title}</h1>\n<p class=\"amount\">{amount}</p>")
}

fn foot(out: &mut impl Write) -> io::Result<()> {
    let (script, _) = script_and_style();
    writeln!(out, "<script>\n{script}</script>\n</body>\n</html>")
}

fn choice(view: &View, out: &mut impl Write) -> io::Result<()> {
    let names = ["by caller", "by leaf (inverted)"];
    let [first, second] = if view.inverted {
        [names[1], names[0]]
    } else {
        names
    };
    writeln!(
        out,
        r#"<p class="controls">View: <label><input type="radio" name="view" value="graph" checked> {first}</label> <label><input type="radio" name="view" value="other"> {second}</label></p>"#
    )
}

fn section(
    picture: &Picture<'_>,
    (id, hidden): (&str, bool),
    out: &mut impl Write,
) -> io::Result<()> {
    let hidden = if hidden { " hidden" } else { "" };
    writeln!(out, r#"<section class="graph" id="{id}"{hidden}>"#)?;
    writeln!(
        out,
        r#"<p class="reading">{}</p>"#,
        words::reading(picture.view).join(" ")
    )?;
    writeln!(out, r#"<ul class="legend">"#)?;
    for (colour, word) in picture.legend_entries(None) {
        writeln!(
            out,
            r#"<li><i style="background:{colour}"></i>{}</li>"#,
            markup(&word)
        )?;
    }
    writeln!(out, "</ul>")?;
    writeln!(
        out,
        r#"<p class="controls"><input class="pattern" type="search" placeholder="Search functions ( / )" aria-label="Search functions, regular expression"> <button type="button" class="reset">Reset zoom (Esc)</button> <span class="found" role="status"></span> <span class="zoomed"></span></p>"#
    )?;
    // The arrow keys do for the keyboard what the buttons at the edges do.
    let edge = |name: &str| {
        format!(
            r#"<div class="more {name}" hidden><button type="button" tabindex="-1"></button></div>"#
        )
    };
    let (above, under) = (edge("above"), edge("under"));
    writeln!(out, r#"<div class="frame">{above}<div class="picture">"#)?;
    let note = picture.embed(out)?;
    writeln!(out, "</div>{under}</div>")?;
    writeln!(out, "<p class=\"details\">{note}</p>\n</section>")
}

fn table(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    let found = top(recording, &By::Function);
    let is_sampled = matches!(recording.unit(), "count" | "") && recording.header.has_counts;
    let cell = |value: u64, count: u64| {
        if is_sampled {
            let share = share(count, found.count);
            format!("{:.1}% ({})", 100.0 * share.share, share.interval())
        } else {
            let share = text::share(value as f64 / found.value.max(1) as f64);
            format!("{} ({share})", units::value(value, recording.unit()))
        }
    };
    writeln!(out, "<h2>Heaviest functions</h2>")?;
    if is_sampled {
        writeln!(
            out,
            "<p class=\"reading\">Shares of samples with their 95 % intervals.</p>"
        )?;
    }
    writeln!(
        out,
        "<table>\n<tr><th class=\"n\">by itself</th><th class=\"n\">with callees</th><th>function</th><th>module</th></tr>"
    )?;
    for entry in found.entries.iter().take(ROWS) {
        writeln!(
            out,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
            cell(entry.own, entry.own_count),
            cell(entry.total, entry.total_count),
            markup(&cut(&entry.name, 200)),
            markup(&cut(&entry.place, 60)),
        )?;
    }
    writeln!(out, "</table>")
}
