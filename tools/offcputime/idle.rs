//! Detects the waits of threads with nothing to do.
//!
//! A thread waits for work at its home: where it comes back to between all else that it does, which is where it has the fewest
//! frames, those of libraries not counted. A wait there is idle if its kind may be (epoll, poll, accept, a client's next
//! request, a read of an eventfd or its like, a condition variable, a child, a parked kernel thread; a read from a pipe, if its thread
//! comes back to it from other waits, all of them deeper: else it may be for an answer). So is one at which its
//! thread spends nine tenths of its time off the CPU, as threads of Go park in several places. It is not below another wait
//! that is never idle, or one for a client; and not where work comes within 100 us on average: two threads that pass a token to
//! and fro have something to do. A thread that waited once, went on and left its program did not come back: it may have had
//! one lock to take, for one request. Of the whole machine's threads, those that hardly do more than read from a pipe say nothing, nor do
//! those that are stopped from end to end; of threads that were asked for, they may be the answer. A kernel thread is idle where the
//! kernel counts it for no load.

use std::collections::HashMap;
use std::sync::Arc;

use stacks::LEFT_OUT;

use crate::offcputime::harvest::Row;

/// Share of a thread's time off the CPU that makes a place its habit.
const HABIT: f64 = 0.9;
/// Share below which another wait says nothing of where a thread comes back to: it happens once, at the start.
const SELDOM: f64 = 0.01;
/// Mean time until a thread has work again, ns.
const BRISK_NS: u64 = 100_000;

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
    /// Time off the CPU, ns.
    per_thread: HashMap<Thread, u64>,
    per_place: HashMap<Place, Sum>,
    outermost: HashMap<Thread, Outermost>,
}

impl Habits {
    fn of(rows: &[Row], depths: &[Option<usize>]) -> Self {
        let mut habits = Self::default();
        for row in rows {
            habits.add(row);
        }
        for (row, depth) in rows.iter().zip(depths) {
            let says = !row.wait.is_runnable() && habits.share(row) >= SELDOM;
            if let Some(depth) = depth.filter(|_| says) {
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
        let ns = row.blocked_ns + row.runqueue_ns;
        *self.per_thread.entry(thread(row)).or_default() += ns;
        if row.user != LEFT_OUT {
            let place = self.per_place.entry(place(row)).or_default();
            place.ns += ns;
            if !row.wait.is_runnable() {
                place.blocked_ns += row.blocked_ns;
                place.waits += row.count;
            }
        }
    }

    /// Share of its thread's time that a row's place has.
    fn share(&self, row: &Row) -> f64 {
        let of_place = self.per_place.get(&place(row)).map_or(0, |place| place.ns);
        of_place as f64 / self.per_thread[&thread(row)].max(1) as f64
    }

    /// Tells if a row, whose wait may be idle or reads from a pipe, is where its thread comes back to.
    fn is_home(&self, row: &Row, depth: Option<usize>, is_choice: bool) -> bool {
        let outermost = self.outermost.get(&thread(row));
        let is_habit = self.share(row) >= HABIT;
        if row.wait.reads_pipe() {
            let server = outermost.filter(|outermost| outermost.is_server());
            let home = server.and_then(|outermost| outermost.pipe);
            return home.is_some() && depth == home || !is_choice && is_habit;
        }
        let busy = outermost.and_then(|outermost| outermost.busy);
        let is_below = depth.zip(busy).is_some_and(|(depth, busy)| busy < depth);
        let is_home = depth.is_some() && depth == outermost.and_then(|outermost| outermost.idle);
        !is_below && (is_home || is_habit)
    }
}

/// Tells of each row if it is idle, in order. `depths`: how deep each row's wait is in its program, where the stack is complete.
/// `is_choice`: threads were asked for. `has_left`: whether the thread of a row has ended after a wait for no condition variable, and
/// its program goes on: pools let threads go that have waited for long.
pub(crate) fn mark(
    rows: &[Row],
    depths: &[Option<usize>],
    is_choice: bool,
    mut has_left: impl FnMut(&Row) -> bool,
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
            return !is_choice && row.is_open && habits.share(row) >= HABIT;
        }
        if !(row.wait.may_be_idle() || row.wait.reads_pipe()) {
            return false;
        }
        let place = &habits.per_place[&place(row)];
        let is_brisk = place.blocked_ns / place.waits.max(1) < BRISK_NS;
        let is_only = place.waits == 1 && !row.is_open;
        !is_brisk && habits.is_home(row, *depth, is_choice) && !(is_only && has_left(row))
    };
    rows.iter().zip(depths).map(is_idle).collect()
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
mod tests {
    use host::waits::{Wait, file_type, flags};
    use profile::model::Task;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A wait of a thread in a call, at a depth, for some time in as many pieces.
    fn row(tid: u32, call: libc::c_long, user: u64, ns: u64, count: u64) -> Row {
        Row {
            task: Task {
                comm: "a".into(),
                tgid: 1,
                tid,
            },
            wait: Wait {
                syscall: call.try_into().expect("a small number"),
                ..Wait::default()
            },
            user,
            kernel: 9,
            waker: 0,
            blocked_ns: ns,
            runqueue_ns: 0,
            count,
            is_open: false,
        }
    }

    /// Stacks are called by their depths.
    fn marked(rows: &[Row]) -> Vec<bool> {
        let depths = rows.iter().map(|row| Some(row.user as usize));
        mark(rows, &depths.collect::<Vec<_>>(), true, |_| false)
    }

    #[test]
    fn an_event_loop_is_idle_at_home_and_busy_with_its_database() {
        let rows = [
            row(1, libc::SYS_epoll_pwait, 3, 71 * MS, 5),
            row(1, libc::SYS_ppoll, 7, 18 * MS, 5),
            row(1, libc::SYS_write, 8, 11 * MS, 5),
        ];
        assert_eq!(marked(&rows), [true, false, false]);
    }

    #[test]
    fn a_thread_that_serves_a_client_is_not_idle_in_its_database() {
        // It reads its client's requests at the outermost frames.
        let rows = [
            row(1, libc::SYS_recvfrom, 4, 5 * MS, 5),
            row(1, libc::SYS_ppoll, 7, 95 * MS, 5),
        ];
        assert_eq!(marked(&rows), [false, false]);
        // A wait that happened once, at its start, says nothing.
        let rows = [
            row(1, libc::SYS_flock, 2, MS / 2, 1),
            row(1, libc::SYS_epoll_pwait, 3, 80 * MS, 5),
            row(1, libc::SYS_ppoll, 7, 19 * MS, 5),
            row(1, libc::SYS_wait4, 1, MS / 2, 1),
        ];
        assert_eq!(marked(&rows), [false, true, false, false]);
        // A worker writes what it is given, in the function where it waits for more.
        let rows = [
            row(1, libc::SYS_futex, 3, 97 * MS, 50),
            row(1, libc::SYS_fsync, 3, 3 * MS, 50),
        ];
        assert_eq!(marked(&rows), [true, false]);
    }

    #[test]
    fn a_thread_that_waits_for_its_client_is_idle_and_not_in_its_database() {
        let for_client = |user| {
            let mut row = row(1, libc::SYS_recvfrom, user, 5 * MS, 5);
            row.wait.file_type = file_type::ACCEPTED;
            row
        };
        let rows = [
            for_client(4),
            row(1, libc::SYS_ppoll, 7, 95 * MS, 5),
            row(1, libc::SYS_recvfrom, 7, MS, 5),
        ];
        assert_eq!(marked(&rows), [true, false, false]);
        // Deeper than other work it is a part of that: a body that is read by its handler.
        let rows = [row(1, libc::SYS_recvfrom, 4, 5 * MS, 5), for_client(9)];
        assert_eq!(marked(&rows), [false, false]);
    }

    #[test]
    fn a_server_is_idle_where_it_reads_requests_from_a_pipe() {
        let from_pipe = |user, count| {
            let mut row = row(1, libc::SYS_read, user, 50 * MS, count);
            row.wait.file_type = file_type::FIFO;
            row
        };
        let query = |user| row(1, libc::SYS_ppoll, user, 40 * MS, 5);
        assert_eq!(marked(&[from_pipe(3, 5), query(7)]), [true, false]);
        // An answer that is waited for: its thread has nothing else, or comes from outside.
        assert_eq!(marked(&[from_pipe(3, 5)]), [false]);
        assert!(!marked(&[from_pipe(7, 5), query(3)])[0]);
        assert!(!marked(&[from_pipe(3, 5), query(3)])[0]);
        // Another pipe, which it reads below.
        assert_eq!(
            marked(&[from_pipe(3, 5), query(7), from_pipe(9, 5)]),
            [true, false, false]
        );
        // A token that goes to and fro.
        assert_eq!(marked(&[from_pipe(3, 1000), query(7)]), [false, false]);
    }

    #[test]
    fn threads_that_pass_a_token_are_not_idle() {
        let rows = [
            row(1, libc::SYS_futex, 3, 10 * MS, 1000),
            row(2, libc::SYS_read, 3, 10 * MS, 99),
        ];
        assert_eq!(marked(&rows), [false, true]);
    }

    #[test]
    fn a_reader_of_a_pipe_says_nothing_of_the_machine() {
        let from_pipe = |tid, count| {
            let mut row = row(tid, libc::SYS_read, 3, 90 * MS, count);
            row.wait.file_type = file_type::FIFO;
            row
        };
        let stopped = |tid, is_open| {
            let mut row = row(tid, libc::SYS_read, 3, 90 * MS, 1);
            row.wait.flags = flags::STOPPED;
            row.is_open = is_open;
            row
        };
        let rows = [
            from_pipe(1, 5),
            // A token goes to and fro.
            from_pipe(2, 1000),
            // Another wait is as long.
            from_pipe(3, 5),
            row(3, libc::SYS_fsync, 3, 90 * MS, 5),
            stopped(4, true),
            stopped(5, false),
        ];
        let of = |is_choice| mark(&rows, &[Some(3); 6], is_choice, |_| false);
        assert_eq!(of(false), [true, false, false, false, true, false]);
        assert_eq!(of(true), [false; 6]);
    }

    #[test]
    fn a_kernel_thread_that_is_no_load_has_nothing_to_do() {
        let at = |kernel| {
            let mut row = row(2, 0, 0, MS, 5);
            row.wait.flags = flags::KERNEL_THREAD | flags::NOLOAD;
            row.wait.syscall = -1;
            row.kernel = kernel;
            row
        };
        let depths = [Some(4), Some(9)];
        assert_eq!(mark(&[at(4), at(9)], &depths, true, |_| false), [true; 2]);
    }

    #[test]
    fn a_thread_that_waited_once_and_left_did_not_come_back() {
        let once = row(1, libc::SYS_futex, 3, 90 * MS, 1);
        let twice = row(2, libc::SYS_futex, 3, 90 * MS, 2);
        let open = Row {
            is_open: true,
            ..row(3, libc::SYS_futex, 3, 90 * MS, 1)
        };
        let rows = [once, twice, open];
        assert_eq!(marked(&rows), [true, true, true]);
        let depths = [Some(3); 3];
        assert_eq!(mark(&rows, &depths, true, |_| true), [false, true, true]);
    }

    #[test]
    fn kernel_threads_are_idle_where_they_begin() {
        let kernel = |kernel, ns| Row {
            wait: Wait {
                flags: flags::KERNEL_THREAD,
                syscall: -1,
                ..Wait::default()
            },
            kernel,
            ..row(2, 0, 0, ns, 1)
        };
        let rows = [kernel(4, 60 * MS), kernel(9, 40 * MS)];
        assert_eq!(
            mark(&rows, &[Some(4), Some(9)], true, |_| false),
            [true, false]
        );
    }

    #[test]
    fn a_habit_tells_where_a_stack_is_not_complete() {
        let rows = [
            row(1, libc::SYS_epoll_pwait, 3, 95 * MS, 5),
            row(1, libc::SYS_ppoll, 7, 5 * MS, 5),
        ];
        assert_eq!(mark(&rows, &[None, None], true, |_| false), [true, false]);
    }
}
