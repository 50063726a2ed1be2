//! lockstat's programs, and rows that they hand over: the functions that its hosts share.

use std::ffi::c_void;
use std::fmt::Debug;
use std::slice;

use crate::futex_account::says_something;
use crate::host::Host;

pub(crate) type Pointer = *mut c_void;

/// A method that calls a function of the host with the same arguments.
macro_rules! calls {
    ($($(#[$about:meta])* $method:ident = $name:literal ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $($(#[$about])*
        pub(crate) fn $method(&self, $($argument: $type),*) $(-> $result)? {
            self.host.ask($name, ($($argument,)*))
        })*
    };
}

/// A thread's place, by whose number holders are told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Running,
    Queued,
    Asleep,
}

impl Place {
    /// That of one that has left its CPU.
    pub(crate) fn left(runnable: bool) -> Self {
        match runnable {
            true => Self::Queued,
            false => Self::Asleep,
        }
    }
}

/// Kinds of holders: the lock names it; it ended the wait.
pub(crate) const OWNER: u64 = 1;
pub(crate) const WAKER: u64 = 3;

#[derive(Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) kind: u64,
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    /// Running, queued or asleep: 0 to 2.
    pub(crate) state: usize,
    /// Its kernel stack, if that was walked.
    pub(crate) stack: u64,
}

impl Holder {
    /// One that runs.
    pub(crate) fn waker(tid: u32, tgid: u32) -> Self {
        Self {
            kind: WAKER,
            tid,
            tgid,
            state: 0,
            stack: 0,
        }
    }
}

type Row = extern "C" fn(*mut Vec<Vec<u64>>, *const u64, u32);

/// Adds a row's numbers to a list.
extern "C" fn row(to: *mut Vec<Vec<u64>>, numbers: *const u64, count: u32) {
    // SAFETY: the host hands over what it was given, and as many numbers.
    unsafe { (*to).push(slice::from_raw_parts(numbers, count as usize).to_vec()) };
}

/// Tasks, pages and locks are what it has given out.
pub(crate) struct Programs {
    pub(crate) host: Host,
}

impl Programs {
    calls! {
        set = "host_set" (now: u64, cpu: u32, task: Pointer);
        /// The place of whoever is current, and whether scratches are in use.
        at = "host_at" (place: u64, is_taken: bool);
        /// Thread and process number.
        thread = "host_thread" (tid: u32, tgid: u32) -> Pointer;
        free_task = "host_free_task" (task: Pointer);
        seed = "host_seed" (task: Pointer);
        /// On a queue, on a CPU.
        state = "host_state" (task: Pointer, queued: bool, runs: bool);
        /// A switch out; `runnable`: it goes on a queue.
        leaves = "host_leaves" (task: Pointer, runnable: bool);
        close = "host_close" (task: Pointer);
        /// An interval ends, and the window if it is the last one; half of its rows.
        turn = "host_turn" (now: u64, is_last: bool) -> u32;
        /// No table takes another row.
        fill = "host_fill" ();
        stall = "host_stall" ();
    }

    pub(crate) fn waking(&self, task: Pointer) {
        self.host.run("sched_waking", &[task as u64]);
    }

    /// Numbers of what was interned.
    pub(crate) fn interned(&self, id: u64) -> [u64; 8] {
        self.host.told("host_interned", (id,))
    }

    pub(crate) fn puts(&self, task: Pointer, place: Place) {
        self.state(task, place == Place::Queued, place == Place::Running);
    }

    /// Takes the rows of a half that say something, in the form of `Book::take`; their wakers' records have the model's numbers.
    pub(crate) fn take(&self, half: u32, wakers: &mut Wakers) -> Vec<Vec<u64>> {
        let mut rows = Vec::new();
        self.host.tell("host_take", (half, row as Row, &mut rows));
        wakers.renumber(&mut rows, |id| self.interned(id));
        rows.retain(|row| says_something(row));
        rows.sort();
        rows
    }

    /// Locks that are described, or their names, as `host_tell` says.
    pub(crate) fn tell(&self) -> Vec<Vec<u64>> {
        let mut rows = Vec::new();
        self.host.tell("host_tell", (row as Row, &mut rows));
        rows
    }

    /// The numbers of `host_told`.
    pub(crate) fn told<T: Default>(&self) -> T {
        self.host.told("host_told", ())
    }
}

/// Compares rows, each with all that tells it apart, and its sums.
pub(crate) fn assert_same<T: Ord + Debug>(of: &str, programs: &[T], model: &[T]) {
    let only = |rows: &[T], others: &[T]| -> String {
        let only = rows.iter().filter(|row| others.binary_search(row).is_err());
        only.take(5).map(|row| format!("\n{row:?}")).collect()
    };
    assert!(
        programs == model,
        "{of}: programs have {}\nand the model has {}",
        only(programs, model),
        only(model, programs)
    );
}

/// Records of those who woke others, by numbers that begin with 1.
#[derive(Default)]
pub(crate) struct Wakers(Vec<[u64; 8]>);

impl Wakers {
    pub(crate) fn number_of(&mut self, record: [u64; 8]) -> u64 {
        let known = self.0.iter().position(|known| *known == record);
        let at = known.unwrap_or_else(|| {
            self.0.push(record);
            self.0.len() - 1
        });
        at as u64 + 1
    }

    /// Gives waiters' rows these numbers for the ids that the programs have.
    fn renumber(&mut self, rows: &mut [Vec<u64>], interned: impl Fn(u64) -> [u64; 8]) {
        for row in rows.iter_mut().filter(|row| row[0] == 2 && row[10] != 0) {
            row[10] = self.number_of(interned(row[10]));
        }
    }
}
