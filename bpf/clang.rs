//! The BPF compiler, for build scripts.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

/// Newest first; Debian installs `clang-NN` without a plain `clang` beside it.
const CLANG_VERSIONS: std::ops::RangeInclusive<u32> = 14..=24;

/// `$CLANG`, else `clang`, else the newest `clang-NN`.
pub(crate) fn find_clang() -> Result<PathBuf> {
    if let Some(clang) = env::var_os("CLANG") {
        return Ok(clang.into());
    }
    let versioned = CLANG_VERSIONS
        .rev()
        .map(|version| format!("clang-{version}"));
    for name in std::iter::once("clang".to_owned()).chain(versioned) {
        if Command::new(&name)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
        {
            return Ok(name.into());
        }
    }
    bail!("no clang found: install it (Debian: apt-get install clang) or set CLANG to its path")
}
