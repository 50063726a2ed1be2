//! What the symbolizer could not find out.

/// Counters for the closing line; none of them is a reason to stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolLosses {
    /// Why there is no stream of mapping changes: short-lived processes stay unknown.
    pub stream: Option<String>,
    /// Mapping changes that the kernel could not deliver.
    pub stream_records: u64,
    /// Processes that were gone before their mappings could be read.
    pub processes_gone: u64,
    /// Exited processes, old address spaces and mappings that were forgotten, or not taken in, to bound memory.
    pub forgotten: u64,
    /// Files with code that could not be opened.
    pub modules_unopened: u64,
    /// Times that a file system did not answer.
    pub files_hung: u64,
    /// Files that were overwritten after they were opened, or are closed and gone.
    pub modules_changed: u64,
    /// Files with contents that cannot be read safely (sizes beyond reason, parser failures).
    pub modules_refused: u64,
    /// Perf maps that are too long, or too many.
    pub perf_maps_refused: u64,
    /// Perf maps that somebody else has written or may have, or an earlier process of the same ID.
    pub perf_maps_disbelieved: u64,
    /// Why kernel addresses have no names.
    pub kernel: Option<String>,
    /// Frames handed out.
    pub frames: u64,
    /// Of them, those without a function name.
    pub unnamed: u64,
}
