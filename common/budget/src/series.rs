//! Estimates of a total from one look per stratum of time, with their error.
//!
//! Each stratum's total is estimated as what its window showed times stratum over window. The variance of the sum comes
//! from differences between neighbouring strata (the successive-difference estimator for one unit per stratum: Wolter,
//! Introduction to Variance Estimation, 2nd ed. 2007, ch. 8), which a slow change of the load hardly enlarges.

use profile::units;
use serde_json::{Value, json};

/// Standard errors on either side that an interval of 95 % takes; Student's t for few strata.
const T_95: [f64; 10] = [12.71, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];

/// A window begins just after the tool has run, and shows the machine without it: of what is not all chance in a total, and was not
/// looked at, this share may be due to that. Measured: under a load that switches all the time, offcputime's time on CPUs came out
/// 4 % too long on average, runqlat's waits, whose windows begin some ms later, 2 % too short.
const PRESENCE: f64 = 0.05;

/// What one quantity was in each stratum.
#[derive(Clone, Debug, Default)]
pub struct Series {
    total: f64,
    /// In windows.
    seen: f64,
    variance: f64,
    /// Strata looked at in part, and what of the total is theirs.
    sampled: u32,
    sampled_total: f64,
    /// Rate, length, share not looked at.
    last: Option<(f64, f64, f64)>,
    /// Length of all windows and of all strata, ns.
    open: f64,
    strata: f64,
}

/// Share of a single sampled stratum, or of all strata, up to which what was not seen of it is taken for its error.
const NEARLY_ALL: f64 = 0.1;

/// A total and what is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// In the quantity's unit.
    pub total: f64,
    /// Standard error, same unit, by differences between windows; infinite when it is not known.
    pub error: f64,
    /// Half the width of the 95 % interval, same unit.
    pub margin: f64,
}

impl Series {
    /// `seen` of the quantity in a window of `open_ns`, which stands for `stratum_ns`.
    pub fn push(&mut self, seen: f64, open_ns: u64, stratum_ns: u64) {
        let (open, stratum) = (open_ns.max(1) as f64, stratum_ns.max(open_ns).max(1) as f64);
        let rate = seen / open;
        self.total += rate * stratum;
        self.seen += seen;
        self.open += open;
        self.strata += stratum;
        if stratum_ns <= open_ns {
            return;
        }
        self.sampled_total += rate * stratum;
        let unseen = 1.0 - open / stratum;
        if let Some((last_rate, last_stratum, last_unseen)) = self.last {
            let half = (rate - last_rate).powi(2) / 2.0;
            // Each difference speaks for its later stratum; the first also for the one before.
            self.variance += half * stratum.powi(2) * unseen;
            if self.sampled == 1 {
                self.variance += half * last_stratum.powi(2) * last_unseen;
            }
        }
        self.sampled += 1;
        self.last = Some((rate, stratum, unseen));
    }

    /// The sum over all strata, times `scale`. What that adds is a stretch of time, the last one, in which nobody looked: it may
    /// have had nothing, or twice as much. Windows that saw nothing do not differ, and yet there may have been some: where they
    /// were not all of the time, nobody knows how much.
    pub fn estimate(&self, scale: f64) -> Estimate {
        if self.total == 0.0 && self.sampled > 0 {
            return Estimate::UNKNOWN;
        }
        self.by_differences(scale)
    }

    /// The same of a number of events: how many there may have been is known where none was seen, too.
    pub fn estimate_events(&self, scale: f64) -> Estimate {
        let estimate = self.by_differences(scale);
        let share = self.open / (self.strata * scale).max(1.0);
        Estimate {
            margin: estimate.margin.max(rarity(self.seen, share)),
            ..estimate
        }
    }

    fn by_differences(&self, scale: f64) -> Estimate {
        let error = match self.sampled {
            0 => 0.0,
            1 => self
                .of_single()
                .map_or(f64::INFINITY, |off| off * scale / T_95[0]),
            _ => self.variance.sqrt() * scale,
        };
        let presence = PRESENCE * (1.0 - self.open / self.strata.max(1.0));
        let beyond = (scale - 1.0).abs() * self.total.abs();
        // Half as many independent differences as strata.
        let freedom = (self.sampled / 2) as usize;
        let t = T_95
            .get(freedom)
            .copied()
            .unwrap_or(1.96 + 2.4 / freedom as f64);
        Estimate {
            total: self.total * scale,
            error,
            margin: beyond
                + if error == 0.0 {
                    0.0
                } else {
                    t * error + presence * (self.total * scale).abs()
                },
        }
    }

    /// How far a single sampled stratum may be off where it hardly matters: almost all of it was seen, as of the gap between two
    /// intervals that were looked at throughout, or it is a small part of all. What of it was not seen may have had nothing, or
    /// twice as much; and if its window saw less than the others, as much as they.
    fn of_single(&self) -> Option<f64> {
        let (_, stratum, unseen) = self.last?;
        let part = stratum / self.strata;
        let others = (self.total - self.sampled_total) / (self.strata - stratum).max(1.0);
        let likely = self.sampled_total.abs().max(others.abs() * stratum);
        (unseen.min(part) <= NEARLY_ALL).then_some(unseen * likely)
    }
}

impl Estimate {
    /// Of what was not looked at, or not seen.
    pub(super) const UNKNOWN: Self = Self {
        total: 0.0,
        error: f64::INFINITY,
        margin: f64::INFINITY,
    };

    /// For JSON, which has no infinity: an unknown margin is null.
    pub fn to_json(&self) -> Value {
        let margin = self.margin.is_finite().then_some(self.margin);
        json!({"total": self.total, "margin_95": margin})
    }

    /// The same for people: "±3.4%", half the width of the 95 % interval as a share of the total.
    pub fn describe(&self) -> String {
        match (self.total == 0.0, self.margin.is_finite()) {
            (true, false) => "\u{b1}? (nothing seen)".into(),
            (false, false) => "\u{b1}? (a single look)".into(),
            // There is no share of nothing.
            (true, true) if self.margin > 0.0 => {
                format!("at most {}", units::count(self.margin.ceil() as u64))
            }
            (true, true) => "\u{b1}0.0%".into(),
            (false, true) => {
                format!("\u{b1}{:.1}%", 100.0 * self.margin / self.total.abs())
            }
        }
    }
}

/// How far an estimate may be off, at 95 %, that so many events stand for which were seen in a share of the time, by their number
/// alone: windows that all saw none do not differ, nor do few that saw one each by chance.
fn rarity(seen: f64, share: f64) -> f64 {
    let unsure = if seen > 0.0 { 1.96 * seen.sqrt() } else { 3.0 };
    match (1.0 - share).max(0.0) {
        0.0 => 0.0,
        unseen => unsure * unseen.sqrt() / share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hist::random::{round_fairly, uniform};

    /// Waits of random lengths, one after the other: the share of a window that they cover.
    fn covered(waits: &[(f64, f64)], from: f64, to: f64) -> f64 {
        let inside = |&(a, b): &(f64, f64)| (b.min(to) - a.max(from)).max(0.0);
        waits.iter().map(inside).sum()
    }

    #[test]
    fn the_truth_is_inside_the_interval_about_as_often_as_it_says() {
        let mut random = 42;
        let (mut inside, mut sum_of_ratios) = (0, 0.0);
        const RUNS: u32 = 400;
        for _ in 0..RUNS {
            let (mut waits, mut at) = (Vec::new(), 0.0);
            while at < 10e9 {
                at += 1e5 + 30e6 * uniform(&mut random).powi(4);
                let end = at + 1e5 + 60e6 * uniform(&mut random).powi(3);
                waits.push((at, end.min(10e9)));
                at = end;
            }
            let truth = covered(&waits, 0.0, 10e9);
            let mut series = Series::default();
            for k in 0..100 {
                let start = f64::from(k) * 100e6 + uniform(&mut random) * 96e6;
                series.push(covered(&waits, start, start + 4e6), 4_000_000, 100_000_000);
            }
            let estimate = series.estimate(1.0);
            let chance = estimate.margin - PRESENCE * estimate.total;
            inside += u32::from((estimate.total - truth).abs() <= chance);
            sum_of_ratios += estimate.total / truth;
        }
        let share = f64::from(inside) / f64::from(RUNS);
        assert!((0.91..=0.995).contains(&share), "{share}");
        let mean = sum_of_ratios / f64::from(RUNS);
        assert!((mean - 1.0).abs() < 0.01, "biased: {mean}");
    }

    #[test]
    fn what_was_looked_at_throughout_is_exact() {
        let mut series = Series::default();
        series.push(300.0, 1_000, 1_000);
        series.push(500.0, 1_000, 1_000);
        let all = series.estimate(1.0);
        assert_eq!((all.total, all.error, all.margin), (800.0, 0.0, 0.0));
    }

    #[test]
    fn a_wait_that_lasts_all_the_time_is_exact_however_little_was_looked() {
        let mut series = Series::default();
        for _ in 0..20 {
            series.push(2e6, 2_000_000, 100_000_000);
        }
        let all = series.estimate(1.0);
        assert!((all.total - 2e9).abs() < 1.0 && all.margin < 1.0, "{all:?}");
    }

    #[test]
    fn a_stretch_that_nobody_looked_at_is_not_sure() {
        let mut series = Series::default();
        for _ in 0..20 {
            series.push(4.0, 2_000_000, 100_000_000);
        }
        // Twenty strata, and half of one behind them in which nothing happened any more.
        let all = series.estimate(20.5 / 20.0);
        let truth = 20.0 * 4.0 * 50.0;
        assert!((all.total - truth).abs() <= all.margin + 1e-6, "{all:?}");
    }

    #[test]
    fn a_single_window_has_no_known_error() {
        let mut series = Series::default();
        series.push(1.0, 10, 100);
        assert!(series.estimate(1.0).margin.is_infinite());
        assert!(series.estimate_events(1.0).margin.is_infinite());
    }

    #[test]
    fn a_single_window_beside_much_that_was_looked_at_is_not_all_that_is_unsure() {
        let traced = |last_seen: f64| {
            let mut series = Series::default();
            for _ in 0..10 {
                series.push(1_000.0, 1_000, 1_000);
            }
            series.push(last_seen, 10, 1_000);
            series.estimate(1.0)
        };
        let alike = traced(10.0);
        assert_eq!(alike.total, 11_000.0);
        // What was not seen of the last stratum: 990.
        assert!((990.0..1_700.0).contains(&alike.margin), "{alike:?}");
        let (much, nothing) = (traced(40.0), traced(0.0));
        assert!(much.margin > 3.9 * 990.0, "{much:?}");
        let truth = 10_990.0;
        assert!(
            (nothing.total - truth).abs() <= nothing.margin,
            "{nothing:?}"
        );
        let mut half = Series::default();
        half.push(1_000.0, 1_000, 1_000);
        half.push(10.0, 10, 1_000);
        assert!(half.estimate(1.0).margin.is_infinite());
    }

    #[test]
    fn what_was_not_seen_may_have_been_there() {
        let mut series = Series::default();
        for _ in 0..20 {
            series.push(0.0, 2_000_000, 100_000_000);
        }
        let time = series.estimate(1.0);
        assert_eq!(
            (time.total, time.to_json()["margin_95"].clone()),
            (0.0, Value::Null)
        );
        assert_eq!(time.describe(), "\u{b1}? (nothing seen)");
        let events = series.estimate_events(1.0);
        assert_eq!(events.total, 0.0);
        // Of 150 the windows would have seen 3, and none one time in twenty.
        assert!((145.0..155.0).contains(&events.margin), "{events:?}");
        assert_eq!(events.describe(), "at most 149");
    }

    #[test]
    fn the_number_of_rare_events_is_as_sure_as_it_says() {
        let mut random = 42;
        for expected in [0.3, 1.0, 2.0, 10.0] {
            let mut inside = 0;
            const RUNS: u32 = 400;
            for _ in 0..RUNS {
                let (mut truth, mut series) = (0.0, Series::default());
                for _ in 0..20 {
                    // As many as to expect `expected` in a thirtieth of all 20 strata; a window of theirs is a thirtieth long.
                    let here = round_fairly(30.0 * expected / 20.0, &mut random);
                    let seen = (0..here)
                        .filter(|_| uniform(&mut random) < 1.0 / 30.0)
                        .count();
                    truth += here as f64;
                    series.push(seen as f64, 10, 300);
                }
                let estimate = series.estimate_events(1.0);
                inside += u32::from((estimate.total - truth).abs() <= estimate.margin);
            }
            let share = f64::from(inside) / f64::from(RUNS);
            assert!(share >= 0.9, "{expected} expected: {share}");
        }
    }

    #[test]
    fn what_was_looked_at_throughout_and_not_there_was_not_there() {
        let mut series = Series::default();
        series.push(0.0, 1_000, 1_000);
        for none in [series.estimate(1.0), series.estimate_events(1.0)] {
            assert_eq!((none.total, none.margin), (0.0, 0.0));
            assert_eq!(none.describe(), "\u{b1}0.0%");
        }
    }
}
