//! A program or library on disk that frames lie in.

use std::fs::File;
use std::sync::Arc;

/// Index of a [`Module`] in the symbolizer's table.
pub type ModuleId = u32;

/// Where a user address lay when its stack was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// In a file: module and ELF virtual address.
    Module {
        /// The file.
        module: ModuleId,
        /// Virtual address as the ELF file's symbols use it.
        address: u64,
    },
    /// In executable memory without a file (JIT code).
    Anonymous {
        /// The process.
        tgid: u32,
        /// Address in that process.
        address: u64,
    },
    /// In the vDSO.
    Vdso {
        /// Offset from the vDSO's start.
        offset: u64,
    },
    /// In nothing that is known to have been mapped.
    Unmapped {
        /// Address in its process.
        address: u64,
    },
}

/// An ELF file, opened while it could be reached.
#[derive(Debug)]
pub struct Module {
    /// Path as the process saw it; for display and for finding debug files.
    pub path: Arc<str>,
    /// The file itself; `None` when it could not be opened or was not the file that was mapped.
    pub file: Option<File>,
    /// GNU build ID, empty when it has none.
    pub build_id: Vec<u8>,
    /// `O_PATH` descriptor of the process's root directory, where its own debug files lie; `None` for ours.
    pub root: Option<File>,
}
