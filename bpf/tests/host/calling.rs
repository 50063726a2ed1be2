//! lockstat's programs, and rows that they hand over: the functions that its hosts share.

use std::ffi::c_void;
use std::slice;

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
        /// Its place: on a queue, on a CPU.
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

    /// Takes the rows of a half, as `host_take` says.
    pub(crate) fn take(&self, half: u32) -> Vec<Vec<u64>> {
        let mut rows = Vec::new();
        self.host.tell("host_take", (half, row as Row, &mut rows));
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
    pub(crate) fn renumber(&mut self, rows: &mut [Vec<u64>], interned: impl Fn(u64) -> [u64; 8]) {
        for row in rows.iter_mut().filter(|row| row[0] == 2 && row[10] != 0) {
            row[10] = self.number_of(interned(row[10]));
        }
    }
}
