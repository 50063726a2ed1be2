//! A small program with something for every tool to show: threads that wait for a lock, sleep, read
//! from a pipe and from a file, and compute. Its functions say what they do.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use usekit_workloads::flags::Flags;

const USAGE: &str = "demo [--seconds S]";

/// Keeps the call before it from becoming a jump, which would take the caller off the stack.
macro_rules! stay_on_the_stack {
    () => {
        std::hint::black_box(())
    };
}

// Plain loops: iterators would put the standard library's names where these should be.

#[inline(never)]
fn compute_primes(limit: u32) -> u32 {
    let (mut found, mut n) = (0, 2);
    while n < limit {
        let mut d = 2;
        while d * d <= n && n % d != 0 {
            d += 1;
        }
        found += u32::from(d * d > n);
        n += 1;
    }
    found
}

#[inline(never)]
fn compute_checksum(bytes: &[u8]) -> u32 {
    let (mut sum, mut i) = (1_u32, 0);
    while i < bytes.len() {
        sum = (sum * 31 + u32::from(bytes[i])) % 65_521;
        i += 1;
    }
    sum
}

#[inline(never)]
fn hold_the_lock(lock: &Mutex<u32>) {
    let mut found = lock.lock().unwrap_or_else(PoisonError::into_inner);
    *found += compute_primes(20_000);
    thread::sleep(Duration::from_millis(40));
    stay_on_the_stack!();
}

#[inline(never)]
fn wait_for_the_lock(lock: &Mutex<u32>) {
    drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
    stay_on_the_stack!();
}

#[inline(never)]
fn sleep_between_jobs() {
    thread::sleep(Duration::from_millis(10));
    stay_on_the_stack!();
}

#[inline(never)]
fn read_from_the_pipe(pipe: &mut impl Read) {
    let mut message = [0; 64];
    // At the end the writer is gone first, and that is fine.
    let _ = pipe.read(&mut message);
    stay_on_the_stack!();
}

#[inline(never)]
fn write_to_the_pipe(pipe: &mut impl Write) {
    let _ = pipe.write_all(&[b'x'; 64]);
    stay_on_the_stack!();
}

#[inline(never)]
fn read_a_file() -> Vec<u8> {
    let bytes = std::fs::read("/proc/self/exe").unwrap_or_default();
    stay_on_the_stack!();
    bytes
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let seconds: f64 = flags.number("--seconds").unwrap_or(10.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
    let running = move || Instant::now() < end;
    let lock = Arc::new(Mutex::new(0));
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe can be had");

    let mut threads = Vec::new();
    let mut start = |name: &str, mut job: Box<dyn FnMut() + Send>| {
        let work = move || {
            while running() {
                job();
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        threads.push(thread.expect("a few threads can be had"));
    };
    let (held, wanted) = (Arc::clone(&lock), lock);
    start(
        "demo-holder",
        Box::new(move || {
            hold_the_lock(&held);
            sleep_between_jobs();
        }),
    );
    start(
        "demo-waiter",
        Box::new(move || {
            wait_for_the_lock(&wanted);
            std::hint::black_box(compute_primes(20_000));
        }),
    );
    start(
        "demo-reader",
        Box::new(move || read_from_the_pipe(&mut reader)),
    );
    start(
        "demo-writer",
        Box::new(move || {
            sleep_between_jobs();
            write_to_the_pipe(&mut writer);
        }),
    );
    start(
        "demo-worker",
        Box::new(|| {
            std::hint::black_box(compute_primes(40_000));
            std::hint::black_box(compute_checksum(&read_a_file()));
            sleep_between_jobs();
        }),
    );
    for thread in threads {
        // A thread that panicked has said so itself.
        let _ = thread.join();
    }
}
