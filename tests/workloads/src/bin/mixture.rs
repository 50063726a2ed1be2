//! A thread that loses its time in four known ways, round after round: it computes, waits for a lock that another thread sleeps with,
//! waits for an answer through a pipe, and naps. It says how long each took by its clocks.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;
use usekit_workloads::{clock, countdown, task};

const USAGE: &str = "mixture [--rounds N]";

/// Time of each way in a round, ns.
const COMPUTE_NS: u64 = 40_000_000;
const HOLD_NS: u64 = 60_000_000;
const ANSWER_NS: u64 = 30_000_000;
const NAP_NS: u64 = 20_000_000;

type Lock = Arc<Mutex<()>>;

/// The thread's partners.
struct Partners {
    lock: Lock,
    keeper: Sender<()>,
    is_held: Receiver<()>,
    questions: PipeWriter,
    answers: PipeReader,
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
    partners
        .questions
        .write_all(b"?")
        .expect("the partner is there");
    let begin_ns = clock::mono_ns();
    let mut answer = [0];
    partners.answers.read_exact(&mut answer).expect("an answer");
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
    for _ in 0..rounds {
        compute_ns += compute(COMPUTE_NS);
        partners.keeper.send(()).expect("the keeper is there");
        partners.is_held.recv().expect("the keeper is there");
        lock_ns += take_the_lock(&partners.lock);
        answer_ns += await_an_answer(&mut partners);
        nap_ns += nap();
    }
    json!({
        "tid": task::tid(),
        "rounds": rounds,
        "compute_ns": compute_ns,
        "lock_ns": lock_ns,
        "answer_ns": answer_ns,
        "nap_ns": nap_ns,
    })
}

#[inline(never)]
fn sleep_with_the_lock(lock: &Lock, is_held: &Sender<()>) {
    let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
    is_held.send(()).expect("its victim is there");
    clock::sleep_ns(HOLD_NS);
}

#[inline(never)]
fn answer_late(answers: &mut PipeWriter) {
    clock::sleep_ns(ANSWER_NS);
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
    };
    let mut stage = Stage::new();
    stage.spawn("victim", move || move || Some(suffer(rounds, partners)));
    stage.spawn("keeper", move || {
        move || {
            for () in wishes {
                sleep_with_the_lock(&lock, &held);
            }
            None
        }
    });
    stage.spawn("answerer", move || {
        move || {
            let mut question = [0];
            while asked.read(&mut question).expect("a pipe") == 1 {
                answer_late(&mut answering);
            }
            None
        }
    });
    stage.run()
}
