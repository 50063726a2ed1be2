//! Where shared libraries are.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::LIBRARY_TRIPLE;

/// The libraries that are mapped into this very process: the versions that programs here run with. None in a statically
/// linked tool.
pub fn own() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps
        .lines()
        .filter_map(|line| line.split_once('/'))
        .filter(|(_, path)| path.contains(".so"))
        .map(|(_, path)| format!("/{path}").into());
    paths.collect()
}

/// Directories of libraries, each once: where our own are, then those of Debian, of Fedora and its relatives, and of
/// everybody else. Some may not exist.
pub fn directories() -> Vec<PathBuf> {
    let own = own();
    let own = own.iter().filter_map(|path| path.parent());
    let debian = ["/usr/lib", "/lib"].map(|base| Path::new(base).join(LIBRARY_TRIPLE));
    let others = ["/usr/lib64", "/lib64", "/usr/lib", "/lib", "/usr/local/lib"].map(PathBuf::from);
    let mut found: Vec<PathBuf> = Vec::new();
    for directory in own.map(Path::to_owned).chain(debian).chain(others) {
        if !found.contains(&directory) {
            found.push(directory);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_found_with_and_without_our_own() {
        let directories = directories();
        let has_libc = |directory: &PathBuf| directory.join("libc.so.6").exists();
        assert!(directories.iter().any(has_libc), "{directories:?}");
        // As a statically linked tool sees it.
        let own: Vec<_> = own()
            .iter()
            .filter_map(|p| Some(p.parent()?.to_owned()))
            .collect();
        assert!(own.iter().any(has_libc), "{own:?}");
        let fixed = directories.iter().filter(|d| d.starts_with("/usr/lib"));
        assert!(fixed.clone().any(has_libc), "{fixed:?}");
        let mut once = directories.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), directories.len(), "{directories:?}");
    }
}
