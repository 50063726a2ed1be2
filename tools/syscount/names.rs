//! Names of system calls and errors, and which calls are there to wait.

use std::borrow::Cow;

use host::CompatCall;
use syscalls::{Errno, Sysno};

/// Calls of 32-bit programs, as the BPF side marks them.
const COMPAT: u32 = 1 << 31;
/// Those that have slept until somebody at the other end did something.
const PEER: u32 = 1 << 30;

/// Largest number of an error.
pub(crate) const MAX_ERROR: u32 = 4095;

/// Looks whether an error is the kernel's own: the call is taken up again or becomes `EINTR` (include/linux/errno.h).
pub(crate) fn is_interruption(error: u32) -> bool {
    (512..=516).contains(&error)
}

/// Number of a call in its table.
pub(crate) fn number(call: u32) -> u32 {
    call & !(COMPAT | PEER)
}

/// Looks whether it is a 32-bit program's.
pub(crate) fn is_compat(call: u32) -> bool {
    call & COMPAT != 0
}

/// `read`; those younger than the table are told by their numbers.
pub(crate) fn call(call: u32) -> Cow<'static, str> {
    let at = number(call) as usize;
    let name = if is_compat(call) {
        CompatCall::new(at).map(|call| call.name())
    } else {
        Sysno::new(at).map(|call| call.name())
    };
    name.map_or_else(|| format!("call {at}").into(), Cow::Borrowed)
}

/// `ENOENT`; a number for errors that only the kernel knows.
pub(crate) fn error(number: u32) -> Cow<'static, str> {
    let name = Errno::new(number.cast_signed()).name();
    name.map_or_else(|| number.to_string().into(), Cow::Borrowed)
}

/// The same backwards, for the command line.
pub(crate) fn error_number(text: &str) -> Result<u32, String> {
    let names = |number: &u32| error(*number).eq_ignore_ascii_case(text);
    let known = text.parse().ok().or_else(|| (1..=MAX_ERROR).find(names));
    known
        .filter(|number| (1..=MAX_ERROR).contains(number) && !is_interruption(*number))
        .ok_or_else(|| "no error; write ENOENT, or 2".into())
}

/// Calls whose business is to wait: for events, timers, children, signals, or for other threads.
const WAITS: &str = "accept accept4 clock_nanosleep epoll_pwait epoll_pwait2 epoll_wait futex futex_wait futex_waitv \
    io_getevents io_pgetevents io_uring_enter mq_timedreceive mq_timedsend msgrcv msgsnd nanosleep _newselect pause poll ppoll pselect6 \
    restart_syscall rt_sigsuspend rt_sigtimedwait select semop semtimedop vfork wait4 \
    waitid waitpid";

/// Looks whether a call was there to wait: its time says nothing of work.
pub(crate) fn is_wait(at: u32) -> bool {
    // 32-bit programs have some twice.
    let is = |wait: &str| call(at).trim_end_matches("_time64") == wait;
    at & PEER != 0 || WAITS.split_whitespace().any(is)
}

/// Looks whether a call gives back what a signal's handler interrupted, its error included.
pub(crate) fn is_sigreturn(name: &str) -> bool {
    matches!(name, "rt_sigreturn" | "sigreturn")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_names_of_their_tables() {
        let number = u32::try_from(libc::SYS_openat).unwrap();
        assert_eq!(call(number), "openat");
        assert_eq!(call(3 | COMPAT), "read");
        assert_eq!(call(100_000), "call 100000");
        let known: Vec<&str> = Sysno::iter().map(|call| call.name()).collect();
        let compat: Vec<&str> = CompatCall::iter().map(|call| call.name()).collect();
        for wait in WAITS.split_whitespace() {
            assert!(known.contains(&wait) || compat.contains(&wait), "{wait}");
        }
        let poll = u32::try_from(libc::SYS_ppoll).unwrap();
        assert!(is_wait(poll) && is_wait(414 | COMPAT) && !is_wait(number));
        let read = u32::try_from(libc::SYS_read).unwrap();
        assert!(is_wait(read | PEER) && !is_wait(read));
        assert_eq!(call(read | PEER), "read");
    }

    #[test]
    fn errors_are_names_or_numbers() {
        assert_eq!(error(2), "ENOENT");
        assert_eq!(error(4_000), "4000");
        for (text, number) in [("ENOENT", 2), ("enoent", 2), ("11", 11), ("4000", 4_000)] {
            assert_eq!(error_number(text), Ok(number));
        }
        for bad in ["", "0", "4096", "-2", "ENOSUCH", "ERESTARTSYS", "514"] {
            assert!(error_number(bad).is_err(), "{bad}");
        }
    }
}
