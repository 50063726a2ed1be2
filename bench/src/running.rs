//! A load while it runs.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A running load.
pub(crate) trait Load {
    /// For `-p`.
    fn pid(&self) -> u32;

    /// Its events so far, from the kernel's own counters.
    fn events(&self) -> Result<u64>;

    /// The whole machine's events of that kind that a tool may see.
    fn events_around(&self) -> Result<u64>;

    /// Its threads, as directories of `/proc`.
    fn threads(&self) -> Vec<PathBuf>;

    /// Time that its threads had a CPU for, in microseconds.
    fn on_cpu_us(&self) -> Result<f64> {
        Ok(on_cpu_ns(&self.threads())? as f64 / 1e3)
    }

    /// Number of times that its threads got a CPU.
    fn runs_begun(&self) -> Result<u64> {
        schedstat(&self.threads(), 2)
    }

    /// Its events per second during `window`.
    fn rate(&self, window: Duration) -> Result<f64> {
        let (start, before) = (Instant::now(), self.events()?);
        thread::sleep(window);
        let events = self.events()? - before;
        Ok(events as f64 / start.elapsed().as_secs_f64())
    }
}

/// Time that threads, as directories of `/proc`, had a CPU for.
pub(crate) fn on_cpu_ns(threads: &[PathBuf]) -> Result<u64> {
    schedstat(threads, 0)
}

/// The sum of one field of all threads' `schedstat`: ns on CPU, ns waiting for one, times it got one.
fn schedstat(threads: &[PathBuf], field: usize) -> Result<u64> {
    let mut sum = 0;
    for thread in threads {
        let text = fs::read_to_string(thread.join("schedstat")).context("the load ended early")?;
        let word = text.split_whitespace().nth(field);
        sum += word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
