//! Waits for a database of SQLite that is locked.
//!
//! Its locks are those of files, which it only tries, and sleeps in between: the default handler of `SQLITE_BUSY`
//! (<https://www.sqlite.org/c3ref/busy_timeout.html>).

use profile::frame::Frame;

/// Frames from the leaf on that are looked at.
const NEAR: usize = 12;
/// Beginnings of the library's files, and of its functions.
const LIBRARY: &str = "libsqlite3";
const FUNCTIONS: [&str; 2] = ["sqlite3", "sqliteDefaultBusyCallback"];
/// Its function that sleeps for its caller.
const SLEEP: &str = "sqlite3_sleep";
/// The library's functions, from the innermost on, that one is among if it sleeps: a stripped library names only what it exports.
const WITHIN: usize = 3;
/// Functions that put a thread to sleep: those of C libraries, and those by which SQLite calls them.
const SLEEPS: [&str; 8] = [
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "syscall",
    "thrd_sleep",
    "unixSleep",
    "sqlite3OsSleep",
];

/// Tells if a thread that sleeps does so because SQLite found a lock taken. `user`: root first.
pub(crate) fn is_busy(user: &[Frame]) -> bool {
    let near = user.iter().rev().take(NEAR);
    let callers = near.skip_while(|frame| puts_to_sleep(frame));
    let own = callers.take_while(|frame| is_own(frame)).take(WITHIN);
    let mut own = own.peekable();
    own.peek().is_some() && own.all(|frame| &*frame.name != SLEEP)
}

fn is_own(frame: &Frame) -> bool {
    let is_named = FUNCTIONS.iter().any(|begin| frame.name.starts_with(begin));
    is_named || frame.file_name().starts_with(LIBRARY)
}

fn puts_to_sleep(frame: &Frame) -> bool {
    let name = frame.name.trim_start_matches('_');
    let in_libc = ["libc.so", "libc-", "ld-musl", "linux-vdso"];
    SLEEPS.contains(&name)
        || in_libc
            .iter()
            .any(|begin| frame.file_name().starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::frame;

    fn of(file: &str, name: &str) -> Frame {
        Frame {
            module: Some(file.into()),
            ..frame(name)
        }
    }

    const LIBC: &str = "/usr/lib/libc.so.6";
    const SQLITE: &str = "/usr/lib/libsqlite3.so.0.8.6";

    #[test]
    fn sqlite_sleeps_while_a_lock_is_taken() {
        let main = || of("/usr/bin/app", "main");
        let sleep = || [of(LIBC, "clock_nanosleep"), of(LIBC, "__nanosleep")];
        let busy = |callers: &[Frame]| {
            let root_first: Vec<Frame> = [main()]
                .into_iter()
                .chain(callers.iter().cloned())
                .chain(sleep())
                .collect();
            is_busy(&root_first)
        };
        let step = || of(SQLITE, "sqlite3_step");
        assert!(busy(&[step(), of(SQLITE, "libsqlite3.so.0.8.6+0x1d2c")]));
        let bundled = |name| of("/usr/bin/app", name);
        let callback = [bundled("sqliteDefaultBusyCallback"), bundled("unixSleep")];
        assert!(busy(&callback));
        // By choice, and in a function of the program's that a query calls.
        let unnamed = of(SQLITE, "libsqlite3.so.0.8.6+0x9a0");
        assert!(!busy(&[of(SQLITE, "sqlite3_sleep"), unnamed]));
        let built_in = ["sqlite3_sleep", "sqlite3OsSleep", "unixSleep"].map(bundled);
        assert!(!busy(&built_in));
        assert!(!busy(&[bundled("sqlite_poll_loop")]));
        assert!(!busy(&[step(), bundled("slow")]));
        assert!(!busy(&[]));
    }
}
