//! Log-linear histograms: 16 equal buckets in every power of two, as in HdrHistogram.
//!
//! `bpf/include/histogram.bpf.h` computes the same buckets. A bucket's middle is at most 3.2 % away from any value in
//! it; count, sum and maximum are kept exactly beside the buckets.

pub mod harvest;
pub mod hdr;
pub mod random;
pub mod text;

use serde_json::{Value, json};

use crate::random::round_fairly;

/// Buckets per power of two, as a power of two.
const SUB_BITS: u32 = 4;
/// Values of this many bits or more share the last bucket: 2^48 ns are three days.
const MAX_BITS: u32 = 48;
/// Number of buckets.
pub const BUCKETS: usize = ((MAX_BITS - SUB_BITS + 1) << SUB_BITS) as usize;

/// The bucket of a value, below [`BUCKETS`].
pub fn bucket(value: u64) -> usize {
    let value = value.min((1 << MAX_BITS) - 1);
    let shift = (63 - (value | 1).leading_zeros()).saturating_sub(SUB_BITS);
    usize::try_from((u64::from(shift) << SUB_BITS) + (value >> shift)).expect("below BUCKETS")
}

/// The smallest value of a bucket.
pub fn lower(bucket: usize) -> u64 {
    let (shift, rest) = (bucket >> SUB_BITS, bucket & ((1 << SUB_BITS) - 1));
    match shift {
        0 => rest as u64,
        shift => ((1 << SUB_BITS) + rest as u64) << (shift - 1),
    }
}

/// The largest value of a bucket.
pub fn upper(bucket: usize) -> u64 {
    lower(bucket + 1) - 1
}

/// Counts of values, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Counts by bucket; shorter than [`BUCKETS`] when the rest is 0.
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// Counts a single value.
    pub fn record(&mut self, value: u64) {
        self.add(bucket(value), 1);
        self.add_exact(1, value, value);
    }

    /// Adds `n` values to a bucket; [`Self::add_exact`] has to be told of them too.
    pub fn add(&mut self, bucket: usize, n: u64) {
        if n == 0 || bucket >= BUCKETS {
            return;
        }
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += n;
    }

    /// Adds what is known exactly about `count` values.
    pub fn add_exact(&mut self, count: u64, sum: u64, max: u64) {
        self.count += count;
        self.sum += sum;
        self.max = self.max.max(max);
    }

    /// Adds another histogram: buckets add up, percentiles are never averaged.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, n) in other.buckets() {
            self.add(bucket, n);
        }
        self.add_exact(other.count, other.sum, other.max);
    }

    /// Adds another histogram, each of whose values stands for `weight`; `random` decides what becomes of fractions. The
    /// count is that of the buckets.
    pub fn add_weighted(&mut self, other: &Self, weight: f64, random: &mut u64) {
        let mut count = 0;
        for (bucket, n) in other.buckets() {
            let n = round_fairly(n as f64 * weight, random);
            self.add(bucket, n);
            count += n;
        }
        let sum = (other.sum as f64 * weight).round() as u64;
        self.add_exact(count, sum, other.max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values, ns, exact.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest value, ns, exact.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean of the values, ns.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    /// Non-empty buckets with their counts, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, n)| *n > 0)
    }

    /// The value at a percentile (0 to 100), ns, within 3.2 %; 0 when there are no values.
    pub fn percentile(&self, percent: f64) -> u64 {
        let total: u64 = self.counts.iter().sum();
        let rank = ((percent / 100.0 * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (bucket, n) in self.buckets() {
            seen += n;
            if seen >= rank {
                return middle(bucket).min(self.max);
            }
        }
        0
    }

    /// The documented JSON form: exact sums, percentiles, `[lower_ns, upper_ns, count]` per non-empty bucket.
    pub fn to_json(&self) -> Value {
        let buckets: Vec<Value> = self
            .buckets()
            .map(|(bucket, n)| json!([lower(bucket), upper(bucket), n]))
            .collect();
        json!({
            "count": self.count,
            "sum_ns": self.sum,
            "avg_ns": self.mean(),
            "p50_ns": self.percentile(50.0),
            "p90_ns": self.percentile(90.0),
            "p99_ns": self.percentile(99.0),
            "p999_ns": self.percentile(99.9),
            "max_ns": self.max,
            "buckets": buckets,
        })
    }
}

fn middle(bucket: usize) -> u64 {
    lower(bucket).midpoint(upper(bucket))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;
    use std::process::Command;

    use super::*;

    fn random() -> impl FnMut() -> u64 {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> (state % 60)
        }
    }

    fn interesting() -> Vec<u64> {
        let edges = (0..64).flat_map(|bit| {
            let power = 1_u64 << bit;
            [power - 1, power, power + 1]
        });
        let mut next = random();
        edges
            .chain((0..100_000).map(|_| next()))
            .chain([u64::MAX])
            .collect()
    }

    #[test]
    fn buckets_tile_the_range() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(lower(index)), index);
            assert_eq!(bucket(upper(index)), index);
            assert_eq!(upper(index) + 1, lower(index + 1));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_bpf_side_computes_the_same_buckets() {
        let dir = tempfile::tempdir().unwrap();
        let header = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../bpf/include/histogram.bpf.h"
        );
        let values = interesting();
        let mut program = String::from(
            "#include <stdio.h>\ntypedef unsigned int __u32; typedef unsigned long long __u64;\n\
             #undef __always_inline\n#define __always_inline inline\n",
        );
        writeln!(program, "#include \"{header}\"").unwrap();
        program += "int main(void) { __u64 v; printf(\"%d\\n\", HIST_BUCKETS);\n\
                    while (scanf(\"%llu\", &v) == 1) printf(\"%u\\n\", hist_bucket(v)); }\n";
        let (source, binary, input) = (
            dir.path().join("t.c"),
            dir.path().join("t"),
            dir.path().join("in"),
        );
        fs::write(&source, program).unwrap();
        fs::write(
            &input,
            values
                .iter()
                .map(|value| format!("{value}\n"))
                .collect::<String>(),
        )
        .unwrap();
        let compiled = Command::new("cc")
            .arg("-o")
            .arg(&binary)
            .arg(&source)
            .status()
            .unwrap();
        assert!(compiled.success());
        let output = Command::new(&binary)
            .stdin(fs::File::open(&input).unwrap())
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let mut lines = output.lines().map(|line| line.parse::<usize>().unwrap());
        assert_eq!(lines.next(), Some(BUCKETS));
        let expected: Vec<usize> = values.iter().map(|value| bucket(*value)).collect();
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn percentiles_are_within_3_2_percent_of_the_truth() {
        let mut next = random();
        for cut in [1_000, 1_000_000, u64::MAX] {
            let mut values: Vec<u64> = (0..10_000).map(|_| next() % cut % (1 << 47)).collect();
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            for percent in [1.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
                let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
                let truth = values[rank.max(1) - 1] as f64;
                let found = histogram.percentile(percent) as f64;
                assert!(
                    (found - truth).abs() <= 0.032 * truth,
                    "p{percent}: {found} for {truth}"
                );
            }
            assert_eq!(histogram.max(), *values.last().unwrap());
            assert_eq!(histogram.sum(), values.iter().sum::<u64>());
        }
    }
}
