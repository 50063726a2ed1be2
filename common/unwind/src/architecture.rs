//! Architectures whose files have tables.

use object::elf::{EM_AARCH64, EM_X86_64};

/// The architecture of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Architecture {
    /// By the `e_machine` of a little-endian 64-bit file; `None`: another one.
    pub fn of(machine: u16) -> Option<Self> {
        match machine {
            machine if machine == EM_X86_64.0 => Some(Self::X86_64),
            machine if machine == EM_AARCH64.0 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Bytes of the shortest instruction, by which Go's tables count.
    pub(crate) fn quantum(self) -> u8 {
        match self {
            Self::X86_64 => 1,
            Self::Aarch64 => 4,
        }
    }
}

/// Rules of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) architecture: Architecture,
    /// They say where rbx is.
    pub(crate) with_bx: bool,
}
