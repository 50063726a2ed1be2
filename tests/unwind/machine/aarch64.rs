//! Differences of arm64. Programs have no flag there that traps behind every instruction.

/// Debian's directory of libraries, and the dynamic linker in it and in the place that programs name.
pub(crate) const LIBRARIES: &str = "/usr/lib/aarch64-linux-gnu";
pub(crate) const LINKER: &str = "ld-linux-aarch64.so.1";
pub(crate) const LINKER_PATH: &str = "/lib/ld-linux-aarch64.so.1";

/// The calling function's registers; inlined, so that they are its own.
#[macro_export]
macro_rules! here {
    () => {{
        let (ip, sp, bp): (u64, u64, u64);
        // SAFETY: reads registers.
        unsafe {
            std::arch::asm!(
                "adr {ip}, .", "mov {sp}, sp", "mov {bp}, x29",
                ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp,
                options(nomem, nostack, preserves_flags),
            );
        }
        unwind::Frame::new(unwind::Architecture::Aarch64, ip, sp, bp)
    }};
}
