//! An account above the pictures of a page: sentences, and bars that open into what is behind them.

use std::io::{self, Write};

use super::timeline::Timeline;
use crate::escape::markup;
use crate::text::cut;

/// Most characters of a frame's name.
const NAME: usize = 200;

/// Words, bars and a line of time; without any there is nothing on the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The answer, a sentence each.
    pub sentences: Vec<String>,
    /// A command that looks further; empty: none.
    pub next: String,
    /// Bars, in the order of the page.
    pub bars: Vec<Bar>,
    /// Below the bars.
    pub timeline: Timeline,
}

/// A line of the account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// Words for it.
    pub label: String,
    /// Amount and share, e.g. `1.20 s · 12.0%`.
    pub amount: String,
    /// More figures; empty: none.
    pub figures: String,
    /// Value that its length stands for; 0: it has no length.
    pub value: u64,
    /// It is of a kind that is no trouble, or a remainder.
    pub is_rest: bool,
    /// Words below it.
    pub remarks: Vec<String>,
    /// Frames, the innermost first.
    pub stack: Vec<String>,
}

impl Account {
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.sentences.is_empty() && self.bars.is_empty() {
            return Ok(());
        }
        writeln!(out, "<div class=\"account\">")?;
        for sentence in &self.sentences {
            writeln!(out, "<p class=\"said\">{}</p>", markup(sentence))?;
        }
        if !self.next.is_empty() {
            writeln!(out, "<p class=\"said next\">{}</p>", markup(&self.next))?;
        }
        if !self.bars.is_empty() {
            writeln!(
                out,
                "<p class=\"reading\">Lengths are times, all to one scale; a line opens into who is to blame, and its largest stack.</p>"
            )?;
        }
        let longest = self.bars.iter().map(|bar| bar.value).max();
        for bar in &self.bars {
            bar.write(longest.unwrap_or(0).max(1), out)?;
        }
        self.timeline.write(out)?;
        writeln!(out, "</div>")
    }
}

impl Bar {
    fn write(&self, longest: u64, out: &mut impl Write) -> io::Result<()> {
        let class = if self.is_rest { "bar rest" } else { "bar" };
        let (tag, head) = match self.remarks.is_empty() && self.stack.is_empty() {
            true => ("div", "div"),
            false => ("details", "summary"),
        };
        let percent = 100.0 * self.value as f64 / longest as f64;
        let length = match self.value {
            0 => String::new(),
            _ => format!("<i style=\"width:{percent:.2}%\"></i>"),
        };
        writeln!(
            out,
            "<{tag} class=\"{class}\"><{head}><span class=\"label\">{}</span> <b>{}</b> <span class=\"figures\">{}</span>{length}</{head}>",
            markup(&self.label),
            markup(&self.amount),
            markup(&self.figures),
        )?;
        list("ul", &self.remarks, out)?;
        list("ol", &self.stack, out)?;
        writeln!(out, "</{tag}>")
    }
}

fn list(tag: &str, entries: &[String], out: &mut impl Write) -> io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    writeln!(out, "<{tag}>")?;
    for entry in entries {
        writeln!(out, "<li>{}</li>", markup(&cut(entry, NAME)))?;
    }
    writeln!(out, "</{tag}>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(account: &Account) -> String {
        let mut out = Vec::new();
        account.write(&mut out).expect("a vector");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn bars_are_to_one_scale_and_names_stay_text() {
        let hostile = "</summary><script>pwned()</script>\"'\u{1b}[31m";
        let bar = |value, stack: &[&str]| Bar {
            label: hostile.into(),
            value,
            stack: stack.iter().map(|name| (*name).into()).collect(),
            ..Bar::default()
        };
        let text = page(&Account {
            sentences: vec![hostile.into()],
            next: hostile.into(),
            bars: vec![bar(400, &[hostile]), bar(100, &[]), bar(0, &[])],
            ..Account::default()
        });
        assert_eq!(
            text.matches("<i ").count(),
            2,
            "nothing has no length: {text}"
        );
        for width in ["width:100.00%", "width:25.00%"] {
            assert_eq!(text.matches(width).count(), 1, "{width}: {text}");
        }
        assert_eq!(
            text.matches("<details").count(),
            1,
            "nothing is behind the others: {text}"
        );
        assert!(
            !text.contains("<script") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert_eq!(text.matches("&lt;script&gt;").count(), 6, "{text}");
    }

    #[test]
    fn nothing_is_written_of_nothing() {
        assert_eq!(page(&Account::default()), "");
    }
}
