//! Sleeps of Java's threads, which wait for a futex as long as the sleep takes.

use host::waits::{Reason, Wait};
use profile::frame::Frame;

/// Frames from the leaf on that are looked at.
const NEAR: usize = 8;
/// The file of a Java virtual machine (HotSpot), and beginnings of its functions that sleep.
const LIBRARY: &str = "libjvm.so";
const SLEEPS: [&str; 3] = ["JavaThread::sleep", "JVM_Sleep", "os::sleep"];

/// Tells if a thread sleeps by its own choice. `user`: root first.
pub(crate) fn sleeps(wait: Wait, user: &[Frame]) -> bool {
    let does = |frame: &Frame| {
        let is_one = |begin: &&str| frame.name.starts_with(*begin);
        frame.file_name() == LIBRARY && SLEEPS.iter().any(is_one)
    };
    wait.reason() == Reason::Futex && user.iter().rev().take(NEAR).any(does)
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

    #[test]
    fn a_thread_of_javas_sleeps_in_the_machines_functions_only() {
        let futex = Wait {
            syscall: libc::SYS_futex.try_into().expect("a small number"),
            ..Wait::default()
        };
        let machine = |name| of("/usr/lib/jvm/17/lib/server/libjvm.so", name);
        let leaf = || of("/usr/lib/libc.so.6", "pthread_cond_timedwait");
        let sleep = [
            machine("JVM_Sleep"),
            machine("JavaThread::sleep(JavaThread*, long)"),
            leaf(),
        ];
        assert!(sleeps(futex, &sleep));
        assert!(!sleeps(Wait::default(), &sleep), "another call");
        assert!(!sleeps(
            futex,
            &[
                machine("Unsafe_Park"),
                machine("Parker::park(bool, long)"),
                leaf()
            ]
        ));
        assert!(
            !sleeps(futex, &[of("/app", "JVM_Sleep"), leaf()]),
            "another file"
        );
    }
}
