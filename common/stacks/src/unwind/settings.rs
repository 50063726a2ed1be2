//! Settings that the unwinder is told.

use clap::ValueEnum;
use libbpf_rs::MapHandle;

/// `--unwind`; the values of the BPF side's `enum unwind_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// By the tables of .eh_frame; by frame pointers where there is none
    #[default]
    Auto = 0,
    /// By frame pointers only
    Fp = 1,
    /// By tables only
    Cfi = 2,
}

/// The BPF side's maps.
pub struct Maps {
    /// `unwind_chunks`
    pub chunks: MapHandle,
    /// `unwind_rules`
    pub rules: MapHandle,
    /// `unwind_processes`
    pub processes: MapHandle,
    /// `unwind_files`
    pub files: MapHandle,
    /// `pythons`
    pub pythons: MapHandle,
}

/// Processes whose tables are kept.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// From the start.
    pub at_start: Vec<u32>,
    /// Also of every process that maps anything later; else only of those whose stacks are seen.
    pub later: bool,
}
