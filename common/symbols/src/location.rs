//! Where an address was, kept until it is named.

/// One address of a user stack, tied to what was mapped there.
///
/// Of a caller it is the return address less one, which lies inside the call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// Code of a file.
    Module {
        /// Number of the file in this run.
        module: u32,
        /// File offset; turned into an ELF address when it is named, because the headers are read then.
        offset: u64,
    },
    /// Code without a file, made at run time.
    Anonymous {
        /// Number of the address space in this run.
        space: u32,
        /// Virtual address.
        address: u64,
    },
    /// Nothing executable was known to be mapped there.
    Unmapped {
        /// Virtual address.
        address: u64,
    },
}
