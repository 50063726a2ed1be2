//! A server and its client: requests come through a pipe, one at a time. Some are slow, for the server sleeps, waits for a lock or
//! computes. Of each it says how long it took by the clock, from the client's word on, and from when the server had it, until the server
//! was about to wait again; and how much of that it slept and waited.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{clock, countdown, task};

const USAGE: &str = "requests [--number N]";

/// CPU time of each request, and of one in fifty in another function, ns.
const COMPUTE_NS: u64 = 1_000_000;
const SCAN_NS: u64 = 20_000_000;
/// Sleep of one in ten.
const NAP_EACH: u64 = 10;
const NAP_NS: u64 = 3_000_000;
/// The lock is held for so long before one in fifty, which then computes for long.
const HELD_EACH: u64 = 50;
const HOLD_NS: u64 = 40_000_000;

type Lock = Arc<Mutex<()>>;

/// A request as the server has it.
#[derive(Clone, Copy, Default)]
struct Log {
    /// Time at which the server had the request.
    begun_ns: u64,
    /// Time at which the server was about to wait for a request; the one before is over then.
    home_ns: u64,
    nap_ns: u64,
    lock_ns: u64,
}

const WORDS: usize = 4;

impl Log {
    fn bytes(self) -> Vec<u8> {
        let words = [self.begun_ns, self.home_ns, self.nap_ns, self.lock_ns];
        words.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    /// Everything on a request that was sent then.
    fn told(self, sent_ns: u64) -> Value {
        json!({
            "begin_ns": sent_ns,
            "ns": self.home_ns - sent_ns,
            "served_ns": self.home_ns - self.begun_ns,
            "nap_ns": self.nap_ns,
            "lock_ns": self.lock_ns,
        })
    }

    fn read(from: &mut PipeReader) -> Self {
        // A wait in the pipe might be taken for one for work.
        while is_empty(from) {
            clock::sleep_ns(50_000);
        }
        let mut bytes = [[0; 8]; WORDS];
        from.read_exact(bytes.as_flattened_mut())
            .expect("the server answers");
        let [begun_ns, home_ns, nap_ns, lock_ns] = bytes.map(u64::from_ne_bytes);
        Self {
            begun_ns,
            home_ns,
            nap_ns,
            lock_ns,
        }
    }
}

/// Looks whether nothing has come through a pipe.
fn is_empty(pipe: &PipeReader) -> bool {
    let mut poll = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid entry, and it is not waited for.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
}

/// Reads a request's number in the frame of its caller; `None`: there are no more.
#[inline(always)]
fn next(requests: &PipeReader) -> Option<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: the memory is as long as is said.
    let read = unsafe { libc::read(requests.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    (read == 8).then(|| u64::from_ne_bytes(bytes))
}

#[inline(never)]
fn compute() {
    let begin_ns = clock::thread_cpu_ns();
    while clock::thread_cpu_ns() - begin_ns < COMPUTE_NS {
        countdown!(20_000);
    }
}

#[inline(never)]
fn scan() {
    let begin_ns = clock::thread_cpu_ns();
    while clock::thread_cpu_ns() - begin_ns < SCAN_NS {
        countdown!(20_000);
    }
}

#[inline(never)]
fn nap() -> u64 {
    let begin_ns = clock::mono_ns();
    clock::sleep_ns(NAP_NS);
    clock::mono_ns() - begin_ns
}

#[inline(never)]
fn take_the_lock(lock: &Lock) -> u64 {
    let begin_ns = clock::mono_ns();
    drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
    clock::mono_ns() - begin_ns
}

/// The same lock by another function, which is more than another name of that one.
#[inline(never)]
fn also_take_the_lock(lock: &Lock) -> u64 {
    let begin_ns = clock::mono_ns();
    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let waited_ns = clock::mono_ns() - begin_ns;
    countdown!(1);
    drop(held);
    waited_ns
}

#[inline(never)]
fn serve(requests: &PipeReader, answers: &mut PipeWriter, lock: &Lock) {
    let mut log = Log::default();
    loop {
        log.home_ns = clock::mono_ns();
        let number = next(requests);
        let begun_ns = clock::mono_ns();
        // The client knows when the one before was over.
        answers.write_all(&log.bytes()).expect("a client");
        let Some(number) = number else {
            return;
        };
        log = Log {
            begun_ns,
            ..Log::default()
        };
        compute();
        if number.is_multiple_of(NAP_EACH) {
            log.nap_ns = nap();
        }
        if number.is_multiple_of(HELD_EACH) {
            let take = [take_the_lock, also_take_the_lock][(number / HELD_EACH % 2) as usize];
            log.lock_ns = take(lock);
            scan();
        }
    }
}

#[inline(never)]
fn sleep_with_the_lock(lock: &Lock, is_held: &AtomicBool) {
    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    is_held.store(true, Ordering::Release);
    clock::sleep_ns(HOLD_NS);
}

/// The client's side.
struct Server {
    tid: i32,
    requests: PipeWriter,
    answers: PipeReader,
    keeper: Sender<()>,
    is_held: Arc<AtomicBool>,
}

impl Server {
    fn start() -> Self {
        let (asked, requests) = pipe().expect("descriptors");
        let (answers, mut answering) = pipe().expect("descriptors");
        let (told, tid) = channel();
        let lock = Lock::default();
        let server_lock = Arc::clone(&lock);
        let server = thread::Builder::new().name("server".to_owned());
        let serve_all = move || {
            told.send(task::tid()).expect("a client");
            serve(&asked, &mut answering, &server_lock);
        };
        server.spawn(serve_all).expect("a thread");
        let (keeper, wishes) = channel();
        let is_held = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&is_held);
        let keep = move || {
            for () in wishes {
                sleep_with_the_lock(&lock, &held);
            }
        };
        let keeping = thread::Builder::new().name("keeper".to_owned());
        keeping.spawn(keep).expect("a thread");
        Self {
            tid: tid.recv().expect("a server"),
            requests,
            answers,
            keeper,
            is_held,
        }
    }

    /// Sends a request to the server, which waits for one; returns when, and what became of the one before.
    fn ask(&mut self, number: u64) -> (u64, Log) {
        task::wait_asleep(self.tid, libc::SYS_read);
        if number.is_multiple_of(HELD_EACH) {
            self.keeper.send(()).expect("a keeper");
            // A wait that nobody takes for one for work.
            while !self.is_held.swap(false, Ordering::Acquire) {
                clock::sleep_ns(50_000);
            }
        }
        let sent_ns = clock::mono_ns();
        let sent = self.requests.write_all(&number.to_ne_bytes());
        sent.expect("a server");
        (sent_ns, Log::read(&mut self.answers))
    }

    fn ask_all(mut self, number: u64) -> Value {
        let mut cycles = Vec::new();
        let (mut sent_ns, _) = self.ask(1);
        for next in 2..=number {
            let (asked_ns, log) = self.ask(next);
            cycles.push(log.told(sent_ns));
            sent_ns = asked_ns;
        }
        task::wait_asleep(self.tid, libc::SYS_read);
        // There is none after the last one.
        drop(self.requests);
        cycles.push(Log::read(&mut self.answers).told(sent_ns));
        json!({ "tid": self.tid, "cycles": cycles })
    }
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let number = flags.number("--number").unwrap_or(1001);
    let mut stage = Stage::new();
    stage.spawn("client", move || {
        let server = Server::start();
        move || Some(server.ask_all(number))
    });
    stage.run()
}
