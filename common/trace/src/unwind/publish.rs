//! Makes an array part of an array of arrays without waiting for a grace period.
//!
//! The kernel waits for one after each change of such an array, for the sake of programs that still use what was there before
//! (`maybe_wait_bpf_programs`, 1ae80cf31938). A place that was empty has no such programs, and everybody sees what is put there
//! before that wait. On an overloaded machine the threads that end a grace period may starve for a minute; so another thread
//! than the caller's does the waiting.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::privileges::{self, Capability};
use crate::scheduling;

/// Between two looks whether the array is there.
const PAUSE: Duration = Duration::from_micros(50);

/// Puts `inner` where `index` is in `outer`, and nothing is yet. Programs see it when this returns.
pub(super) fn publish(outer: &Arc<MapHandle>, index: u32, inner: MapHandle) -> Result<()> {
    let (done, answer) = mpsc::channel();
    let (watching, watched) = mpsc::channel::<()>();
    let to = Arc::clone(outer);
    thread::Builder::new()
        .name("unwind-chunk".into())
        .spawn(move || {
            // Where this is refused, it has what its maker has.
            let _ = privileges::keep_only(&[Capability::Bpf]);
            let _ = done.send(put(&to, index, &inner));
            // Its number may soon be somebody else's, whom the guard must not raise. First it is put on the guard's list.
            let _ = watched.recv();
            // SAFETY: has no preconditions.
            scheduling::forget_process(unsafe { libc::gettid() });
        })
        .context("start a thread")?;
    scheduling::watch_threads();
    drop(watching);
    loop {
        match answer.recv_timeout(PAUSE) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if is_there(outer, index) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("add unwind tables: no answer"),
        }
    }
}

fn put(outer: &MapHandle, index: u32, inner: &MapHandle) -> Result<()> {
    let descriptor = inner.as_fd().as_raw_fd().to_ne_bytes();
    outer
        .update(&index.to_ne_bytes(), &descriptor, MapFlags::ANY)
        .context("add unwind tables")
}

/// The kernel gives the inner array's ID, or says that there is none.
fn is_there(outer: &MapHandle, index: u32) -> bool {
    let found = outer.lookup(&index.to_ne_bytes(), MapFlags::ANY);
    matches!(found, Ok(Some(_)))
}
