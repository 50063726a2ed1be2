//! Figures of a conversion.

/// Frame descriptions and rows that were met on the way to a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frame descriptions in the file.
    pub fdes: u64,
    /// Of discarded or empty functions, or unreadable.
    pub dropped_fdes: u64,
    /// Wholly behind others.
    pub hidden_fdes: u64,
    /// Whose instructions could not be run to the end.
    pub broken_fdes: u64,
    /// Rows that no rule can say.
    pub unsupported_rows: u64,
    /// Bytes of instructions that were run.
    pub work: u64,
}
