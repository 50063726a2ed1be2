//! What differs between architectures in user space, all of it; for the kernel side see `bpf/include/registers.h`.

#[cfg(target_arch = "aarch64")]
pub use aarch64::{ELF_MACHINE, KERNEL_IMAGE, WALKS_PYTHON, code_mask};
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{EPOLL, LIBRARY_TRIPLE, POLL, POLL_SEEN, VFORK, WAIT};
/// A system call of a 32-bit program.
#[cfg(target_arch = "aarch64")]
pub use syscalls::arm::Sysno as CompatCall;
/// A system call of a 32-bit program.
#[cfg(target_arch = "x86_64")]
pub use syscalls::x86::Sysno as CompatCall;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{ELF_MACHINE, KERNEL_IMAGE, WALKS_PYTHON, code_mask};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{EPOLL, LIBRARY_TRIPLE, POLL, POLL_SEEN, VFORK, WAIT};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "an architecture that bpf/include/registers.h and common/host/src/machine.rs do not have"
);

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use libc::c_long;

    /// `e_machine` of native programs.
    pub const ELF_MACHINE: u16 = libc::EM_X86_64;

    /// The BPF side finds thread states of Python by the thread pointer.
    pub const WALKS_PYTHON: bool = true;

    /// Debian's directory of libraries, below `/usr/lib`.
    pub(crate) const LIBRARY_TRIPLE: &str = "x86_64-linux-gnu";

    /// The bits of a return address that are an address: all.
    pub fn code_mask() -> u64 {
        u64::MAX
    }

    /// The address at which kernel and modules begin, if nothing else lies behind it: they have the address space's last 2 GiB.
    pub const KERNEL_IMAGE: Option<u64> = Some(0xffff_ffff_8000_0000);

    pub(crate) const EPOLL: &[c_long] = &[
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ];

    /// Polls whose descriptors the BPF side looks at.
    pub(crate) const POLL_SEEN: &[c_long] = &[
        libc::SYS_poll,
        libc::SYS_select,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
    ];

    pub(crate) const POLL: &[c_long] = &[
        libc::SYS_poll,
        libc::SYS_select,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_io_getevents,
        // `io_pgetevents`, which libc does not name.
        333,
        libc::SYS_io_uring_enter,
    ];

    pub(crate) const WAIT: &[c_long] = &[
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_pause,
        libc::SYS_rt_sigsuspend,
        libc::SYS_rt_sigtimedwait,
    ];
    /// A parent may wait there for its child's exec.
    pub(crate) const VFORK: &[c_long] = &[libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3];
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::asm;

    use libc::c_long;

    /// `e_machine` of native programs.
    pub const ELF_MACHINE: u16 = libc::EM_AARCH64;

    /// The BPF side does not know the thread pointer.
    pub const WALKS_PYTHON: bool = false;

    /// Debian's directory of libraries, below `/usr/lib`.
    pub(crate) const LIBRARY_TRIPLE: &str = "aarch64-linux-gnu";

    /// The bits of a return address that are an address: pointer authentication (PAC) puts a signature into the others. The
    /// processor and the kernel's address space decide, so the processor is asked: `xpaclri` takes a signature off x30.
    pub fn code_mask() -> u64 {
        // Bit 55 chooses between user space and the kernel, and is no part of a signature.
        let mut address: u64 = 0x007f_ffff_ffff_ffff;
        // SAFETY: the hint changes x30 alone, or nothing on a processor without PAC.
        unsafe {
            asm!(
                "mov {saved}, x30",
                "mov x30, {address}",
                "hint #7",
                "mov {address}, x30",
                "mov x30, {saved}",
                saved = out(reg) _,
                address = inout(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }

    /// The address at which kernel and modules begin, if nothing else lies behind it: they lie anywhere among what is allocated in pages.
    pub const KERNEL_IMAGE: Option<u64> = None;

    /// The processor is younger than the calls without a `p`, which it never had.
    pub(crate) const EPOLL: &[c_long] = &[libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];

    /// Polls whose descriptors the BPF side looks at.
    pub(crate) const POLL_SEEN: &[c_long] = &[libc::SYS_ppoll, libc::SYS_pselect6];

    pub(crate) const POLL: &[c_long] = &[
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_io_getevents,
        // `io_pgetevents`, which libc does not name.
        292,
        libc::SYS_io_uring_enter,
    ];

    /// `pause` is `ppoll`, `vfork` is `clone`.
    pub(crate) const WAIT: &[c_long] = &[
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_rt_sigsuspend,
        libc::SYS_rt_sigtimedwait,
    ];
    /// A parent may wait there for its child's exec.
    pub(crate) const VFORK: &[c_long] = &[libc::SYS_clone, libc::SYS_clone3];
}
