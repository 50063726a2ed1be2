//! Threads that start together on the test's word and stay until it has looked.
//!
//! They wait for the word, and afterwards for the end, in `sigwait`: it is none of the waits that
//! the workloads measure, and a signal sent early stays pending, so none is ever lost.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use serde_json::{Value, json};

use crate::protocol;
use crate::task::{self, Totals};

const GO: libc::c_int = libc::SIGUSR1;

/// A thread's report: a JSON object, or nothing for a helper.
pub type Report = Option<Value>;

struct Member {
    tid: i32,
    before: Totals,
    report: Receiver<Report>,
}

/// The threads of a workload.
#[derive(Default)]
pub struct Stage {
    members: Vec<(Receiver<i32>, Receiver<Report>)>,
}

impl Stage {
    /// Makes an empty stage. From here on a panic in any thread ends the process.
    #[must_use]
    pub fn new() -> Self {
        // Threads inherit the mask.
        // SAFETY: `set` is initialised by go_set, and the old mask is not asked for.
        let rc = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &go_set(), std::ptr::null_mut()) };
        assert_eq!(rc, 0, "the mask is valid");
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            print(info);
            std::process::exit(101);
        }));
        Self::default()
    }

    /// Adds a thread: `prepare` runs at once, the work it returns runs on the test's word.
    ///
    /// # Panics
    /// When the system refuses a thread.
    pub fn spawn<W>(&mut self, name: &str, prepare: impl FnOnce() -> W + Send + 'static)
    where
        W: FnOnce() -> Report + 'static,
    {
        let (tid_sender, tid) = mpsc::channel();
        let (report_sender, report) = mpsc::channel();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || perform(prepare, &tid_sender, &report_sender))
            .expect("a few threads can be had");
        self.members.push((tid, report));
    }

    /// Runs the protocol from `ready` to the end of the process.
    ///
    /// Each report gets `total`: the kernel's account from asleep before the word to asleep after the work,
    /// which is what a tracer attached in between sees.
    pub fn run(self) -> ! {
        let members: Vec<Member> = self.members.into_iter().map(settle).collect();
        protocol::ready_and_wait();
        for member in &members {
            signal(member.tid);
        }
        let reports: Vec<Report> = members
            .iter()
            .map(|member| receive(&member.report))
            .collect();
        for (member, report) in members.iter().zip(reports) {
            task::wait_asleep(member.tid, libc::SYS_rt_sigtimedwait);
            if let Some(fields) = report {
                let total = task::totals(member.tid).since(&member.before);
                let total = json!({"total": total.fields()});
                protocol::report(&protocol::merged(fields, total));
            }
        }
        protocol::done_and_exit()
    }
}

fn perform<W: FnOnce() -> Report>(
    prepare: impl FnOnce() -> W,
    tid: &Sender<i32>,
    report: &Sender<Report>,
) {
    let work = prepare();
    tid.send(task::tid())
        .expect("the stage outlives its threads");
    wait_for_go();
    report.send(work()).expect("the stage outlives its threads");
    loop {
        wait_for_go();
    }
}

fn receive<T>(channel: &Receiver<T>) -> T {
    channel
        .recv()
        .expect("a thread that cannot answer has ended the process")
}

fn settle((tid, report): (Receiver<i32>, Receiver<Report>)) -> Member {
    let tid = receive(&tid);
    task::wait_asleep(tid, libc::SYS_rt_sigtimedwait);
    Member {
        tid,
        before: task::totals(tid),
        report,
    }
}

fn go_set() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before anything reads it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, GO);
        set
    }
}

fn wait_for_go() {
    let set = go_set();
    // SAFETY: `set` is initialised; the signal's details are not asked for.
    while unsafe { libc::sigwaitinfo(&raw const set, std::ptr::null_mut()) } != GO {}
}

fn signal(tid: i32) {
    // SAFETY: sends a signal to a thread of this process that is known to be there.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, GO) };
    assert_eq!(rc, 0, "the thread waits for this signal");
}
