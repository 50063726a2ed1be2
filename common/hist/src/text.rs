//! Histograms as bcc prints them, with a line of percentiles.

use std::io::{self, Write};

use profile::text::WIDTH;
use profile::units::{count, three_digits};

use crate::{Histogram, middle};

/// Width of the longest bar.
const STARS: u64 = 40;
/// Parts of the closing line.
const INDENT: usize = 5;

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
    let line = summary(histogram, unit);
    let indent = INDENT.min(WIDTH.saturating_sub(line.len()));
    writeln!(out, "{:indent$}{line}", "")
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

/// Units of the closing line, ns; the last makes it fit whatever was measured.
const UNITS: [(u64, &str); 5] = [
    (1, "ns"),
    (1_000, "us"),
    (1_000_000, "ms"),
    (1_000_000_000, "s"),
    (3_600_000_000_000, "h"),
];

/// `count`, and in the unit `avg p50 p90 p99 p99.9 max`, percentiles with the digits they have. A line that is too wide has narrow
/// gaps, or no separators either, or a larger unit.
fn summary(histogram: &Histogram, unit: Unit) -> String {
    let mut line = String::new();
    for scale in UNITS.iter().filter(|(ns, _)| *ns >= unit.ns()) {
        line = line_in(histogram, *scale);
        if line.len() <= WIDTH {
            break;
        }
    }
    line
}

fn line_in(histogram: &Histogram, scale: (u64, &str)) -> String {
    let fits = |line: &String| line.len() <= WIDTH - INDENT;
    let separated = figures(histogram, scale, count);
    let mut lines = [separated.join("  "), separated.join(" ")].into_iter();
    let bare = || figures(histogram, scale, |n| n.to_string()).join(" ");
    lines.find(fits).unwrap_or_else(bare)
}

fn figures(
    histogram: &Histogram,
    (ns_in_one, symbol): (u64, &str),
    count: fn(u64) -> String,
) -> [String; 6] {
    let value = |ns: u64| match ns as f64 / ns_in_one as f64 {
        value if value < 999.5 => three_digits(value),
        value => count(value.round() as u64),
    };
    let percentile = |at: f64| format!("p{at} {}", value(histogram.percentile(at)));
    let (n, mean) = (count(histogram.count()), value(histogram.mean()));
    [
        format!("count {n}  {symbol}: avg {mean}"),
        percentile(50.0),
        percentile(90.0),
        percentile(99.0),
        percentile(99.9),
        format!("max {}", value(histogram.max())),
    ]
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
    fn a_closing_line_that_is_too_wide_stays_one() {
        let mut histogram = Histogram::default();
        histogram.add_exact(1_110_576, 17_900_000_000, 1_011_234_000);
        histogram.add(200, 1_110_576);
        let bare = "count 1110576  us: avg 16.1 p50 50.2 p90 50.2 p99 50.2 p99.9 50.2 max 1011234";
        assert_eq!(summary(&histogram, Unit::Microseconds), bare);
        let mut out = Vec::new();
        write(&histogram, Unit::Microseconds, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().last(), Some(&*format!("   {bare}")));
        let mut fewer = Histogram::default();
        fewer.add_exact(1_576, 17_900_000_000, 1_011_234_000);
        fewer.add(200, 1_576);
        let one = "count 1,576  ms: avg 11.4 p50 0.05 p90 0.05 p99 0.05 p99.9 0.05 max 1,011";
        assert_eq!(summary(&fewer, Unit::Milliseconds), one);
        let mut long = Histogram::default();
        (0..2_000_000).for_each(|_| long.record(30_000_000_000));
        let line = summary(&long, Unit::Microseconds);
        assert!(
            line.starts_with("count 2000000  ms: avg 30000 p50 "),
            "{line}"
        );
        assert!(line.len() <= WIDTH, "{line}");
        let mut longest = Histogram::default();
        (0..20_000).for_each(|_| longest.record(123_456_000_000_000));
        let line = summary(&longest, Unit::Nanoseconds);
        assert!(line.len() <= WIDTH && line.ends_with(" max 34.3"), "{line}");
    }

    #[test]
    fn an_empty_histogram_says_so() {
        let mut out = Vec::new();
        write(&Histogram::default(), Unit::Microseconds, &mut out).unwrap();
        assert_eq!(out, b"     nothing recorded\n");
    }
}
