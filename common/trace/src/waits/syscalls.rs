//! System calls by what they wait for; the numbers are the target architecture's.

use libc::c_long;

/// `futex_waitv`, and the futex2 calls of Linux 6.7, which have one number everywhere.
pub(super) const FUTEX: &[c_long] = &[libc::SYS_futex, libc::SYS_futex_waitv, 455, 456];
pub(super) const SLEEP: &[c_long] = &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep];
pub(super) const SYNC: &[c_long] = &[
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_msync,
    libc::SYS_sync_file_range,
];
pub(super) const ADDRESS_SPACE: &[c_long] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
];
pub(super) const ACCEPT: &[c_long] = &[libc::SYS_accept, libc::SYS_accept4];

#[cfg(target_arch = "x86_64")]
pub(super) const POLL: &[c_long] = &[
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const POLL: &[c_long] = &[
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
];

#[cfg(target_arch = "x86_64")]
pub(super) const WAIT: &[c_long] = &[
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    // A vfork parent waits for its child's exec.
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const WAIT: &[c_long] = &[
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_clone,
    libc::SYS_clone3,
];

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
