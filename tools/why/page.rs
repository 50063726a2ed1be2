//! The account as a page: sentences, and lines as bars that open.

use profile::draw::{self, Bar};
use profile::units;

use crate::why::account::Account;
use crate::why::line::{IDLE, Line};
use crate::why::remarks::remarks;
use crate::why::table::{cells, is_remainder, whose, words};

/// Lines of a page.
const MOST_BARS: usize = 40;

/// Everything of an account for a page, with what is behind each line. `answer`: sentences in lines of a terminal, and a command.
pub(super) fn page(account: &Account, answer: &[String]) -> draw::Account {
    let mut sentences: Vec<String> = Vec::new();
    for line in answer {
        match sentences.last_mut() {
            Some(sentence) if line.starts_with(' ') => *sentence += &format!(" {}", line.trim()),
            _ => sentences.push(line.clone()),
        }
    }
    let next = sentences.pop_if(|line| line.starts_with("next: "));
    let lines = account.lines.iter();
    let bars = lines.filter(|line| line.time_ns() > 0 || is_remainder(line));
    let mut bars: Vec<Bar> = bars.map(|line| bar(account, line)).collect();
    let more = bars.len().saturating_sub(MOST_BARS);
    if more > 0 {
        bars.truncate(MOST_BARS);
        bars.push(Bar {
            label: format!("{} (-j has all)", units::counted(more as u64, "more lines")),
            is_rest: true,
            ..Bar::default()
        });
    }
    draw::Account {
        sentences,
        next: next.unwrap_or_default(),
        bars,
    }
}

fn bar(account: &Account, line: &Line) -> Bar {
    let words = words(line) + &whose(account, line);
    let (kernel, user) = &line.stack;
    let frames = kernel.iter().rev().chain(user.iter().rev());
    let [time, share, waits, mean, p99, label] =
        cells(account, line.ns, (line.waits, &line.lengths), &words);
    let mut figures = Vec::new();
    if !waits.is_empty() {
        figures.push(units::counted(line.waits, "waits"));
        figures.push(format!("{mean} on average"));
    }
    if !p99.is_empty() {
        figures.push(format!("p99 {p99}"));
    }
    Bar {
        label: label.split_whitespace().collect::<Vec<_>>().join(" "),
        amount: format!("{time} \u{b7} {share}"),
        figures: figures.join(", "),
        // Idleness would leave the others no length.
        value: if line.kind == IDLE { 0 } else { line.time_ns() },
        is_rest: !line.is_busy(),
        remarks: remarks(account, line),
        stack: frames.map(|frame| frame.name.to_string()).collect(),
    }
}
