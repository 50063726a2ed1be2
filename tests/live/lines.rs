//! A tool's output, line by line.

use std::io::{BufRead, BufReader, Read};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Loading and verifying BPF programs takes its time under emulation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Lines of a stream as they come, and whether it is over.
#[derive(Default)]
pub(crate) struct Lines {
    state: Mutex<(Vec<Vec<u8>>, bool)>,
    changed: Condvar,
}

impl Lines {
    /// Those of a stream, and who reads it to its end.
    pub(crate) fn of(stream: impl Read + Send + 'static) -> (Arc<Self>, JoinHandle<()>) {
        let lines = Arc::new(Self::default());
        let follower = Arc::clone(&lines);
        (lines, thread::spawn(move || follower.follow(stream)))
    }

    fn state(&self) -> MutexGuard<'_, (Vec<Vec<u8>>, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, stream: impl Read) {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            self.state().0.push(mem::take(&mut line));
            self.changed.notify_all();
        }
        self.state().1 = true;
        self.changed.notify_all();
    }

    /// Looks whether so many lines came that begin so, before the stream or the patience ended.
    pub(crate) fn wait_for(&self, count: usize, beginning: &str) -> bool {
        let is_wanted = |line: &&Vec<u8>| line.starts_with(beginning.as_bytes());
        self.wait_until(|lines| lines.iter().filter(is_wanted).count() >= count)
    }

    /// Looks whether the lines so far were enough before the stream or the patience ended.
    pub(crate) fn wait_until(&self, mut are_enough: impl FnMut(&[Vec<u8>]) -> bool) -> bool {
        let mut seen = false;
        let waiting = |(lines, over): &mut (Vec<Vec<u8>>, bool)| {
            seen = seen || are_enough(lines);
            !*over && !seen
        };
        let result = self
            .changed
            .wait_timeout_while(self.state(), PATIENCE, waiting);
        drop(result.unwrap_or_else(PoisonError::into_inner));
        seen
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().1
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state().0.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}
