//! The files that a command is going to map, as far as they can be told before it runs.
//!
//! Making tables of them takes longer than a short command runs. This only guesses what the dynamic linker will do: what it
//! misses is loaded when it is mapped.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use elf::needed;
use host::libraries;

/// A program with more libraries is loaded without the rest.
const MOST_FILES: usize = 256;

/// The program, its dynamic linker and its libraries.
pub(super) fn files(program: &OsStr) -> Vec<File> {
    let Some(program) = resolve(program) else {
        return Vec::new();
    };
    let directories = libraries::directories();
    let mut waiting = VecDeque::from([program]);
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    while let Some(path) = waiting.pop_front() {
        let Ok(path) = path.canonicalize() else {
            continue;
        };
        // What is no regular file may never end, or wait for somebody.
        if !path.is_file() || !seen.insert(path.clone()) {
            continue;
        }
        let Ok(file) = File::open(&path) else {
            continue;
        };
        for needed in needed(&file).unwrap_or_default() {
            waiting.extend(locations(&needed, &directories));
        }
        files.push(file);
        if files.len() == MOST_FILES {
            break;
        }
    }
    files
}

/// As execvp does.
fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(program));
    candidates.find(|candidate| candidate.is_file())
}

fn locations(needed: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    if needed.is_absolute() {
        return Some(needed.to_owned());
    }
    let mut candidates = directories.iter().map(|directory| directory.join(needed));
    candidates.find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn they_are_what_ldd_says() {
        // The path behind "=>", or the one that begins the line, which is the dynamic linker's.
        let output = Command::new("ldd").arg("/bin/bash").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let path = |line: &str| {
            let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
            Path::new(path).canonicalize().ok()
        };
        let mut expected: BTreeSet<PathBuf> = text.lines().filter_map(path).collect();
        expected.insert(Path::new("/bin/bash").canonicalize().unwrap());
        assert!(expected.len() >= 3, "{text}");
        let open = |file: &File| {
            use std::os::fd::AsRawFd;
            fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
        };
        let found: BTreeSet<PathBuf> = files(OsStr::new("bash")).iter().map(open).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_program_has_none() {
        assert!(files(OsStr::new("/no/such/program")).is_empty());
        assert!(files(OsStr::new("/dev/zero")).is_empty());
        assert_eq!(files(OsStr::new("/etc/passwd")).len(), 1);
    }
}
