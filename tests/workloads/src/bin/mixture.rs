//! A thread that loses its time in known ways, round after round: it computes, waits for a lock that another thread sleeps with,
//! waits for an answer through a pipe, naps, and reads from a disk if it is given one. It says how long each took by its clocks.
//! No lock is released and no answer given before it sleeps, so that each round has one wait of each kind.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Seek, SeekFrom, Write, pipe};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{clock, countdown, task};

const USAGE: &str = "mixture [--rounds N] [--disk PATH]";

/// Time of each way in a round, ns.
const COMPUTE_NS: u64 = 40_000_000;
const HOLD_NS: u64 = 60_000_000;
const ANSWER_NS: u64 = 30_000_000;
const NAP_NS: u64 = 20_000_000;
/// Reads in a round, past all caches, and their size in bytes.
const READS: u64 = 24;
const READ_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;

type Lock = Arc<Mutex<()>>;

/// The thread's partners.
struct Partners {
    lock: Lock,
    /// Takes the ID of the thread that will wait.
    keeper: Sender<i32>,
    is_held: Receiver<()>,
    questions: PipeWriter,
    answers: PipeReader,
    disk: Option<Disk>,
}

/// A disk, or a file, that is larger than what is read in a round.
struct Disk {
    file: File,
    bytes: u64,
    /// Place of the next read.
    at: u64,
}

impl Disk {
    fn open(path: &OsStr) -> Self {
        let mut options = File::options();
        let opened = options.read(true).custom_flags(libc::O_DIRECT).open(path);
        let mut file = opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let bytes = file.seek(SeekFrom::End(0)).expect("a size");
        Self { file, bytes, at: 0 }
    }
}

#[inline(never)]
fn compute(cpu_ns: u64) -> u64 {
    let begin_ns = clock::thread_cpu_ns();
    while clock::thread_cpu_ns() - begin_ns < cpu_ns {
        countdown!(200_000);
    }
    clock::thread_cpu_ns() - begin_ns
}

#[inline(never)]
fn take_the_lock(lock: &Lock) -> u64 {
    let begin_ns = clock::mono_ns();
    drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
    clock::mono_ns() - begin_ns
}

#[inline(never)]
fn await_an_answer(partners: &mut Partners) -> u64 {
    let question = task::tid().to_ne_bytes();
    partners
        .questions
        .write_all(&question)
        .expect("the partner is there");
    let begin_ns = clock::mono_ns();
    let mut answer = [0];
    partners.answers.read_exact(&mut answer).expect("an answer");
    clock::mono_ns() - begin_ns
}

#[inline(never)]
fn read_from_disk(disk: &mut Disk) -> u64 {
    // A device writes to it by itself, where it begins with a page.
    let mut memory = vec![0; READ_BYTES + PAGE];
    let begin = memory.as_ptr().align_offset(PAGE);
    let block = &mut memory[begin..begin + READ_BYTES];
    let begin_ns = clock::mono_ns();
    for _ in 0..READS {
        if disk.at + READ_BYTES as u64 > disk.bytes {
            disk.at = 0;
        }
        disk.file.read_exact_at(block, disk.at).expect("a disk");
        disk.at += READ_BYTES as u64;
    }
    clock::mono_ns() - begin_ns
}

#[inline(never)]
fn nap() -> u64 {
    let begin_ns = clock::mono_ns();
    clock::sleep_ns(NAP_NS);
    clock::mono_ns() - begin_ns
}

fn suffer(rounds: u64, mut partners: Partners) -> Value {
    let (mut compute_ns, mut lock_ns, mut answer_ns, mut nap_ns) = (0, 0, 0, 0);
    let mut disk_ns = 0;
    for _ in 0..rounds {
        compute_ns += compute(COMPUTE_NS);
        let keeper = &partners.keeper;
        keeper.send(task::tid()).expect("the keeper is there");
        partners.is_held.recv().expect("the keeper is there");
        lock_ns += take_the_lock(&partners.lock);
        answer_ns += await_an_answer(&mut partners);
        nap_ns += nap();
        disk_ns += partners.disk.as_mut().map_or(0, read_from_disk);
    }
    json!({
        "tid": task::tid(),
        "rounds": rounds,
        "compute_ns": compute_ns,
        "lock_ns": lock_ns,
        "answer_ns": answer_ns,
        "nap_ns": nap_ns,
        "disk_ns": disk_ns,
    })
}

#[inline(never)]
fn sleep_with_the_lock(lock: &Lock, is_held: &Sender<()>, victim: i32) {
    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    is_held.send(()).expect("its victim is there");
    clock::sleep_ns(HOLD_NS);
    task::wait_asleep(victim, libc::SYS_futex);
}

#[inline(never)]
fn answer_late(answers: &mut PipeWriter, victim: i32) {
    clock::sleep_ns(ANSWER_NS);
    task::wait_asleep(victim, libc::SYS_read);
    answers.write_all(b"!").expect("its victim is there");
}

fn main() {
    let flags = Flags::of_program(USAGE);
    let rounds = flags.number("--rounds").unwrap_or(15);
    let lock = Lock::default();
    let (keeper, wishes) = channel();
    let (held, is_held) = channel();
    let (mut asked, questions) = pipe().expect("descriptors");
    let (answers, mut answering) = pipe().expect("descriptors");
    let partners = Partners {
        lock: Arc::clone(&lock),
        keeper,
        is_held,
        questions,
        answers,
        disk: flags.last("--disk").map(Disk::open),
    };
    let mut stage = Stage::new();
    stage.spawn("victim", move || move || Some(suffer(rounds, partners)));
    stage.spawn("keeper", move || {
        move || {
            for victim in wishes {
                sleep_with_the_lock(&lock, &held, victim);
            }
            None
        }
    });
    stage.spawn("answerer", move || {
        move || {
            let mut question = [0; size_of::<i32>()];
            while asked.read_exact(&mut question).is_ok() {
                answer_late(&mut answering, i32::from_ne_bytes(question));
            }
            None
        }
    });
    stage.run()
}
