//! One line on stderr while a run lasts.

use std::cell::RefCell;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use budget::Next;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use profile::units;

/// Runs up to this length finish before anybody looks.
const SILENT: Duration = Duration::from_secs(1);

/// Shortest time between two drawings.
const PAUSE: Duration = Duration::from_millis(250);

/// The progress line; draws nothing when nobody would see it.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: Option<Duration>,
    drawn: RefCell<Drawn>,
}

/// What is on the terminal.
#[derive(Default)]
struct Drawn {
    at: Option<Duration>,
    line: String,
}

/// What the line says.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Since the window opened.
    pub elapsed: Duration,
    /// Events of the run so far; of this window, where it is drawn.
    pub events: u64,
    /// Distinct stacks, for stack tools.
    pub stacks: Option<usize>,
    /// Losses so far.
    pub lost: u64,
    /// Of a collection with a budget: what it has to do. Not shown.
    pub next: Next,
}

impl State {
    /// Leaves out the events of earlier windows: the rate is that of this one.
    pub(crate) fn since(self, events: u64) -> Self {
        Self {
            events: self.events.saturating_sub(events),
            ..self
        }
    }
}

impl Progress {
    /// For a run of `total`, or until somebody ends it.
    pub fn new(total: Option<Duration>, quiet: bool) -> Self {
        let visible = !quiet && stderr().is_terminal() && total.is_none_or(|total| total > SILENT);
        let bar = visible.then(|| {
            // Draws what it is given: its own limit lets bursts through.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("a valid template"));
            bar
        });
        Self {
            bar,
            total,
            drawn: RefCell::default(),
        }
    }

    /// Redraws the line where that is due.
    pub fn update(&self, state: State) {
        if let Some(bar) = self.bar.as_ref().filter(|_| state.elapsed > SILENT) {
            let mut drawn = self.drawn.borrow_mut();
            if drawn.is_due(self.total, state) {
                bar.set_message(drawn.line.clone());
            }
        }
    }

    /// Removes the line before a report is printed.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            // The reset draws it once more.
            bar.set_message("");
            bar.finish_and_clear();
            bar.reset();
        }
    }
}

impl Drawn {
    /// Whether another line is to be drawn now; it is counted as drawn then.
    fn is_due(&mut self, total: Option<Duration>, state: State) -> bool {
        let is_early = |at: Duration| state.elapsed.saturating_sub(at) < PAUSE;
        if self.at.is_some_and(is_early) {
            return false;
        }
        let line = line(total, state);
        if line == self.line {
            return false;
        }
        self.line = line;
        self.at = Some(state.elapsed);
        true
    }
}

fn line(total: Option<Duration>, state: State) -> String {
    let elapsed = state.elapsed.as_secs_f64();
    let mut line = match total {
        Some(total) => format!("{elapsed:.0}/{:.0} s", total.as_secs_f64()),
        None => format!("{elapsed:.0} s (Ctrl-C ends)"),
    };
    let rate = state.events as f64 / elapsed.max(0.001);
    line += &format!("  {} events/s", short(rate));
    if let Some(stacks) = state.stacks {
        line += &format!("  {}", units::counted(stacks as u64, "stacks"));
    }
    line + &format!("  lost {}", state.lost)
}

fn short(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0}k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_reads_well() {
        let state = State {
            elapsed: Duration::from_secs(12),
            events: 492_000,
            stacks: Some(87),
            ..State::default()
        };
        assert_eq!(
            line(Some(Duration::from_secs(30)), state),
            "12/30 s  41k events/s  87 stacks  lost 0"
        );
        let state = State {
            stacks: None,
            ..state
        };
        assert_eq!(
            line(None, state),
            "12 s (Ctrl-C ends)  41k events/s  lost 0"
        );
        let state = State {
            stacks: Some(1),
            ..state
        };
        assert!(line(None, state).contains("  1 stack  "));
        // The second of two windows in which as much happened.
        let both = State {
            elapsed: Duration::from_secs(2),
            events: 60_000,
            ..state
        };
        let second = line(None, both.since(30_000));
        assert!(second.contains("  15k events/s"), "{second}");
    }

    /// Ten seconds of twenty steps each.
    fn drawings(events: impl Fn(u64) -> u64) -> usize {
        let mut drawn = Drawn::default();
        let steps = (0..200).map(|step| State {
            elapsed: Duration::from_millis(2_000 + 50 * step),
            events: events(step),
            ..State::default()
        });
        steps.filter(|state| drawn.is_due(None, *state)).count()
    }

    #[test]
    fn it_is_drawn_four_times_a_second_at_most_and_only_to_say_something_new() {
        assert_eq!(drawings(|step| step * step * 1_000), 40);
        // Only the seconds change.
        assert!((10..=11).contains(&drawings(|_| 0)));
    }
}
