//! The account as a page: sentences, and lines as bars that open.

use profile::draw::{self, Bar};
use profile::units;

use crate::why::account::Account;
use crate::why::line::{IDLE, Line};
use crate::why::remarks::remarks;
use crate::why::strips::timeline;
use crate::why::table::{cells, is_remainder, whose, words};

/// Lines of a page.
const MOST_BARS: usize = 40;
/// One of so many parts of the time that is neither idle nor asleep is the least that a line has.
const LEAST: u64 = 1000;

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
    let has_time = |line: &&Line| line.time_ns() > 0 || is_remainder(line);
    let lines: Vec<&Line> = account.lines.iter().filter(has_time).collect();
    let least_ns = account.busy_ns() / LEAST;
    let is_shown = |line: &&&Line| line.time_ns() >= least_ns || is_remainder(line);
    let shown = lines.iter().filter(is_shown).take(MOST_BARS);
    let mut bars: Vec<Bar> = shown.map(|line| bar(account, line)).collect();
    let more = lines.len() - bars.len();
    if more > 0 {
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
        timeline: timeline(account),
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

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
