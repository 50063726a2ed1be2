//! The system call that a thread waits in, from `/proc`.

use std::fs;

use host::waits::{self, Wait, file_type, flags};

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) wait: Wait,
    /// Its stack pointer, which says how deep in the program the call is.
    pub(crate) stack: u64,
}

/// Looks what a thread waits for; `None`: for nothing, it is a kernel thread, or may not be looked at.
pub(crate) fn of(tgid: u32, tid: u32) -> Option<Blocked> {
    let directory = format!("/proc/{tgid}/task/{tid}");
    let call = fs::read_to_string(format!("{directory}/syscall")).ok()?;
    // The text of the link: a dead network file system would hold up a look at the file.
    let link = |fd| fs::read_link(format!("{directory}/fd/{fd}")).ok();
    let file_type = |fd| link(fd).map_or(0, |path| type_of(&path.to_string_lossy()));
    let mut blocked = parse(&call, file_type)?;
    if !blocked.wait.may_be_idle() {
        let stat = fs::read(format!("{directory}/stat")).ok()?;
        blocked.wait.flags |= state_flags(&stat)?;
    }
    Some(blocked)
}

/// `NUMBER ARGUMENT… STACK_POINTER PROGRAM_COUNTER`, or `-1 STACK_POINTER PROGRAM_COUNTER` outside of a call.
fn parse(call: &str, file_type: impl Fn(u64) -> u8) -> Option<Blocked> {
    let mut fields = call.split_ascii_whitespace();
    let syscall: i16 = fields.next()?.parse().ok()?;
    let words: Option<Vec<u64>> = fields
        .map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .collect();
    let words = words?;
    let at = words.len().checked_sub(2)?;
    let (stack, instruction) = (*words.get(at)?, *words.get(at + 1)?);
    // A 32-bit program has other numbers of calls.
    if stack == 0 || stack.max(instruction) <= u64::from(u32::MAX) {
        return None;
    }
    let mut wait = Wait {
        syscall,
        ..Wait::default()
    };
    let number = usize::try_from(syscall).ok();
    if let (Some(number), [first, operation, value, ..]) = (number, &words[..]) {
        let takes_fd = waits::takes_fd();
        if takes_fd
            .get(number / 64)
            .is_some_and(|bits| bits >> (number % 64) & 1 == 1)
        {
            // An int, too.
            wait.file_type = file_type(*first & u64::from(u32::MAX));
        }
        if i32::from(syscall) == waits::futex_syscall() {
            wait.futex_op = *operation as u8;
            // An int, whatever the rest of the register has.
            wait.futex_value = (*value as u32).min(0x100);
        }
    }
    Some(Blocked { wait, stack })
}

/// The kind of file that such a link leads to, as far as it tells.
fn type_of(link: &str) -> u8 {
    const ANONYMOUS: u8 = 0;
    match link {
        "anon_inode:[eventfd]" => file_type::EVENTFD,
        "anon_inode:inotify" => file_type::INOTIFY,
        "anon_inode:[timerfd]" => file_type::TIMERFD,
        "anon_inode:[signalfd]" => file_type::SIGNALFD,
        _ if link.starts_with("socket:") => file_type::SOCKET,
        _ if link.starts_with("pipe:") => file_type::FIFO,
        _ if link.starts_with("/dev/") => file_type::CHARACTERS,
        _ if link.starts_with('/') => file_type::REGULAR,
        _ => ANONYMOUS,
    }
}

/// `None`: it is stopped, or waits no more.
fn state_flags(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    match stat.get(end + 2)? {
        b'D' => Some(flags::UNINTERRUPTIBLE),
        b'S' => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use host::waits::Reason;

    use super::*;

    fn reason(call: &str) -> Reason {
        let blocked = parse(call, |fd| if fd == 3 { 12 } else { 0 });
        blocked.expect("a wait").wait.reason()
    }

    #[test]
    fn a_line_tells_the_call_and_how_deep_it_is() {
        let lock = format!(
            "{} 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffe7ffd10 0x7f01",
            libc::SYS_futex
        );
        let blocked = parse(&lock, |_| 0).expect("a wait");
        assert_eq!(blocked.stack, 0x7f_fe7f_fd10);
        assert_eq!((blocked.wait.futex_op, blocked.wait.futex_value), (0x80, 2));
        assert!(!blocked.wait.may_be_idle());
        assert_eq!(reason(&lock), Reason::Futex);
        let condition = lock.replace("0x80 0x2", "0x189 0xffffffff00001234");
        let wait = parse(&condition, |_| 0).expect("a wait").wait;
        assert_eq!((wait.futex_op, wait.futex_value), (0x89, 0x100));
        assert!(wait.may_be_idle());
        let of = |number: libc::c_long, fd: u8| {
            format!("{number} 0x{fd} 0x1 0x2 0x0 0x0 0x0 0x900000000 0x8")
        };
        assert_eq!(reason(&of(libc::SYS_recvfrom, 3)), Reason::Socket);
        assert_eq!(reason(&of(libc::SYS_flock, 5)), Reason::FileLock);
        assert_eq!(reason("-1 0x7ffe7ffd10 0x7f01"), Reason::PageFault);
    }

    #[test]
    fn what_is_no_wait_is_left_out() {
        for line in [
            "running\n",
            "",
            "0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0",
            "-1 0x1",
            "x 0x1 0x2",
            "202 0x1 2 0x3",
            "99999 0x1 0x2 0x3",
            // A program of 32 bits.
            "240 0x7f00 0x80 0x2 0x0 0x0 0x0 0xffffd10 0xf7f01",
        ] {
            assert_eq!(parse(line, |_| 0), None, "{line}");
        }
        assert_eq!(state_flags(b"7 (a) R b) D 1"), Some(flags::UNINTERRUPTIBLE));
        assert_eq!(state_flags(b"7 (a) S 1"), Some(0));
        assert_eq!(state_flags(b"7 (a) T 1"), None);
        assert_eq!(state_flags(b"7 (a)"), None);
        for (link, kind) in [
            ("socket:[7]", 12),
            ("pipe:[7]", 1),
            ("/dev/pts/0", 2),
            ("/tmp/a", 8),
            ("anon_inode:[eventfd]", 16),
            ("anon_inode:inotify", 17),
            ("anon_inode:[timerfd]", 18),
            ("anon_inode:[signalfd]", 19),
            ("anon_inode:[fanotify]", 0),
        ] {
            assert_eq!(type_of(link), kind, "{link}");
        }
    }

    #[test]
    fn a_thread_that_waits_for_another_is_seen() {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: it takes nothing and cannot fail.
            let tid = unsafe { libc::gettid() }.cast_unsigned();
            tell.send(tid).expect("somebody listens");
            wait.recv().expect_err("nothing is sent");
        });
        let other = told.recv().expect("its ID");
        let reason = loop {
            // On its way it may wait for a page.
            let blocked = of(std::process::id(), other);
            if let Some(blocked) = blocked.filter(|blocked| blocked.wait.syscall >= 0) {
                break blocked.wait.reason();
            }
            std::thread::yield_now();
        };
        assert_eq!(reason, Reason::Futex);
        drop(release);
        thread.join().expect("an end");
    }
}
