//! System calls by what they wait for; the numbers are the target architecture's.

use libc::c_long;

pub(super) use crate::machine::{EPOLL, POLL, POLL_SEEN, VFORK, WAIT};

/// `futex_waitv`, and the futex2 calls of Linux 6.7, which have one number everywhere.
pub(super) const FUTEX: &[c_long] = &[libc::SYS_futex, libc::SYS_futex_waitv, 455, 456];
/// `flock`, and `fcntl`, of which only `F_SETLKW` and `F_OFD_SETLKW` sleep.
pub(super) const FILE_LOCK: &[c_long] = &[libc::SYS_flock, libc::SYS_fcntl];
pub(super) const SEMAPHORE: &[c_long] = &[libc::SYS_semop, libc::SYS_semtimedop];
pub(super) const MESSAGE_QUEUE: &[c_long] = &[
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
];
pub(super) const CHILD: &[c_long] = &[libc::SYS_wait4, libc::SYS_waitid];
pub(super) const SLEEP: &[c_long] = &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep];
pub(super) const SYNC: &[c_long] = &[
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_msync,
    libc::SYS_sync_file_range,
];
/// Calls that make the kernel wait for work that it has put off: notifications of a closed `inotify` file, a grace period of RCU.
pub(super) const KERNEL_WORK: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup3,
    libc::SYS_inotify_rm_watch,
    libc::SYS_umount2,
    libc::SYS_swapoff,
    libc::SYS_membarrier,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_sched_setaffinity,
    libc::SYS_io_destroy,
    // Processes that end as the last of a namespace, or with a ring of io_uring.
    libc::SYS_exit,
    libc::SYS_exit_group,
];
pub(super) const ADDRESS_SPACE: &[c_long] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
];
pub(super) const RECEIVE: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];
pub(super) const ACCEPT: &[c_long] = &[libc::SYS_accept, libc::SYS_accept4];

pub(super) const TAKES_FD: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_getdents64,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_flock,
    libc::SYS_ioctl,
];
/// Calls of [`SYNC`] on a descriptor.
pub(super) const SYNC_FD: &[c_long] = &[
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
];
