//! Ticks and end of a run.

use std::time::Duration;

use clap::Args;
use host::clock::nanoseconds;

/// Longest duration accepted: a year; anything beyond is a slip of the hand.
const MAX_SECONDS: f64 = 366.0 * 86_400.0;

/// `[DURATION]` of the tools that report once.
#[derive(Args, Clone, Copy, Debug)]
pub struct For {
    /// Duration in seconds, or as 200us, 500ms, 30s, 2m, 1h; until Ctrl-C if not given
    #[arg(value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
}

/// `[INTERVAL [COUNT]]` of the tools that report repeatedly.
#[derive(Args, Clone, Copy, Debug)]
pub struct Every {
    /// Time between reports: seconds, or 200us, 500ms, 30s, 2m, 1h; without it one report, at Ctrl-C
    #[arg(value_name = "INTERVAL", value_parser = parse_duration)]
    pub interval: Option<Duration>,

    /// Number of reports; until Ctrl-C if not given
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// A run's ticks and its end; by default it reports once, when it is told to end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schedule {
    /// Time between reports.
    pub interval: Option<Duration>,
    /// Number of reports.
    pub count: Option<u64>,
    /// Length of the run, whatever the interval under way.
    pub duration: Option<Duration>,
}

impl Schedule {
    /// Length of the first interval, if that is known to be the last one, too.
    pub fn only(&self) -> Option<Duration> {
        let interval = self.interval.filter(|_| self.count == Some(1));
        let duration = self.duration.filter(|duration| {
            let has_room = |interval| *duration <= interval;
            self.interval.is_none_or(has_room)
        });
        interval.into_iter().chain(duration).min()
    }

    /// Words for what is traced, how often, and until when. `others`: with whose end it ends, such as `until the command ends`.
    pub(crate) fn describe(&self, what: String, others: Option<String>) -> String {
        let seconds = |time: Duration| format!("{} s", time.as_secs_f64());
        let length = self
            .duration
            .or(self.interval.filter(|_| self.count == Some(1)));
        let often = match (length, self.interval, self.count) {
            (Some(length), ..) => format!("for {}", seconds(length)),
            (None, Some(interval), Some(count)) => {
                format!("every {}, {count} times", seconds(interval))
            }
            (None, Some(interval), None) => format!("every {}", seconds(interval)),
            (None, None, _) => String::new(),
        };
        let has_end = length.is_some() || self.interval.is_some() && self.count.is_some();
        let until = match (has_end, others) {
            (true, _) => String::new(),
            (false, Some(end)) => end,
            (false, None) => "until Ctrl-C".into(),
        };
        let words = ["tracing".into(), what, often, until];
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(" ") + if has_end { "; Ctrl-C ends early" } else { "" }
    }
}

impl From<For> for Schedule {
    fn from(window: For) -> Self {
        Self {
            duration: window.duration,
            ..Self::default()
        }
    }
}

impl From<Every> for Schedule {
    fn from(every: Every) -> Self {
        Self {
            interval: every.interval,
            count: every.count,
            duration: None,
        }
    }
}

/// Reads `30`, `0.5`, `500ms`, `30s`, `2m`, `1h`, `100us`.
///
/// # Errors
///
/// Text for the user when it is none of these, zero, negative or absurdly long.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit '{unit}'; use us, ms, s, m or h")),
    };
    let seconds = match digits.parse::<f64>() {
        Ok(number) => number * factor,
        Err(_) => return Err("not a time; write 30, 0.5, 500ms, 30s or 2m".into()),
    };
    if !(1e-9..=MAX_SECONDS).contains(&seconds) {
        return Err("must be more than 0 and at most a year".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Deadlines at multiples of an interval from the start: lateness does not add up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticker {
    interval_ns: u64,
    next_ns: u64,
}

impl Ticker {
    /// The first deadline is one interval after `start_ns`.
    pub(crate) fn new(start_ns: u64, interval: Duration) -> Self {
        let interval_ns = nanoseconds(interval).max(1);
        Self {
            interval_ns,
            next_ns: start_ns + interval_ns,
        }
    }

    /// The deadline being waited for, ns.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Goes on to the first deadline after `now_ns`; returns how many were missed on the way.
    pub(crate) fn advance(&mut self, now_ns: u64) -> u64 {
        let missed = now_ns.saturating_sub(self.next_ns) / self.interval_ns;
        self.next_ns += (missed + 1) * self.interval_ns;
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_said_with_how_often_it_reports() {
        let seconds = |number| Some(Duration::from_millis(number));
        for (duration, interval, count, others, said) in [
            (None, None, None, None, "tracing calls until Ctrl-C"),
            (
                None,
                None,
                None,
                Some("until the command ends"),
                "tracing calls until the command ends",
            ),
            (
                seconds(500),
                None,
                None,
                Some("until the command ends"),
                "tracing calls for 0.5 s; Ctrl-C ends early",
            ),
            (
                None,
                seconds(2000),
                Some(1),
                None,
                "tracing calls for 2 s; Ctrl-C ends early",
            ),
            (
                None,
                seconds(1000),
                Some(3),
                None,
                "tracing calls every 1 s, 3 times; Ctrl-C ends early",
            ),
            (
                None,
                seconds(1000),
                None,
                None,
                "tracing calls every 1 s until Ctrl-C",
            ),
        ] {
            let schedule = Schedule {
                interval,
                count,
                duration,
            };
            let others = others.map(str::to_owned);
            assert_eq!(schedule.describe("calls".into(), others), said);
        }
        let nothing = Schedule::default().describe(String::new(), None);
        assert_eq!(nothing, "tracing until Ctrl-C");
    }

    #[test]
    fn first_interval_is_the_only_one_where_a_count_or_the_end_says_so() {
        let [one, two] = [1, 2].map(|seconds| Some(Duration::from_secs(seconds)));
        let only = |interval, count, duration| {
            Schedule {
                interval,
                count,
                duration,
            }
            .only()
        };
        assert_eq!(only(two, Some(1), None), two);
        assert_eq!(only(two, Some(2), None), None);
        assert_eq!(only(two, None, None), None);
        assert_eq!(only(None, Some(1), None), None);
        assert_eq!(only(None, None, two), two);
        assert_eq!(only(two, None, one), one);
        assert_eq!(only(one, None, two), None);
    }

    #[test]
    fn durations_are_seconds_unless_they_say_otherwise() {
        let ms = |text: &str| parse_duration(text).map(|duration| duration.as_micros());
        assert_eq!(ms("30"), Ok(30_000_000));
        assert_eq!(ms("0.5"), Ok(500_000));
        assert_eq!(ms("500ms"), Ok(500_000));
        assert_eq!(ms("2m"), Ok(120_000_000));
        assert_eq!(ms("100us"), Ok(100));
        for bad in [
            "", "0", "-1", "nan", "inf", "1d", "ms", "1e300", "1 s", "0x10",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ticks_do_not_drift_and_missed_ones_are_counted() {
        let mut ticker = Ticker::new(1_000, Duration::from_nanos(100));
        assert_eq!(ticker.next_ns(), 1_100);
        assert_eq!(ticker.advance(1_130), 0);
        assert_eq!(ticker.next_ns(), 1_200, "late by 30, next deadline unmoved");
        assert_eq!(ticker.advance(1_450), 2);
        assert_eq!(ticker.next_ns(), 1_500);
    }
}
