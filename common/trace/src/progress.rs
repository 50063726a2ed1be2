//! One line on stderr while a run lasts.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Runs up to this length finish before anybody looks.
const SILENT: Duration = Duration::from_secs(1);

/// The progress line; draws nothing when nobody would see it.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: Option<Duration>,
}

/// What the line says.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Since the window opened.
    pub elapsed: Duration,
    /// Events so far.
    pub events: u64,
    /// Distinct stacks, for stack tools.
    pub stacks: Option<usize>,
    /// Losses so far.
    pub lost: u64,
}

impl Progress {
    /// For a run of `total`, or until somebody ends it.
    pub fn new(total: Option<Duration>, quiet: bool) -> Self {
        let visible = !quiet && stderr().is_terminal() && total.is_none_or(|total| total > SILENT);
        let bar = visible.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            bar.set_style(ProgressStyle::with_template("{msg}").expect("a valid template"));
            bar
        });
        Self { bar, total }
    }

    /// Redraws the line.
    pub fn update(&self, state: State) {
        if let Some(bar) = self.bar.as_ref().filter(|_| state.elapsed > SILENT) {
            bar.set_message(line(self.total, state));
            bar.tick();
        }
    }

    /// Removes the line before a report is printed.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bar.reset();
        }
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
        line += &format!("  {stacks} stacks");
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
            lost: 0,
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
    }
}
