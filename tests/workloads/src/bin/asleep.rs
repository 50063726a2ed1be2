//! Threads that sleep from before the start to the end, each in its own way: tracers that close an
//! interval only when a thread runs again never see them.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use serde_json::json;
use usekit_workloads::flags::Flags;
use usekit_workloads::task::Totals;
use usekit_workloads::{clock, protocol, task};

struct Sleeper {
    kind: &'static str,
    /// The system call that it sleeps in.
    number: libc::c_long,
    sleep: fn(),
}

static LOCKED: Mutex<()> = Mutex::new(());

const SLEEPERS: [Sleeper; 4] = [
    Sleeper {
        kind: "futex",
        number: libc::SYS_futex,
        sleep: || drop(LOCKED.lock()),
    },
    Sleeper {
        kind: "pause",
        number: libc::SYS_rt_sigsuspend,
        sleep: suspend,
    },
    Sleeper {
        kind: "epoll",
        number: EPOLL,
        sleep: epoll,
    },
    Sleeper {
        kind: "pipe",
        number: libc::SYS_read,
        sleep: pipe,
    },
];

#[cfg(target_arch = "x86_64")]
const EPOLL: libc::c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
const EPOLL: libc::c_long = libc::SYS_epoll_pwait;

/// `pause`, by the system call that every architecture has.
fn suspend() {
    // SAFETY: sigfillset initialises the set; with all signals blocked only SIGKILL and SIGSTOP end it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::sigsuspend(&raw const set);
    }
}

fn epoll() {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event; nothing is watched, so nothing comes.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        libc::epoll_wait(epoll, &raw mut event, 1, -1);
    }
}

fn pipe() {
    let (mut silent, _writer) = std::io::pipe().expect("a pipe can be had");
    let _ = std::io::Read::read(&mut silent, &mut [0]);
}

fn start(sleeper: &'static Sleeper) -> i32 {
    let (sender, tid) = mpsc::channel();
    thread::Builder::new()
        .name(format!("a-{}", sleeper.kind))
        .spawn(move || {
            sender.send(task::tid()).expect("the main thread listens");
            (sleeper.sleep)();
        })
        .expect("a few threads can be had");
    tid.recv().expect("the thread says its id first")
}

fn main() {
    let _ = Flags::of_program("asleep");
    let _held = LOCKED.lock();
    let asleep: Vec<(&Sleeper, i32, u64, Totals)> = SLEEPERS
        .iter()
        .map(|sleeper| {
            let tid = start(sleeper);
            task::wait_asleep(tid, sleeper.number);
            (sleeper, tid, clock::mono_ns(), task::totals(tid))
        })
        .collect();
    protocol::ready_and_wait();
    for (sleeper, tid, since_ns, before) in asleep {
        assert!(
            task::sleeps_in(tid, sleeper.number),
            "{} was woken",
            sleeper.kind
        );
        let total = task::totals(tid).since(&before);
        let now_ns = clock::mono_ns();
        protocol::report(&json!({
            "kind": sleeper.kind,
            "tid": tid,
            "start_ns": since_ns,
            "end_ns": now_ns,
            "wall_ns": now_ns - since_ns,
            "total": total.fields(),
        }));
    }
    protocol::done_and_exit()
}
