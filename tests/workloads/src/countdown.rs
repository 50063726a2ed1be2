//! A busy loop that stays in the function that uses it.

/// Burns CPU for `$n` turns, with the program counter inside the calling function all along.
///
/// A macro and not a function: an inlined function would be a frame of its own in the debug
/// information and, in builds without optimisation, a symbol of its own.
#[macro_export]
macro_rules! countdown {
    ($n:expr) => {{
        let mut left: u64 = $n;
        #[cfg(target_arch = "x86_64")]
        // Aligned, because where the loop straddles 32 bytes some CPUs take twice as long for it.
        // SAFETY: touches one register and the flags; `left` is at least 1, so the loop ends.
        unsafe {
            left |= 1;
            core::arch::asm!(".p2align 5", "2:", "dec {0}", "jnz 2b", inout(reg) left, options(nomem, nostack));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            left |= 1;
            core::arch::asm!("2:", "subs {0}, {0}, #1", "b.ne 2b", inout(reg) left, options(nomem, nostack));
        }
        left
    }};
}
