//! The same with their programs, of this build.

use std::path::Path;
use std::sync::LazyLock;

use crate::tools::TRACERS;

/// Names and paths.
pub(crate) static TOOLS: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let path = |tool| Path::new(env!("CARGO_BIN_EXE_usekit")).with_file_name(tool);
    let path = |tool| &*path(tool).to_str().expect("UTF-8").to_owned().leak();
    TRACERS.iter().map(|tool| (*tool, path(tool))).collect()
});
