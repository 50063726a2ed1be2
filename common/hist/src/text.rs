//! Histograms as bcc prints them, with a line of percentiles.

use std::io::{self, Write};

use profile::text::WIDTH;
use profile::units::{count, three_digits};

use crate::{Histogram, middle};

/// Width of the longest bar.
const STARS: u64 = 40;
/// Of the closing line.
const INDENT: usize = 5;
/// Nanoseconds in units of the closing line, and their symbols.
const SCALES: [(u64, &str); 5] = [
    (1, "ns"),
    (1_000, "us"),
    (1_000_000, "ms"),
    (1_000_000_000, "s"),
    (3_600_000_000_000, "h"),
];

/// Unit of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// `nsecs`
    Nanoseconds,
    /// `usecs`
    #[default]
    Microseconds,
    /// `msecs`
    Milliseconds,
}

impl Unit {
    /// Nanoseconds in one.
    pub fn ns(self) -> u64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
        }
    }

    /// bcc's word for it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nsecs",
            Self::Microseconds => "usecs",
            Self::Milliseconds => "msecs",
        }
    }
}

/// Writes the rows (powers of two, from 0 to the last that is not empty) and the closing line.
///
/// A bucket belongs to the row that holds its middle, so every value is in exactly one row.
///
/// # Errors
///
/// Those of `out`.
pub fn write(histogram: &Histogram, unit: Unit, out: &mut impl Write) -> io::Result<()> {
    if histogram.count() == 0 {
        return writeln!(out, "     nothing recorded");
    }
    let rows = rows(histogram, unit);
    let widest = rows.iter().copied().max().unwrap_or(0).max(1);
    writeln!(out, "     {:<19} : count     distribution", unit.label())?;
    for (row, &n) in rows.iter().enumerate() {
        let (low, high) = match row {
            0 => (0, 1),
            row => (1_u64 << row, (1_u64 << (row + 1)) - 1),
        };
        let stars = "*".repeat(usize::try_from(n * STARS / widest).unwrap_or(0));
        writeln!(out, "{low:>10} -> {high:<10} : {n:<8} |{stars:<40}|")?;
    }
    writeln!(out, "{:INDENT$}{}", "", summary(histogram, unit))
}

fn rows(histogram: &Histogram, unit: Unit) -> Vec<u64> {
    let mut rows = Vec::new();
    for (bucket, n) in histogram.buckets() {
        let value = middle(bucket) / unit.ns();
        // 0 and 1 share the first row.
        let row = usize::try_from((value | 1).ilog2()).expect("below 64");
        if row >= rows.len() {
            rows.resize(row + 1, 0);
        }
        rows[row] += n;
    }
    rows
}

/// `count`, and in the unit, or the next one in which they fit a line, `avg p50 p90 p99 p99.9 max`.
fn summary(histogram: &Histogram, unit: Unit) -> String {
    let mut line = String::new();
    let scales = SCALES.iter().filter(|(ns, _)| *ns >= unit.ns());
    // Millions of values leave no room for wide gaps.
    for (&(ns, symbol), gap) in scales.flat_map(|scale| [(scale, "  "), (scale, " ")]) {
        let is_other = ns != unit.ns();
        let value = |value: u64| match value as f64 / ns as f64 {
            value if value < 0.9995 && is_other => format!("{value:.3}"),
            value if value < 999.5 => three_digits(value),
            value => count(value.round() as u64),
        };
        let percentile = |at: f64| format!("p{at} {}", value(histogram.percentile(at)));
        let parts = [
            format!("count {}", count(histogram.count())),
            format!("{symbol}: avg {}", value(histogram.mean())),
            percentile(50.0),
            percentile(90.0),
            percentile(99.0),
            percentile(99.9),
            format!("max {}", value(histogram.max())),
        ];
        line = parts.join(gap);
        if line.len() <= WIDTH - INDENT {
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_like_bcc_and_ends_with_percentiles() {
        let mut histogram = Histogram::default();
        for _ in 0..20 {
            histogram.record(3_000);
        }
        for _ in 0..10 {
            histogram.record(9_500);
        }
        let mut out = Vec::new();
        write(&histogram, Unit::Microseconds, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "     usecs               : count     distribution\n\
         \u{20}        0 -> 1          : 0        |                                        |\n\
         \u{20}        2 -> 3          : 20       |****************************************|\n\
         \u{20}        4 -> 7          : 0        |                                        |\n\
         \u{20}        8 -> 15         : 10       |********************                    |\n\
         \u{20}    count 30  us: avg 5.17  p50 3.01  p90 9.47  p99 9.47  p99.9 9.47  max 9.50\n";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn rows_keep_every_value() {
        let mut histogram = Histogram::default();
        for exponent in 0..40 {
            histogram.record(1 << exponent);
            histogram.record((1 << exponent) + 1);
        }
        for unit in [Unit::Nanoseconds, Unit::Microseconds, Unit::Milliseconds] {
            assert_eq!(rows(&histogram, unit).iter().sum::<u64>(), 80);
        }
    }

    #[test]
    fn the_closing_line_fits_in_whatever_unit_that_takes() {
        let of = |ns: [u64; 3]| {
            let mut histogram = Histogram::default();
            ns.into_iter().for_each(|ns| histogram.record(ns));
            histogram
        };
        let line = |ns, unit| summary(&of(ns), unit);
        let us = "count 3 us: avg 3,166 p50 13.1 p90 9,471 p99 9,471 p99.9 9,471 max 9,471";
        let near = [13_000, 13_000, 9_471_000];
        assert_eq!(line(near, Unit::Microseconds), us);
        assert_eq!(line(near, Unit::Nanoseconds), us);
        let ms = "count 3  ms: avg 37.4  p50 0.013  p90 111  p99 111  p99.9 111  max 112";
        let far = [13_000, 13_000, 112_219_000];
        assert_eq!(line(far, Unit::Microseconds), ms);
        let mut many = of(far);
        many.add_exact(12_345_678, 0, 0);
        many.add(1, 12_345_678);
        let ms = "count 12,345,681 ms: avg 0.00 p50 0.00 p90 0.00 p99 0.00 p99.9 0.00 max 112";
        assert_eq!(summary(&many, Unit::Milliseconds), ms);
    }

    #[test]
    fn an_empty_histogram_says_so() {
        let mut out = Vec::new();
        write(&Histogram::default(), Unit::Microseconds, &mut out).unwrap();
        assert_eq!(out, b"     nothing recorded\n");
    }
}
