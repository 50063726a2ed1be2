//! Waits for the locks of Rust's standard library and of parking_lot, one after another.
//!
//! For each, one thread holds the lock until the other is asleep on it and 20 ms longer, seven times.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

use serde_json::json;
use usekit_workloads::{protocol, task};

const ROUNDS: u64 = 7;
const HOLD: Duration = Duration::from_millis(20);

static STD_MUTEX: Mutex<u64> = Mutex::new(0);
static STD_READ: RwLock<u64> = RwLock::new(0);
static STD_WRITE: RwLock<u64> = RwLock::new(0);
static STD_CONDVAR: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
static PARKING_MUTEX: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);
static PARKING_READ: parking_lot::RwLock<u64> = parking_lot::RwLock::new(0);
static PARKING_CONDVAR: (parking_lot::Mutex<bool>, parking_lot::Condvar) =
    (parking_lot::Mutex::new(false), parking_lot::Condvar::new());

fn main() {
    protocol::ready_and_wait();
    play("STD_MUTEX", "rust", take_std_mutex, |held| {
        let guard = STD_MUTEX.lock();
        held();
        drop(guard);
    });
    play("STD_READ", "rust", take_std_read, |held| {
        let guard = STD_READ.write();
        held();
        drop(guard);
    });
    play("STD_WRITE", "rust", take_std_write, |held| {
        let guard = STD_WRITE.read();
        held();
        drop(guard);
    });
    play("STD_CONDVAR", "cond", wait_std_condvar, |held| {
        held();
        *STD_CONDVAR.0.lock().expect("nobody panics") = true;
        STD_CONDVAR.1.notify_one();
    });
    play_parked();
    play("PARKING_MUTEX", "parking_lot", take_parking_mutex, |held| {
        let guard = PARKING_MUTEX.lock();
        held();
        drop(guard);
    });
    play("PARKING_READ", "parking_lot", take_parking_read, |held| {
        let guard = PARKING_READ.write();
        held();
        drop(guard);
    });
    play("PARKING_CONDVAR", "cond", wait_parking_condvar, |held| {
        held();
        *PARKING_CONDVAR.0.lock() = true;
        PARKING_CONDVAR.1.notify_one();
    });
    protocol::done_and_exit()
}

#[inline(never)]
fn take_std_mutex() {
    *STD_MUTEX.lock().expect("nobody panics") += 1;
}

#[inline(never)]
fn take_std_read() {
    assert_eq!(*STD_READ.read().expect("nobody panics"), 0);
}

#[inline(never)]
fn take_std_write() {
    *STD_WRITE.write().expect("nobody panics") += 1;
}

#[inline(never)]
fn wait_std_condvar() {
    let guard = STD_CONDVAR.0.lock().expect("nobody panics");
    let rung = STD_CONDVAR.1.wait_while(guard, |rung| !*rung);
    *rung.expect("nobody panics") = false;
}

#[inline(never)]
fn take_parking_mutex() {
    *PARKING_MUTEX.lock() += 1;
}

#[inline(never)]
fn take_parking_read() {
    assert_eq!(*PARKING_READ.read(), 0);
}

#[inline(never)]
fn wait_parking_condvar() {
    let mut rung = PARKING_CONDVAR.0.lock();
    PARKING_CONDVAR.1.wait_while(&mut rung, |rung| !*rung);
    *rung = false;
}

/// What the waiter says, and hears, of a round.
struct Talk {
    go: PipeWriter,
    done: PipeReader,
    tid: i32,
}

/// One wait of the other thread, from its being told to its end; `hold` calls its argument while the lock is held.
fn play(name: &str, class: &str, wait: fn(), hold: fn(&mut dyn FnMut())) {
    let (waiter, mut talk) = start(wait);
    for _ in 0..ROUNDS {
        hold(&mut || await_sleep(&mut talk));
        hear(&mut talk.done);
    }
    finish(name, class, waiter, &talk);
}

fn play_parked() {
    let (waiter, mut talk) = start(thread::park);
    for _ in 0..ROUNDS {
        await_sleep(&mut talk);
        waiter.thread().unpark();
        hear(&mut talk.done);
    }
    finish("park", "park", waiter, &talk);
}

fn start(wait: fn()) -> (thread::JoinHandle<()>, Talk) {
    let (mut told, go) = pipe().expect("a pipe");
    let (mut done, mut tell) = pipe().expect("a pipe");
    let waiter = thread::spawn(move || {
        tell.write_all(&task::tid().to_ne_bytes()).expect("a pipe");
        for _ in 0..ROUNDS {
            hear(&mut told);
            wait();
            tell.write_all(b"x").expect("a pipe");
        }
    });
    let mut tid = [0; 4];
    done.read_exact(&mut tid).expect("a pipe");
    let tid = i32::from_ne_bytes(tid);
    (waiter, Talk { go, done, tid })
}

fn hear(pipe: &mut PipeReader) {
    pipe.read_exact(&mut [0]).expect("a pipe");
}

fn await_sleep(talk: &mut Talk) {
    talk.go.write_all(b"x").expect("a pipe");
    task::wait_asleep(talk.tid, libc::SYS_futex);
    thread::sleep(HOLD);
}

fn finish(name: &str, class: &str, waiter: thread::JoinHandle<()>, talk: &Talk) {
    waiter.join().expect("nobody panics");
    protocol::report(&json!({
        "name": name,
        "class": class,
        "rounds": ROUNDS,
        "waiter": talk.tid,
        "holder": task::tid(),
    }));
}
