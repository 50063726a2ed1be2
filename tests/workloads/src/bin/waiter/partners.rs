//! Waits that another thread or process ends: pipes, sockets and children.

use std::io::{PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;

use usekit_workloads::stage::Stage;
use usekit_workloads::task;

use crate::measure::Plan;

/// Reader and writer of one byte per wait.
fn bytes(
    stage: &mut Stage,
    plan: Plan,
    mut reader: impl Read + Send + 'static,
    mut writer: impl Write + Send + 'static,
) {
    plan.partner(stage, move || {
        move |_| writer.write_all(b"x").expect("the reader lives to the end")
    });
    plan.waiter(stage, move || {
        move |_| {
            reader
                .read_exact(&mut [0])
                .expect("the writer lives to the end")
        }
    });
}

pub(crate) fn pipe(stage: &mut Stage, plan: Plan) {
    let (reader, writer) = std::io::pipe().expect("a pipe can be had");
    bytes(stage, plan, reader, writer);
}

pub(crate) fn socket(stage: &mut Stage, plan: Plan) {
    let (reader, writer) = UnixStream::pair().expect("a socket pair can be had");
    bytes(stage, plan, reader, writer);
}

/// Child processes that each exit once a byte arrives.
pub(crate) struct Children(Vec<(libc::pid_t, PipeWriter)>);

/// Forks the children. The process must still have one thread.
pub(crate) fn fork_children(count: u64) -> Children {
    Children((0..count).map(|_| fork_child()).collect())
}

fn fork_child() -> (libc::pid_t, PipeWriter) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe can be had");
    // SAFETY: no other thread exists yet that could hold a lock the child would need.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a child can be had");
    if pid == 0 {
        // SAFETY: plain system calls. The name is terminated; the signal ends the child with its parent.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_NAME, c"w-child".as_ptr());
        }
        let _ = reader.read_exact(&mut [0]);
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(0) }
    }
    (pid, writer)
}

pub(crate) fn wait(stage: &mut Stage, plan: Plan, children: Children) {
    let (pids, mut writers): (Vec<_>, Vec<_>) = children.0.into_iter().unzip();
    // A child that still starts up would end late and share the CPU with the waits of the others.
    for &pid in &pids {
        task::wait_asleep(pid, libc::SYS_read);
    }
    plan.partner(stage, move || {
        move |i| {
            writers[i as usize]
                .write_all(b"x")
                .expect("the child reads it")
        }
    });
    plan.waiter(stage, move || {
        move |i| {
            // SAFETY: a child of ours, waited for once; its status is not asked for.
            let pid = unsafe { libc::waitpid(pids[i as usize], std::ptr::null_mut(), 0) };
            assert_eq!(pid, pids[i as usize], "the child ends in its turn");
        }
    });
}
