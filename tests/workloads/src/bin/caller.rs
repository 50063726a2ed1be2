//! System calls of known numbers, errors and lengths.
//!
//! It makes none of these kinds beside those that it says; its own account and the protocol take others.

use std::thread;

use serde_json::{Value, json};
use usekit_workloads::flags::Flags;
use usekit_workloads::{clock, protocol, task};

const USAGE: &str = "caller [--compat]";

/// Primes, so that no other number of calls adds up to one.
const PARENTS: u64 = 997;
const MISSING: u64 = 97;
const BAD: u64 = 53;
const EMPTY: u64 = 23;
const SLEEPS: u64 = 11;
const SLEEP_NS: u64 = 7_000_000;
const INTERRUPTED: u64 = 5;
const REFUSED: u64 = 13;
const COMPAT: u64 = 19;

/// Makes a call that has to fail with `error`, or has to work if that is 0.
fn call(times: u64, error: i32, mut make: impl FnMut() -> libc::c_long) {
    for _ in 0..times {
        let result = make();
        let failed = std::io::Error::last_os_error().raw_os_error();
        assert_eq!(if result < 0 { failed } else { Some(0) }, Some(error));
    }
}

fn failures() {
    let path = c"/no/such/file".as_ptr();
    // SAFETY: the path is a string; a bad descriptor and an empty eventfd are what it is about.
    unsafe {
        call(MISSING, libc::ENOENT, || {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, 0)
        });
        call(BAD, libc::EBADF, || libc::syscall(libc::SYS_fsync, -1));
        let event = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        let mut word = 0_u64;
        let to = (&raw mut word).cast::<libc::c_void>();
        call(EMPTY, libc::EAGAIN, || {
            let to = libc::iovec {
                iov_base: to,
                iov_len: 8,
            };
            libc::syscall(libc::SYS_readv, event, &raw const to, 1)
        });
    }
}

extern "C" fn handler(_: libc::c_int) {}

/// Suspends itself until a timer's signal comes; from before to after each of them in all, ns.
fn interruptions() -> u64 {
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 0,
            tv_usec: 3_000,
        },
    };
    let mut length_ns = 0;
    // SAFETY: the sets are initialised; the signal is blocked but while it is waited for.
    unsafe {
        let (mut blocked, mut none) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut none);
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGALRM);
        libc::signal(libc::SIGALRM, handler as *const () as libc::sighandler_t);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
        for _ in 0..INTERRUPTED {
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
            let start_ns = clock::mono_ns();
            libc::sigsuspend(&raw const none);
            length_ns += clock::mono_ns() - start_ns;
        }
    }
    length_ns
}

/// A thread that may not ask for a process group: seccomp refuses before the kernel's own tracers see the call.
fn refusals() {
    const fn statement(code: u16, k: u32) -> libc::sock_filter {
        jump(code, k, 0)
    }
    const fn jump(code: u16, k: u32, jf: u8) -> libc::sock_filter {
        libc::sock_filter { code, jt: 0, jf, k }
    }
    let number = u32::try_from(libc::SYS_getpgid).expect("numbers fit");
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter = [
        // The number; whether it is the one; refuse, or allow.
        statement(0x20, 0),
        jump(0x15, number, 1),
        statement(0x06, refused),
        statement(0x06, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program lives; only this thread is bound by it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
        call(REFUSED, libc::EPERM, || libc::syscall(libc::SYS_getpgid, 0));
    }
}

/// `getsid` by the way of 32-bit programs.
#[cfg(target_arch = "x86_64")]
fn compat_calls() {
    for _ in 0..COMPAT {
        let mut result: i64 = 147;
        // SAFETY: the call reads no memory. It clears r8 to r11.
        unsafe {
            std::arch::asm!("push rbx", "xor ebx, ebx", "int 0x80", "pop rbx", inout("rax") result,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        // There is no number for a session that began outside the PID namespace.
        assert!(result >= 0, "{result}");
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn compat_calls() {
    panic!("no way to call as a 32-bit program");
}

/// From before to after each sleep in all, ns.
fn sleeps() -> u64 {
    let mut length_ns = 0;
    for _ in 0..SLEEPS {
        let start_ns = clock::mono_ns();
        clock::sleep_ns(SLEEP_NS);
        length_ns += clock::mono_ns() - start_ns;
    }
    length_ns
}

fn told(name: &str, calls: u64, error: Option<&str>, ns: (u64, u64)) -> Value {
    json!({"call": name, "calls": calls, "error": error, "least_ns": ns.0, "most_ns": ns.1})
}

fn main() {
    let has_compat = Flags::of_program(USAGE).has("--compat");
    protocol::ready_and_wait();
    let start_ns = clock::mono_ns();
    // SAFETY: takes nothing and cannot fail.
    call(PARENTS, 0, || unsafe { libc::syscall(libc::SYS_getppid) });
    failures();
    let slept_ns = sleeps();
    let suspended_ns = interruptions();
    thread::spawn(refusals).join().expect("seccomp refuses");
    if has_compat {
        compat_calls();
    }
    let all_ns = clock::mono_ns() - start_ns;
    let short = (0, all_ns);
    for result in [
        told("getppid", PARENTS, None, short),
        told("openat", MISSING, Some("ENOENT"), short),
        told("fsync", BAD, Some("EBADF"), short),
        told("readv", EMPTY, Some("EAGAIN"), short),
        told("getpgid", REFUSED, Some("EPERM"), (0, 0)),
        told(
            "clock_nanosleep",
            SLEEPS,
            None,
            (SLEEPS * SLEEP_NS, slept_ns),
        ),
        told("rt_sigsuspend", INTERRUPTED, None, (0, suspended_ns)),
        told("getsid", u64::from(has_compat) * COMPAT, None, short),
    ] {
        protocol::report(&protocol::merged(result, json!({"tid": task::tid()})));
    }
    protocol::done_and_exit()
}
