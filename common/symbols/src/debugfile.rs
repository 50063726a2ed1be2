//! Finds the separate debug file of a stripped binary, in the target's root first, then in ours.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use elf::Headers;
use flate2::Crc;

use crate::files::{open_in, open_root};
use crate::modules::Module;
use crate::opener::Opened;

/// Larger debug files are not summed up; the largest known (browsers) have 2–3 GiB and are found by build ID.
const MAX_CRC: u64 = 1 << 30;

/// Where distributions put debug files.
pub(super) const DEBUG_DIR: &str = "/usr/lib/debug";

/// A debug file and what is in it.
pub(super) struct DebugFile {
    pub(super) file: File,
    pub(super) headers: Headers,
    /// From our own root and of our administrator, not from one that the target arranged.
    pub(super) own: bool,
}

/// Looks in `debug_dirs` and beside the binary.
pub(super) fn find(
    module: &Module,
    headers: &Headers,
    debug_dirs: &[PathBuf],
) -> Option<DebugFile> {
    let candidates = candidates(module.raw_path(), headers, debug_dirs);
    if candidates.is_empty() {
        return None;
    }
    let own = open_root("/").ok();
    let owner = module.owner();
    let roots = [
        (module.root.as_ref().map(|r| r.as_fd()), false),
        (own.as_ref().map(|r| r.as_fd()), true),
    ];
    roots.into_iter().find_map(|(root, own)| {
        candidates
            .iter()
            .find_map(|path| open(root?, path, headers, (own, owner)))
    })
}

/// The debug file of a binary that is open, where our own root has one.
pub(crate) fn of_opened(binary: &Opened, path: &[u8]) -> Option<File> {
    of_file(&binary.file, binary.facts.owner, path)
}

/// The same of one that somebody else keeps open.
pub(super) fn of_file(binary: &File, owner: u32, path: &[u8]) -> Option<File> {
    let headers = Headers::read(binary)?;
    let root = open_root("/").ok()?;
    let candidates = candidates(path, &headers, &[DEBUG_DIR.into()]);
    let mut found = candidates
        .iter()
        .filter_map(|path| open(root.as_fd(), path, &headers, (true, Some(owner))));
    Some(found.next()?.file)
}

/// A file is named in the same way in all processes, but the root is that of one of them, who may have arranged it: in a
/// user namespace everybody can. So the debug file must be of the administrator or of the binary's own owner.
fn open(
    root: BorrowedFd<'_>,
    path: &[u8],
    binary: &Headers,
    (own, owner): (bool, Option<u32>),
) -> Option<DebugFile> {
    let opened = open_in(root, path).ok()?;
    let (file, facts) = (opened.file, opened.facts);
    let of_root = facts.owner == 0;
    if facts.mode & 0o022 != 0 || !of_root && owner != Some(facts.owner) {
        return None;
    }
    let own = own && of_root;
    let headers = Headers::read(&file)?;
    let belongs = match (&binary.build_id, &headers.build_id) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => {
            let (_, crc) = binary.debug_link.as_ref()?;
            facts.size <= MAX_CRC && checksum(&file) == Some(*crc)
        }
    };
    belongs.then_some(DebugFile { file, headers, own })
}

/// By build ID first: it names one file for sure.
fn candidates(path: &[u8], headers: &Headers, debug_dirs: &[PathBuf]) -> Vec<Vec<u8>> {
    let dirs = || debug_dirs.iter().map(|d| d.as_os_str().as_encoded_bytes());
    let mut found = Vec::new();
    if let Some((first, rest)) = headers.build_id.as_ref().and_then(|id| id.split_first()) {
        let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
        let tail = format!("/.build-id/{first:02x}/{rest}.debug");
        found.extend(dirs().map(|dir| [dir, tail.as_bytes()].concat()));
    }
    let name = headers.debug_link.as_ref().map(|(name, _)| &name[..]);
    let plain = name.filter(|n| !n.is_empty() && !n.contains(&b'/') && *n != b"..");
    let slash = path.iter().rposition(|&b| b == b'/');
    if let (Some(name), Some(slash)) = (plain, slash) {
        let dir = &path[..slash];
        found.push([dir, b"/", name].concat());
        found.push([dir, b"/.debug/", name].concat());
        found.extend(dirs().map(|root| [root, dir, b"/", name].concat()));
    }
    found
}

fn checksum(file: &File) -> Option<u32> {
    let mut crc = Crc::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at).ok()? {
            0 => return Some(crc.sum()),
            n => {
                crc.update(&buffer[..n]);
                at += n as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_look() {
        let headers = Headers {
            build_id: Some(vec![0xab, 0xcd, 0x01]),
            debug_link: Some((b"x.debug".to_vec(), 1)),
            ..Headers::default()
        };
        let found = candidates(b"/opt/bin/x", &headers, &["/usr/lib/debug".into()]);
        let expected: [&[u8]; 4] = [
            b"/usr/lib/debug/.build-id/ab/cd01.debug",
            b"/opt/bin/x.debug",
            b"/opt/bin/.debug/x.debug",
            b"/usr/lib/debug/opt/bin/x.debug",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_link_names_a_file_not_a_path() {
        for name in [&b"../../etc/passwd"[..], b"", b"..", b"/dev/sda"] {
            let headers = Headers {
                debug_link: Some((name.to_vec(), 1)),
                ..Headers::default()
            };
            assert!(candidates(b"/opt/x", &headers, &[]).is_empty());
        }
    }
}
