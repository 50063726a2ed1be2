//! Facts about waits, and the reasons that they give.

use super::*;

fn call(number: libc::c_long) -> Wait {
    Wait {
        syscall: i16::try_from(number).unwrap(),
        ..Wait::default()
    }
}

#[test]
fn runnable_threads_were_preempted_or_throttled_whatever_they_were_doing() {
    let futex = Wait {
        flags: flags::RUNNABLE,
        ..call(libc::SYS_futex)
    };
    assert_eq!(futex.reason(), Reason::Preempted);
    let quota = Wait {
        flags: flags::RUNNABLE | flags::THROTTLED,
        ..futex
    };
    assert_eq!(quota.reason(), Reason::Throttled);
}

#[test]
fn reads_wait_for_what_they_read() {
    let read = call(libc::SYS_read);
    assert_eq!(
        Wait {
            file_type: 1,
            ..read
        }
        .reason(),
        Reason::Pipe
    );
    assert_eq!(
        Wait {
            file_type: 12,
            ..read
        }
        .reason(),
        Reason::Socket
    );
    assert_eq!(
        Wait {
            flags: flags::BLOCK_IO,
            file_type: 8,
            ..read
        }
        .reason(),
        Reason::BlockIo
    );
    assert_eq!(
        Wait {
            flags: flags::KERNEL_LOCK,
            file_type: 8,
            ..read
        }
        .reason(),
        Reason::Lock
    );
}

#[test]
fn locks_and_queues_of_system_calls_have_reasons_of_their_own() {
    let reason = |number, flags, file_type| {
        let call = call(number);
        let wait = Wait {
            flags,
            file_type,
            ..call
        };
        wait.reason().name()
    };
    // The file is on a disk, which nobody waits for: neither the lock's owner nor the list of locks is there.
    for flags in [0, flags::UNINTERRUPTIBLE] {
        assert_eq!(reason(libc::SYS_flock, flags, 8), "file-lock");
        assert_eq!(reason(libc::SYS_fcntl, flags, 8), "file-lock");
    }
    assert_eq!(reason(libc::SYS_flock, flags::BLOCK_IO, 8), "block-io");
    assert_eq!(reason(libc::SYS_semtimedop, 0, 0), "semaphore");
    assert_eq!(reason(libc::SYS_msgrcv, 0, 0), "msg-queue");
    assert_eq!(reason(libc::SYS_mq_timedreceive, 0, 0), "msg-queue");
    assert_eq!(reason(libc::SYS_read, 0, file_type::EVENTFD), "eventfd");
    assert_eq!(reason(libc::SYS_read, 0, file_type::INOTIFY), "inotify");
    // inotify's file closed: the kernel flushes a queue of work of its own.
    let close = |flags| reason(libc::SYS_close, flags, 0);
    assert_eq!(close(flags::UNINTERRUPTIBLE), "kernel-work");
    assert_eq!(close(0), "other");
    assert_eq!(close(flags::UNINTERRUPTIBLE | flags::BLOCK_IO), "block-io");
    assert_eq!(reason(libc::SYS_read, 0, file_type::TIMERFD), "sleep");
    assert_eq!(reason(libc::SYS_read, 0, file_type::SIGNALFD), "wait");
    assert_eq!(reason(libc::SYS_epoll_pwait, 0, 0), "epoll");
    assert_eq!(reason(libc::SYS_ppoll, 0, 0), "poll");
}

#[test]
fn locks_that_are_not_recorded_are_told_by_the_function_that_waits() {
    let open = Wait {
        flags: flags::UNINTERRUPTIBLE,
        ..call(libc::SYS_openat)
    };
    assert_eq!(open.reason(), Reason::Other);
    for function in [
        "do_truncate",
        "path_openat.isra.0",
        "rwsem_down_write_slowpath",
    ] {
        assert_eq!(open.reason_in(function), Reason::Lock, "{function}");
    }
    let fifo = call(libc::SYS_openat);
    assert_eq!(fifo.reason(), Reason::Other);
    assert_eq!(fifo.reason_in("wait_for_partner"), Reason::Pipe);
    assert_eq!(fifo.reason_in("request_wait_answer"), Reason::Other);
    for function in ["synchronize_rcu_normal", "__flush_work"] {
        assert_eq!(open.reason_in(function), Reason::KernelWork, "{function}");
    }
    // A file system's own functions may wait for a server.
    assert_eq!(open.reason_in("nfs_atomic_open"), Reason::Other);
    let list = Wait {
        file_type: 4,
        ..call(libc::SYS_getdents64)
    };
    let listing = |flags| Wait { flags, ..list }.reason_in("iterate_dir");
    assert_eq!(listing(flags::UNINTERRUPTIBLE), Reason::Lock);
    let on_disk = flags::UNINTERRUPTIBLE | flags::BLOCK_IO;
    assert_eq!(listing(on_disk), Reason::BlockIo);
    assert_eq!(listing(0), Reason::Other);
}

#[test]
fn no_system_call_means_a_fault() {
    let fault = Wait {
        syscall: -1,
        flags: flags::BLOCK_IO,
        ..Wait::default()
    };
    assert_eq!(fault.reason(), Reason::PageFault);
    let kernel = Wait {
        flags: flags::BLOCK_IO | flags::KERNEL_THREAD,
        ..fault
    };
    assert_eq!(kernel.reason(), Reason::BlockIo);
    assert_eq!(
        Wait {
            flags: flags::STOPPED,
            ..fault
        }
        .reason(),
        Reason::Stopped
    );
}

#[test]
fn calls_that_do_something_else_than_wait_have_reasons_for_it() {
    const UNINTERRUPTIBLE: u8 = flags::UNINTERRUPTIBLE;
    for (syscall, flags, reason) in [
        (
            libc::SYS_sched_setaffinity,
            UNINTERRUPTIBLE,
            Reason::KernelWork,
        ),
        (libc::SYS_io_destroy, UNINTERRUPTIBLE, Reason::KernelWork),
    ] {
        let wait = Wait {
            syscall: syscall.try_into().expect("a small number"),
            flags,
            ..Wait::default()
        };
        assert_eq!(wait.reason(), reason, "{syscall}");
    }
}

#[test]
fn a_terminal_is_a_device_whose_reader_may_be_idle() {
    let of = |syscall: libc::c_long| Wait {
        syscall: syscall.try_into().expect("a small number"),
        file_type: file_type::CHARACTERS,
        ..Wait::default()
    };
    for (syscall, is_idle) in [(libc::SYS_read, true), (libc::SYS_ioctl, false)] {
        let wait = of(syscall);
        assert_eq!(
            (wait.reason(), wait.may_be_idle()),
            (Reason::Device, is_idle)
        );
    }
}

#[test]
fn an_epoll_for_a_peer_is_not_idle() {
    let for_peer = Wait {
        file_type: file_type::SOCKET,
        ..call(libc::SYS_epoll_pwait)
    };
    assert_eq!(
        (for_peer.may_be_idle(), for_peer.reason()),
        (false, Reason::Epoll)
    );
}

#[test]
fn a_contended_mutex_is_not_idle_but_a_condition_variable_may_be() {
    let mutex = Wait {
        futex_op: 0,
        futex_value: 2,
        ..call(libc::SYS_futex)
    };
    assert!(!mutex.may_be_idle());
    assert!(
        Wait {
            futex_op: 9,
            futex_value: 0,
            ..mutex
        }
        .may_be_idle()
    );
    assert!(
        !Wait {
            futex_op: 6,
            futex_value: 0,
            ..mutex
        }
        .may_be_idle()
    );
    // Rust's mutex; a mutex that processes share; glibc's pthread_join from 2.43 on.
    for (futex_op, is_idle) in [(0x89, false), (0x80, false), (0x86, false), (9, true)] {
        let wait = Wait { futex_op, ..mutex };
        assert_eq!(wait.may_be_idle(), is_idle, "{futex_op:#x}");
    }
    assert!(call(libc::SYS_epoll_pwait).may_be_idle());
    let read = |file_type| Wait {
        file_type,
        ..call(libc::SYS_read)
    };
    assert!(read(0).may_be_idle() && read(file_type::INOTIFY).may_be_idle());
    assert!(!read(file_type::SOCKET).may_be_idle());
    // Its client's next request.
    assert!(read(file_type::ACCEPTED).may_be_idle());
    let write = Wait {
        syscall: i16::try_from(libc::SYS_write).unwrap(),
        ..read(file_type::ACCEPTED)
    };
    assert!(!write.may_be_idle() && write.reason() == Reason::Socket);
    let poll = Wait {
        syscall: i16::try_from(libc::SYS_ppoll).unwrap(),
        ..write
    };
    assert!(poll.is_for_client() && !write.is_for_client());
    assert_eq!(poll.reason(), Reason::Poll);
    let of_type = |file_type| Wait { file_type, ..poll };
    assert!(!of_type(file_type::SOCKET).may_be_idle() && of_type(file_type::OTHER).may_be_idle());
    for number in [libc::SYS_ppoll, libc::SYS_pselect6] {
        let syscall = i16::try_from(number).unwrap();
        let nothing = of_type(file_type::NOTHING);
        let sleep = Wait { syscall, ..nothing };
        assert!(!sleep.may_be_idle() && sleep.reason() == Reason::Sleep);
    }
    assert!(!call(libc::SYS_nanosleep).may_be_idle());
}

#[test]
fn the_bit_table_holds_reads_but_not_sleeps() {
    let bits = takes_fd();
    let has = |call: libc::c_long| {
        let call = usize::try_from(call).unwrap();
        bits[call / 64] >> (call % 64) & 1 == 1
    };
    assert!(has(libc::SYS_read) && has(libc::SYS_preadv2) && !has(libc::SYS_nanosleep));
}

#[test]
fn calls_for_work_are_those_that_a_thread_comes_back_to() {
    let bits = for_work();
    let has = |call: libc::c_long| bits[call as usize / 64] >> (call % 64) & 1 == 1;
    for call in [
        libc::SYS_ppoll,
        libc::SYS_accept4,
        libc::SYS_read,
        libc::SYS_nanosleep,
    ] {
        assert!(has(call), "{call}");
    }
    // A new thread seems to be in its parent's call, with a stack of its own.
    for call in [
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_futex,
        libc::SYS_write,
    ] {
        assert!(!has(call), "{call}");
    }
}
