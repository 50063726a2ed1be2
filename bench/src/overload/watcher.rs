//! Somebody else on the machine: an ordinary process that wakes 20 times a second.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::ordinary;

const PERIOD: Duration = Duration::from_millis(50);

/// The process, until [`Watcher::longest`] ends it.
pub(crate) struct Watcher {
    child: Child,
    longest: Receiver<Duration>,
}

impl Watcher {
    pub(crate) fn start() -> Result<Self> {
        // Nothing ever comes: a sleep without a process of its own.
        let seconds = PERIOD.as_secs_f64();
        let script = format!("exec 3<> <(:); while :; do read -rt {seconds} -u 3; echo; done");
        let mut child = ordinary("bash")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .context("start a sleeper")?;
        let mut lines = child.stdout.take().context("its stdout is piped")?;
        let (said, longest) = mpsc::channel();
        // It has our class, and sees a line as soon as it is written.
        thread::spawn(move || {
            let (mut last, mut most, mut line) = (Instant::now(), Duration::ZERO, [0]);
            while lines.read(&mut line).is_ok_and(|bytes| bytes > 0) {
                most = most.max(last.elapsed().saturating_sub(PERIOD));
                last = Instant::now();
            }
            // The wait that we end is one, too.
            let _ = said.send(most.max(last.elapsed().saturating_sub(PERIOD)));
        });
        Ok(Self { child, longest })
    }

    /// The longest time that it slept beyond what it had asked for.
    pub(crate) fn longest(mut self) -> Result<Duration> {
        let ended = self.child.try_wait().context("look at the sleeper")?;
        ensure!(ended.is_none(), "the sleeper ended by itself");
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.longest
            .recv_timeout(PERIOD * 20)
            .context("hear of the sleeper")
    }
}
