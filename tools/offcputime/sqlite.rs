//! Waits for a database of SQLite that is locked.
//!
//! Its locks are those of files, which it only tries, and sleeps in between: the default handler of `SQLITE_BUSY`
//! (<https://www.sqlite.org/c3ref/busy_timeout.html>).

use profile::frame::Frame;

/// Frames from the leaf on that are looked at.
const NEAR: usize = 12;
/// Beginnings of the library's files, and of its functions.
const LIBRARY: &str = "libsqlite3";
const FUNCTIONS: &str = "sqlite";
/// Its function that sleeps for its caller.
const SLEEP: &str = "sqlite3_sleep";
/// Functions that put a thread to sleep: those of C libraries, and the one by which SQLite calls them.
const SLEEPS: [&str; 7] = [
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "syscall",
    "thrd_sleep",
    "unixSleep",
];

/// Tells if a thread that sleeps does so because SQLite found a lock taken. `user`: root first.
pub(crate) fn is_busy(user: &[Frame]) -> bool {
    let near = user.iter().rev().take(NEAR);
    let mut callers = near.skip_while(|frame| puts_to_sleep(frame));
    let is_own =
        |frame: &Frame| file(frame).starts_with(LIBRARY) || frame.name.starts_with(FUNCTIONS);
    callers
        .next()
        .is_some_and(|caller| is_own(caller) && &*caller.name != SLEEP)
}

fn puts_to_sleep(frame: &Frame) -> bool {
    let name = frame.name.trim_start_matches('_');
    let in_libc = ["libc.so", "libc-", "ld-musl", "linux-vdso"];
    SLEEPS.contains(&name) || in_libc.iter().any(|begin| file(frame).starts_with(begin))
}

/// The file of a frame, without its directory.
fn file(frame: &Frame) -> &str {
    let module = frame.module.as_deref().unwrap_or_default();
    module.rsplit('/').next().unwrap_or(module)
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
        assert!(!busy(&[of(SQLITE, "sqlite3_sleep")]));
        assert!(!busy(&[step(), bundled("slow")]));
        assert!(!busy(&[]));
    }
}
