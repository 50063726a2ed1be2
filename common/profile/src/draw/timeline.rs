//! A line of time on a page: strips, one below the other, that show how much there was of something and when.

use std::io::{self, Write};

use crate::escape::markup;

/// Strips of one window; without any there is nothing on the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Words for the window's begin and end.
    pub edges: [String; 2],
    /// Strips, in the order of the page.
    pub strips: Vec<Strip>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strip {
    /// Words for it.
    pub label: String,
    /// Its figures, e.g. `61% on average, 100% at most`; empty: none.
    pub amount: String,
    /// Pieces that have a height, in any order.
    pub pieces: Vec<Piece>,
    /// Its pieces are events, not amounts.
    pub is_events: bool,
}

/// A piece of a strip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Begin and end, as shares of the window, 0 to 1.
    pub span: [f64; 2],
    /// Share of the strip's height, 0 to 1.
    pub height: f64,
    /// Words that are shown where somebody points at it.
    pub words: String,
}

/// Units of a picture across and down; it is stretched to the page's width.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 30.0;

/// Width of the narrowest event, of the same units.
const NARROWEST: f64 = 2.0;

impl Timeline {
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.strips.is_empty() {
            return Ok(());
        }
        let [begin, end] = self.edges.each_ref().map(|words| markup(words));
        writeln!(
            out,
            "<p class=\"reading\">The window from left to right: how much of each there was, and when.</p>\n<div class=\"timeline\">"
        )?;
        for strip in &self.strips {
            strip.write(out)?;
        }
        writeln!(
            out,
            "<p class=\"edges\"><span>{begin}</span><span>{end}</span></p>\n</div>"
        )
    }
}

impl Strip {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let class = if self.is_events {
            " class=\"events\""
        } else {
            ""
        };
        let (label, amount) = (markup(&self.label), markup(&self.amount));
        writeln!(
            out,
            "<p><span>{label}</span> <span class=\"figures\">{amount}</span></p>\n<svg{class} viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}: {amount}\">"
        )?;
        for piece in &self.pieces {
            piece.write(self.is_events, out)?;
        }
        writeln!(out, "</svg>")
    }
}

impl Piece {
    fn write(&self, is_event: bool, out: &mut impl Write) -> io::Result<()> {
        let [begin, end] = self.span.map(|share| share.clamp(0.0, 1.0) * WIDTH);
        let least = if is_event { NARROWEST } else { 0.0 };
        let width = (end - begin).max(least);
        let height = self.height.clamp(0.0, 1.0) * HEIGHT;
        if width <= 0.0 || height <= 0.0 {
            return Ok(());
        }
        writeln!(
            out,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"><title>{}</title></rect>",
            begin.min(WIDTH - width),
            HEIGHT - height,
            markup(&self.words),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(timeline: &Timeline) -> String {
        let mut out = Vec::new();
        timeline.write(&mut out).expect("a vector");
        String::from_utf8(out).expect("text")
    }

    fn piece(span: [f64; 2], height: f64, words: &str) -> Piece {
        Piece {
            span,
            height,
            words: words.into(),
        }
    }

    #[test]
    fn pieces_stand_where_their_time_is_and_names_stay_text() {
        let hostile = "</title><script>pwned()</script>\"'\u{1b}[31m";
        let strip = |is_events| Strip {
            label: hostile.into(),
            amount: hostile.into(),
            pieces: vec![
                piece([0.25, 0.5], 0.5, hostile),
                piece([0.5, 0.75], 0.0, "nothing"),
                piece([1.0, 1.0], 7.0, "at the end"),
            ],
            is_events,
        };
        let text = page(&Timeline {
            edges: [hostile.into(), "12:00:10".into()],
            strips: vec![strip(false), strip(true)],
        });
        assert!(
            !text.contains("<script") && !text.contains('\u{1b}'),
            "{text}"
        );
        let quarter = r#"<rect x="250.00" y="15.00" width="250.00" height="15.00">"#;
        assert_eq!(text.matches(quarter).count(), 2, "{text}");
        // An event of no length is seen, and inside; an amount of none is not.
        let event = r#"<rect x="998.00" y="0.00" width="2.00" height="30.00">"#;
        assert_eq!(text.matches(event).count(), 1, "{text}");
        assert_eq!(text.matches("<rect").count(), 3, "{text}");
    }

    #[test]
    fn nothing_is_written_of_nothing() {
        assert_eq!(page(&Timeline::default()), "");
    }
}
