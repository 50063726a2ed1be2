//! Differences between machines, a file for each.

#[cfg(target_arch = "aarch64")]
#[macro_use]
mod aarch64;
#[cfg(target_arch = "x86_64")]
#[macro_use]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{LIBRARIES, LINKER, LINKER_PATH};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{LIBRARIES, LINKER, LINKER_PATH, interrupted, trap_off, trap_on};
