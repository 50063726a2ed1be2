//! Finds the sources of the BPF programs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Every `TOOL/NAME.bpf.c` below `directory`: its name and path, in order.
pub(crate) fn sources(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for tool in fs::read_dir(directory)? {
        let tool = tool?.path();
        if !tool.is_dir() {
            continue;
        }
        for source in fs::read_dir(tool)? {
            let source = source?.path();
            let name = source
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(".bpf.c"));
            if let Some(name) = name {
                found.push((name.to_owned(), source));
            }
        }
    }
    found.sort();
    Ok(found)
}
