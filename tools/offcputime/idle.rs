//! Detects the waits of threads with nothing to do.
//!
//! A thread waits for work at its home: where it comes back to between all else that it does, which is where it has the fewest
//! frames, those of libraries not counted. A wait there is idle if its kind may be (epoll, poll, accept, a client's next
//! request, a read of an eventfd or its like, a condition variable, a child, a parked kernel thread; no poll or epoll for a peer that
//! its thread has asked; a read from a pipe, if its thread comes back to it from other waits, all of them deeper: else it may be for an
//! answer). So is one for the next request of a client
//! that its thread serves until the client leaves, and one at which its
//! thread spends nine tenths of its time off the CPU, as threads of Go park in several places. It is not below another wait
//! that is never idle, or one for a client; and not where work comes within 100 us on average, unless through a socket: two threads
//! that pass a token to and fro have something to do, and a server whose clients ask often has not, until they do. A thread that waited once, went on and left its program did not come back: it may have had
//! one lock to take, for one request. Of the whole machine's threads, those that hardly do more than read from a pipe say nothing, nor do
//! those that are stopped from end to end; of threads that were asked for, they may be the answer. A kernel thread is idle where the
//! kernel counts it for no load.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use host::waits::{Reason, Wait};
use profile::frame::Frame;
use session::targets::Targets;
use stacks::LEFT_OUT;

use crate::offcputime::row::Row;

/// Share of a thread's time off the CPU that makes a place its habit.
const HABIT: f64 = 0.9;
/// Share below which another wait says nothing of where a thread comes back to: it happens once, at the start.
const SELDOM: f64 = 0.01;
/// Share of a thread's waits from which those for its client say where it comes back to, however short they are: clients that ask again
/// at once.
const OFTEN: f64 = 0.1;
/// Mean time until a thread has work again, ns.
const BRISK_NS: u64 = 100_000;

/// Functions of Go's runtime in which a thread has no goroutine to run, or looks from time to time after those that have.
const GO_RESTS: [&str; 4] = [
    "runtime.findRunnable",
    "runtime.findrunnable",
    "runtime.stopm",
    "runtime.sysmon",
];

/// Threads that are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traced {
    /// The machine's.
    All,
    /// Those that were asked for, with their children.
    Families,
    /// Those that were asked for; of their children those alone that were, too, by their name or ID.
    Chosen,
}

impl Traced {
    /// `is_choice`: threads were asked for, or chosen where nobody was.
    pub(crate) fn of(targets: &Targets, is_choice: bool) -> Self {
        let are_named =
            !targets.pids.is_empty() || !targets.tids.is_empty() || targets.comm.is_some();
        match is_choice {
            false => Self::All,
            true if are_named || targets.are_all() => Self::Chosen,
            true => Self::Families,
        }
    }
}

/// A place where a thread waits: its stack, the kernel's if it has no other, and the system call.
type Place = (Thread, u64, u64, i16);

/// IDs; the name where those are hidden in another PID namespace.
type Thread = (u32, u32, Option<Arc<str>>);

#[derive(Default)]
struct Sum {
    ns: u64,
    /// Until work came, without the run queue.
    blocked_ns: u64,
    waits: u64,
    /// Some of the waits are over; a signal may have ended them.
    has_ended: bool,
}

impl Sum {
    fn add(&mut self, row: &Row) {
        self.ns += row.blocked_ns + row.runqueue_ns;
        if !row.wait.is_runnable() {
            self.blocked_ns += row.blocked_ns;
            self.waits += row.count;
            self.has_ended |= row.count > u64::from(row.is_open);
        }
    }
}

/// Fewest frames of a thread's waits that may be idle, and of those that are not.
#[derive(Default)]
struct Outermost {
    idle: Option<usize>,
    busy: Option<usize>,
    /// Reads from pipes, and all else.
    pipe: Option<usize>,
    beside: Option<usize>,
}

impl Outermost {
    /// Takes note of how deep a wait is.
    fn lower(&mut self, row: &Row, depth: usize) {
        if row.wait.may_be_idle() {
            lower(&mut self.idle, depth);
        }
        // All that a server does below is for its client.
        if !row.wait.may_be_idle() || row.wait.is_for_client() {
            lower(&mut self.busy, depth);
        }
        match row.wait.reads_pipe() {
            true => lower(&mut self.pipe, depth),
            false => lower(&mut self.beside, depth),
        }
    }

    /// Tells if a thread comes back to a pipe from other waits, all of which are deeper: it serves what comes through it.
    fn is_server(&self) -> bool {
        let both = self.pipe.zip(self.beside);
        both.is_some_and(|(pipe, beside)| pipe < beside)
    }
}

fn lower(least: &mut Option<usize>, depth: usize) {
    *least = Some(least.map_or(depth, |least| least.min(depth)));
}

/// Knowledge of threads from all their rows.
#[derive(Default)]
struct Habits {
    /// Time off the CPU, and waits in it.
    per_thread: HashMap<Thread, Sum>,
    per_place: HashMap<Place, Sum>,
    /// Places where threads wait for their clients: how deep, and in which system call.
    for_clients: HashSet<(Thread, usize, i16)>,
    outermost: HashMap<Thread, Outermost>,
}

impl Habits {
    fn of(rows: &[Row], depths: &[Option<usize>]) -> Self {
        let mut habits = Self::default();
        for (row, depth) in rows.iter().zip(depths) {
            habits.add(row);
            if let Some(depth) = depth.filter(|_| row.wait.is_for_client()) {
                let at = (thread(row), depth, row.wait.syscall);
                habits.for_clients.insert(at);
            }
        }
        for (row, depth) in rows.iter().zip(depths) {
            let says = habits.share(row) >= SELDOM || habits.is_often_for_client(row);
            if let Some(depth) = depth.filter(|_| says && !row.wait.is_runnable()) {
                habits
                    .outermost
                    .entry(thread(row))
                    .or_default()
                    .lower(row, depth);
            }
        }
        habits
    }

    fn add(&mut self, row: &Row) {
        self.per_thread.entry(thread(row)).or_default().add(row);
        if row.user != LEFT_OUT {
            self.per_place.entry(place(row)).or_default().add(row);
        }
    }

    /// Tells if a row's wait is for a client: what a poll is for that began before a window is known of the thread's others there.
    fn is_for_client(&self, row: &Row, depth: Option<usize>) -> bool {
        let at = |depth| (thread(row), depth, row.wait.syscall);
        let is_unknown = row.wait.polls_unseen();
        let others = || depth.is_some_and(|depth| self.for_clients.contains(&at(depth)));
        row.wait.is_for_client() || is_unknown && others()
    }

    /// Share of its thread's time that a row's place has.
    fn share(&self, row: &Row) -> f64 {
        let of_place = self.per_place.get(&place(row)).map_or(0, |place| place.ns);
        of_place as f64 / self.per_thread[&thread(row)].ns.max(1) as f64
    }

    /// Tells if a row's waits are for a client, and many of its thread's.
    fn is_often_for_client(&self, row: &Row) -> bool {
        let waits = |sum: Option<&Sum>| sum.map_or(0, |sum| sum.waits) as f64;
        let all = waits(self.per_thread.get(&thread(row)));
        row.wait.is_for_client() && waits(self.per_place.get(&place(row))) >= OFTEN * all
    }

    /// Tells if a row, whose wait may be idle or reads from a pipe, is where its thread comes back to.
    fn is_home(&self, row: &Row, depth: Option<usize>, traced: Traced) -> bool {
        let outermost = self.outermost.get(&thread(row));
        let is_habit = self.share(row) >= HABIT;
        if row.wait.reads_pipe() {
            let server = outermost.filter(|outermost| outermost.is_server());
            let home = server.and_then(|outermost| outermost.pipe);
            return home.is_some() && depth == home || traced == Traced::All && is_habit;
        }
        let busy = outermost.and_then(|outermost| outermost.busy);
        let is_below = depth.zip(busy).is_some_and(|(depth, busy)| busy < depth);
        let is_home = depth.is_some() && depth == outermost.and_then(|outermost| outermost.idle);
        // A pool's thread that serves a connection comes back to the next request of this client, and later to the pool.
        let is_next_request = depth.is_some() && self.is_for_client(row, depth);
        !is_below && (is_home || is_habit || is_next_request)
    }
}

/// Tells of each row if it is idle, in order. `depths`: how deep each row's wait is in its program, where the stack is complete.
/// `traced`: whose rows these are. `has_left`: whether the thread of a row has ended after a wait for no condition variable, and
/// its program goes on: pools let threads go that have waited for long. `watches_sockets`: whether the epolls of a process do.
pub(crate) fn mark(
    rows: &[Row],
    depths: &[Option<usize>],
    traced: Traced,
    mut has_left: impl FnMut(&Row) -> bool,
    mut watches_sockets: impl FnMut(u32) -> bool,
) -> Vec<bool> {
    let habits = Habits::of(rows, depths);
    let is_idle = |(row, depth): (&Row, &Option<usize>)| {
        if row.wait.is_of_no_load() {
            return true;
        }
        if row.user == LEFT_OUT {
            return false;
        }
        if row.wait.is_stopped() {
            return traced == Traced::All && row.is_open && habits.share(row) >= HABIT;
        }
        if !(row.wait.may_be_idle() || row.wait.reads_pipe()) {
            return false;
        }
        let place = &habits.per_place[&place(row)];
        if !habits.is_home(row, *depth, traced) {
            return false;
        }
        if traced == Traced::Chosen && row.wait.is_for_child() && place.has_ended {
            return false;
        }
        let is_brisk = place.blocked_ns / place.waits.max(1) < BRISK_NS;
        let mut comes_by_socket = || match row.wait.reason() {
            Reason::Socket => true,
            Reason::Poll => habits.is_for_client(row, *depth),
            Reason::Epoll => watches_sockets(row.task.tgid),
            _ => false,
        };
        let is_only = place.waits == 1 && !row.is_open;
        (!is_brisk || comes_by_socket()) && !(is_only && has_left(row))
    };
    rows.iter().zip(depths).map(is_idle).collect()
}

/// Tells of each row if it is where its thread waits for work, in order: also where work comes soon, which is not idle. `depths`: as
/// for [`mark`]. A thread that hardly does more than read from a pipe is at home there.
pub(crate) fn homes(rows: &[Row], depths: &[Option<usize>]) -> Vec<bool> {
    let habits = Habits::of(rows, depths);
    let is_home = |(row, depth): (&Row, &Option<usize>)| {
        let may_be = row.wait.may_be_idle() || row.wait.reads_pipe();
        let is_known = row.user != LEFT_OUT && !row.wait.is_of_kernel_thread();
        may_be && is_known && habits.is_home(row, *depth, Traced::All)
    };
    rows.iter().zip(depths).map(is_home).collect()
}

/// Tells if a thread of Go's waits for a goroutine to run. Frames do not tell: the runtime parks in several places, on a stack of its
/// own that ends where it was switched to.
pub(crate) fn rests_in_go(wait: Wait, user: &[Frame]) -> bool {
    let may_rest = wait.may_be_idle() || wait.reason() == Reason::Sleep;
    may_rest && is_in_go(user)
}

/// Tells if it is a thread of Go's that runs no goroutine.
pub(crate) fn is_in_go(user: &[Frame]) -> bool {
    user.iter().any(|frame| GO_RESTS.contains(&&*frame.name))
}

fn thread(row: &Row) -> Thread {
    let name = (row.task.tid == 0).then(|| Arc::clone(&row.task.comm));
    (row.task.tgid, row.task.tid, name)
}

fn place(row: &Row) -> Place {
    let kernel = match row.wait.is_of_kernel_thread() {
        true => row.kernel,
        false => 0,
    };
    (thread(row), row.user, kernel, row.wait.syscall)
}

#[cfg(test)]
#[path = "idle_tests.rs"]
mod tests;
