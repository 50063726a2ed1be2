//! Differences of x86-64.

use std::ffi::c_int;

use unwind::{Architecture, Frame};

/// Debian's directory of libraries, and the dynamic linker in it and in the place that programs name.
pub(crate) const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
pub(crate) const LINKER: &str = "ld-linux-x86-64.so.2";
pub(crate) const LINKER_PATH: &str = "/lib64/ld-linux-x86-64.so.2";

/// The calling function's registers; inlined, so that they are its own.
#[macro_export]
macro_rules! here {
    () => {{
        let (ip, sp, bp): (u64, u64, u64);
        // SAFETY: reads registers.
        unsafe {
            std::arch::asm!(
                "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
                ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp,
                options(nomem, nostack, preserves_flags),
            );
        }
        unwind::Frame::new(unwind::Architecture::X86_64, ip, sp, bp)
    }};
}

/// Indices in the kernel's gregs by DWARF number.
const GREGS: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Registers where a signal has interrupted a thread.
pub(crate) fn interrupted(context: &libc::ucontext_t) -> Frame {
    let register = |index: c_int| context.uc_mcontext.gregs[index as usize] as u64;
    let [ip, sp, bp] = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP].map(register);
    Frame::new(Architecture::X86_64, ip, sp, bp).with_leaf(&GREGS.map(register))
}

// The trap flag: a SIGTRAP behind every instruction. Functions of their own, because inline assembly cannot say what
// its push does to the CFA.
std::arch::global_asm!(
    ".globl unwind_test_trap_on",
    "unwind_test_trap_on:",
    ".cfi_startproc",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "or qword ptr [rsp], 0x100",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".globl unwind_test_trap_off",
    "unwind_test_trap_off:",
    ".cfi_startproc",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "and qword ptr [rsp], -257",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    #[link_name = "unwind_test_trap_on"]
    pub(crate) fn trap_on();
    #[link_name = "unwind_test_trap_off"]
    pub(crate) fn trap_off();
}
