//! What a tool says there was, and what there was: how right it is.

use std::sync::LazyLock;
use std::time::Instant;

use anyhow::Result;

use crate::running::Load;

/// Where wall time is counted from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The load's name.
const LOAD: &str = "sched-pipe";

/// What a tool's answer adds up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It is not held to anything.
    None,
    /// Time off CPU of the load's threads; the truth is wall time less their time on CPU, by schedstat.
    Microseconds,
    /// Waits of the load's threads for a CPU; the truth is how often they got one, by schedstat.
    Waits,
    /// Requests completed by all disks, by diskstats.
    Requests,
    /// Waits of the load's threads for their mutex, by their voluntary switches.
    Contentions,
    /// Samples of the load's threads; the truth is 99 for each second that they had a CPU for.
    Samples,
}

impl Answer {
    /// The kernel's own count of it so far, from any start: two looks make a difference.
    pub(crate) fn truth(self, load: &dyn Load) -> Result<f64> {
        Ok(match self {
            Self::None => 0.0,
            Self::Microseconds => {
                let wall = START.elapsed().as_secs_f64() * 1e6;
                load.threads().len() as f64 * wall - load.on_cpu_us()?
            }
            Self::Waits => load.runs_begun()? as f64,
            Self::Requests => load.events_around()? as f64,
            Self::Contentions => load.events()? as f64,
            Self::Samples => load.on_cpu_us()? * 99e-6,
        })
    }

    /// The same from what the tool printed.
    pub(crate) fn reported(self, output: &str) -> Option<f64> {
        let lines = output.lines();
        let numbers: Vec<f64> = match self {
            Self::None => return None,
            Self::Waits | Self::Requests => lines.filter_map(bar).collect(),
            Self::Microseconds => lines.filter_map(weight).collect(),
            Self::Contentions => lines.filter_map(contentions).collect(),
            Self::Samples => lines
                .filter(|line| line.contains(LOAD))
                .filter_map(weight)
                .collect(),
        };
        (!numbers.is_empty()).then(|| numbers.iter().sum())
    }
}

/// The count in a histogram's row: `4 -> 7 : 15 |***|`, `[4, 8)  15 |@@@|`.
fn bar(line: &str) -> Option<f64> {
    let (row, _) = line.split_once('|')?;
    let (range, count) = row.trim_end().rsplit_once([' ', ':'])?;
    range
        .contains(['>', ')', ']'])
        .then(|| count.parse().ok())?
}

/// The value of a stack: a folded line's last word, a line of nothing else, or what follows bpftrace's key.
fn weight(line: &str) -> Option<f64> {
    let line = line.trim();
    let value = match line.rsplit_once("]: ") {
        Some((_, value)) => value,
        None if line.contains(';') => line.rsplit_once(' ')?.1,
        None => line,
    };
    value.parse().ok()
}

/// `1.87 s  507,376  3.69 us … mutex  program.bss: lock`; of bpftrace, `@waits: 5`.
fn contentions(line: &str) -> Option<f64> {
    if let Some(count) = line.strip_prefix("@waits: ") {
        return count.parse().ok();
    }
    let mut words = line.split_whitespace();
    words.by_ref().nth(1)?;
    let count = words.next()?.replace(',', "");
    words
        .any(|word| word == "mutex")
        .then(|| count.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn every_makers_histogram_is_added_up() {
        let text = "     usecs     : count    distribution\n         0 -> 1          : 5        |***   |\n\
                    \x20        2 -> 3          : 12       |***** |\n@usecs:\n[0]          7 |@@   |\n\
                    [4K, 8K)                1 |@@    |\n     count 17  avg 1.2  p50 1\n";
        assert_eq!(Answer::Waits.reported(text), Some(25.0));
    }

    #[test]
    fn every_makers_stacks_are_added_up() {
        let text = "sched-pipe;main;read 40\n    __schedule+5\n    -                sched-pipe (12)\n        30\n\n\
                    @usecs[\n    read+4\n, sched-pipe]: 2\nAttaching 3 probes...\n";
        assert_eq!(Answer::Microseconds.reported(text), Some(72.0));
        assert_eq!(Answer::Microseconds.reported("nothing"), None);
    }

    #[test]
    fn every_makers_waits_for_locks_are_added_up() {
        let ours = "   TOTAL     WAITS      AVG      P50      P99      MAX  CLASS     LOCK\n\
                    \x20 1.87 s   507,376  3.69 us  3.13 us  8.45 us  50.0 ms  mutex     contended.bss: lock\n\
                    \x20         in contend; 1 still waiting; queued for a CPU 45%\n\
                    \x20 1.87 s   507,376  contended 29787              waiting for a CPU\n";
        assert_eq!(Answer::Contentions.reported(ours), Some(507_376.0));
        let theirs = "Attaching 2 probes...\n\n@waits: 5\n";
        assert_eq!(Answer::Contentions.reported(theirs), Some(5.0));
    }
}
