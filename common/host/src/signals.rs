//! The first Ctrl-C ends the collection, the second one the tool.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::privileges::{self, Capabilities};
use crate::scheduling;

/// Signals that were ignored when the program was started, bit n for signal n.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Before `main`: Rust's runtime ignores SIGPIPE on its way there, whatever it was before.
#[used]
// SAFETY: the linker's list of functions that are called at the start, once everything is linked.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_ignored;

extern "C" fn note_ignored() {
    let ignored = (1..64).filter(|signal| is_ignored(*signal));
    IGNORED.store(
        ignored.fold(0, |mask, signal| mask | 1 << signal),
        Ordering::Relaxed,
    );
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero is a valid sigaction, which the kernel fills; nothing is changed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Looks whether the caller wanted this signal ignored, as `nohup` does with SIGHUP: then it stays so, here and in the command.
pub fn was_ignored(signal: i32) -> bool {
    IGNORED.load(Ordering::Relaxed) >> signal & 1 == 1
}

/// Has children wait until they are asked for their status, though the caller may want none.
pub fn keep_children() {
    // SAFETY: installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Signals that have arrived.
pub struct Signals {
    ended: Arc<AtomicBool>,
    woken: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
    wake: UnixStream,
}

impl Signals {
    /// Takes SIGINT, SIGTERM and SIGHUP over; SIGHUP not where it was ignored, as `nohup` has it. SIGINT always: shells have the
    /// background jobs of a script ignore it, and `kill -INT $!` is how scripts end tools of this kind.
    ///
    /// # Errors
    ///
    /// The handlers cannot be installed.
    pub fn install() -> Result<Self> {
        let (ended, woken) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let which = Arc::new(AtomicUsize::new(0));
        let (wake, writer) = UnixStream::pair().context("make signal socket")?;
        let mut handler = Handler {
            woken: Arc::clone(&woken),
            writer,
        };
        let hangup = (!was_ignored(SIGHUP)).then_some(SIGHUP);
        // ctrlc's thread lives as long as the tool and has the privileges of the one that asks for it.
        let installed = thread::Builder::new().spawn(move || {
            privileges::keep_only(Capabilities::empty())?;
            let set = ctrlc::set_handler(move || handler.signalled());
            if hangup.is_none() {
                // SAFETY: installs no handler.
                unsafe { libc::signal(SIGHUP, libc::SIG_IGN) };
            }
            set.map_err(|error| match error {
                ctrlc::Error::System(error) => error,
                other => io::Error::other(other),
            })
        });
        let act = "install signal handlers";
        let installed = installed.context(act)?.join();
        installed.map_err(|_| anyhow!("{act}"))?.context(act)?;
        scheduling::watch_threads();
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            let number = usize::try_from(signal).expect("signal numbers are small");
            // These run in the handler itself, behind ctrlc's and in this order: a thread of ours need not have a CPU. The second
            // signal finds the flag set and gets the default action.
            flag::register_conditional_default(signal, Arc::clone(&ended))
                .and_then(|_| flag::register(signal, Arc::clone(&ended)))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&which), number))
                .context(act)?;
        }
        Ok(Self {
            ended,
            woken,
            which,
            wake,
        })
    }

    /// The collection is to end.
    pub fn ended(&self) -> bool {
        // A signal may come before the flags are there that note it.
        self.ended.load(Ordering::Relaxed) || self.woken.load(Ordering::Relaxed)
    }

    /// The latest signal.
    pub fn which(&self) -> Option<i32> {
        i32::try_from(self.which.load(Ordering::Relaxed))
            .ok()
            .filter(|signal| *signal != 0)
    }

    /// Becomes readable with the first signal.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

/// Work of ctrlc's thread: it wakes the tool.
struct Handler {
    woken: Arc<AtomicBool>,
    writer: UnixStream,
}

impl Handler {
    fn signalled(&mut self) {
        // Not `ended`: the handler may not have got to its look at that yet, and would take this for an earlier signal.
        self.woken.store(true, Ordering::Relaxed);
        // Nobody reads it any more when the tool ends.
        let _ = self.writer.write(&[1]);
    }
}

/// Waits until one of the descriptors is readable, a signal comes or time is up.
pub fn wait(fds: &[RawFd], timeout: Duration) {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let timeout = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    let count = libc::nfds_t::try_from(polled.len()).expect("a handful of descriptors");
    // SAFETY: `polled` has `count` entries; a null mask leaves signals as they are.
    unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            count,
            &raw const timeout,
            std::ptr::null(),
        )
    };
}
