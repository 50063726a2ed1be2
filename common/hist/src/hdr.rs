//! `--hdr FILE`: an HdrHistogram interval log, which the standard tools read.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use crate::{Histogram, middle};

/// Three significant digits: finer than our own buckets, so that they survive.
const DIGITS: u8 = 3;

/// An interval log being written: header first, then a line per interval and group.
pub struct HdrLog {
    path: PathBuf,
    file: BufWriter<File>,
    serializer: V2DeflateSerializer,
    started: SystemTime,
    is_begun: bool,
    has_header: bool,
}

impl HdrLog {
    /// Opens the file, which stays as it is until [`Self::begin`]. Values in it are ns.
    ///
    /// # Errors
    ///
    /// When it cannot be written to.
    pub fn create(path: &Path, started: SystemTime) -> Result<Self> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("write {}", path.display()))?;
        Ok(Self {
            path: path.into(),
            file: BufWriter::new(file),
            serializer: V2DeflateSerializer::new(),
            started,
            is_begun: false,
            has_header: false,
        })
    }

    /// There are results: what an earlier run has left is gone.
    ///
    /// # Errors
    ///
    /// When the file cannot be emptied.
    pub fn begin(&mut self) -> Result<()> {
        let file = self.file.get_ref();
        // A pipe has nothing to lose.
        if !self.is_begun && file.metadata().is_ok_and(|about| about.is_file()) {
            let emptied = file.set_len(0);
            emptied.with_context(|| format!("write {}", self.path.display()))?;
        }
        self.is_begun = true;
        Ok(())
    }

    /// Adds an interval that began `offset` after the start. `tag` names the group, if there are several.
    ///
    /// # Errors
    ///
    /// When writing fails.
    pub fn write(
        &mut self,
        offset: Duration,
        length: Duration,
        tag: Option<&str>,
        histogram: &Histogram,
    ) -> Result<()> {
        self.begin()?;
        let values = convert(histogram)?;
        let mut builder = IntervalLogWriterBuilder::new();
        if !self.has_header {
            builder
                .add_comment("values are nanoseconds")
                .with_start_time(self.started);
        }
        let mut log = builder
            .with_max_value_divisor(1.0)
            .begin_log_with(&mut self.file, &mut self.serializer)
            .with_context(|| format!("write {}", self.path.display()))?;
        self.has_header = true;
        // Commas end a tag, blanks a field.
        let tag: Option<String> = tag.map(|tag| {
            tag.replace(
                |c: char| c == ',' || c.is_whitespace() || c.is_control(),
                "_",
            )
        });
        let tag = tag.as_deref().and_then(Tag::new);
        log.write_histogram(&values, offset, length, tag)
            .map_err(|err| match err {
                IntervalLogWriterError::IoError(error) => anyhow!(error),
                other => anyhow!("{other:?}"),
            })
            .and_then(|()| Ok(std::io::Write::flush(&mut self.file)?))
            .with_context(|| format!("write {}", self.path.display()))
    }
}

fn convert(histogram: &Histogram) -> Result<hdrhistogram::Histogram<u64>> {
    let mut values = hdrhistogram::Histogram::new(DIGITS).context("make HDR histogram")?;
    values.auto(true);
    let mut left = histogram.buckets().map(|(_, n)| n).sum::<u64>();
    for (bucket, n) in histogram.buckets() {
        left -= n;
        // The largest value is known exactly.
        let exact = u64::from(left == 0);
        values
            .record_n(middle(bucket).min(histogram.max()), n - exact)
            .context("fill HDR histogram")?;
        values
            .record_n(histogram.max(), exact)
            .context("fill HDR histogram")?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    #[test]
    fn the_standard_reader_reads_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("waits.hlog");
        let mut histogram = Histogram::default();
        for value in 1..=1000 {
            histogram.record(value * 1_000);
        }
        let mut log = HdrLog::create(&path, SystemTime::now()).unwrap();
        let second = Duration::from_secs(1);
        log.write(Duration::ZERO, second, Some("a, b"), &histogram)
            .unwrap();
        log.write(second, second, None, &histogram).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let entries: Vec<_> = IntervalLogIterator::new(&bytes)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].tag().map(|tag| tag.as_str()), Some("a__b"));
        let encoded = entries[1].encoded_histogram();
        let bytes = base64_decode(encoded);
        let read: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        assert_eq!(read.len(), 1000);
        let near = |found: u64, truth: f64| (found as f64 - truth).abs() <= 0.033 * truth;
        assert!(near(read.value_at_quantile(0.99), 990_000.0));
        assert!(
            (read.max() as f64 - 1_000_000.0).abs() < 1_000.0,
            "{}",
            read.max()
        );
    }

    fn base64_decode(text: &str) -> Vec<u8> {
        let digit = |byte: u8| match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let mut bytes = Vec::new();
        for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
            let bits = chunk
                .iter()
                .fold(0_u32, |bits, byte| bits << 6 | u32::from(digit(*byte)));
            let bits = bits << (6 * (4 - chunk.len()));
            bytes.extend(&bits.to_be_bytes()[1..chunk.len()]);
        }
        bytes
    }
}
