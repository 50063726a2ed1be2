//! Threads that pass wakeups around a ring beside busy ones, so that each has to queue for the CPU.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use usekit_workloads::account::Account;
use usekit_workloads::stage::Stage;
use usekit_workloads::{affinity, clock, countdown};

/// Turns of the loop between two looks at the clock, a few microseconds.
const TURNS: u64 = 10_000;

pub(crate) struct Storm {
    pub(crate) threads: usize,
    pub(crate) hogs: usize,
    pub(crate) seconds: f64,
    /// Work per wakeup. The kernel charges no delay to a wakeup that preempts at once, a tracer
    /// a few microseconds: the queueing must be long beside those for the two to agree.
    pub(crate) burst_us: u64,
    pub(crate) cpu: Option<usize>,
}

fn eventfd() -> File {
    // SAFETY: takes flags only; the descriptor is checked and then owned by the file. As a
    // semaphore, each post is one wakeup even when two arrive together.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE);
        assert!(fd >= 0, "an eventfd can be had");
        File::from_raw_fd(fd)
    }
}

fn post(mut bell: &File) {
    bell.write_all(&1_u64.to_ne_bytes())
        .expect("the eventfd stays open");
}

/// What the places of the ring share.
struct Ring {
    bells: Vec<File>,
    burst_ns: u64,
    over: AtomicBool,
}

impl Ring {
    /// Ends the storm: the flag first, then a wakeup for everyone to see it.
    fn end(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.bells.iter().for_each(post);
        }
    }

    /// One place: waits for its bell, works, rings the next.
    fn pass_on(&self, place: usize, duration_ns: u64) -> Value {
        let mut own = &self.bells[place];
        let next = &self.bells[(place + 1) % self.bells.len()];
        let account = Account::open();
        let end_ns = clock::mono_ns() + duration_ns;
        let mut wakeups = 0_u64;
        // A token for every fourth place keeps several threads runnable at once.
        if place.is_multiple_of(4) {
            post(next);
        }
        loop {
            own.read_exact(&mut [0; 8]).expect("the eventfd stays open");
            wakeups += 1;
            if self.over.load(Ordering::Acquire) || clock::mono_ns() >= end_ns {
                break;
            }
            burn(self.burst_ns);
            post(next);
        }
        self.end();
        account.close(json!({"kind": "waker", "received": wakeups}))
    }
}

fn burn(duration_ns: u64) {
    let end_ns = clock::mono_ns() + duration_ns;
    while clock::mono_ns() < end_ns {
        countdown!(TURNS);
    }
}

fn hog(duration_ns: u64) -> Value {
    let account = Account::open();
    burn(duration_ns);
    account.close(json!({"kind": "hog"}))
}

/// Runs the protocol with the ring and its hogs on one CPU.
pub(crate) fn run(storm: Storm) -> ! {
    let duration_ns = (storm.seconds * 1e9) as u64;
    let mut stage = Stage::new();
    let bells = (0..storm.threads).map(|_| eventfd()).collect();
    let ring = Arc::new(Ring {
        bells,
        burst_ns: storm.burst_us * 1_000,
        over: AtomicBool::new(false),
    });
    for i in 0..storm.threads {
        let ring = Arc::clone(&ring);
        stage.spawn(&format!("waker-{i}"), move || {
            affinity::pin_or_die(storm.cpu);
            move || Some(ring.pass_on(i, duration_ns))
        });
    }
    for i in 0..storm.hogs {
        stage.spawn(&format!("hog-{i}"), move || {
            affinity::pin_or_die(storm.cpu);
            move || Some(hog(duration_ns))
        });
    }
    stage.run()
}
