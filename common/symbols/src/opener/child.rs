//! The opening process: it may wait for ever, and says before each step that it has come so far.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;

use foreign::wire;
use host::descriptors::memory;
use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, open, openat2};

use super::facts::identity;
use super::{Answer, Facts, Question};

/// Bytes between two signs of life.
const PIECE: u64 = 1 << 20;
/// Larger ones are not copied; programs with all their debug information are.
const MAX_COPY: u64 = 256 << 20;

/// File systems that wait for nothing but disks of this machine, by `statfs`: ext2 to ext4, XFS, Btrfs, tmpfs and ramfs,
/// overlayfs, SquashFS, EROFS, F2FS, ZFS, bcachefs, ISO 9660, UDF, FAT, exFAT, hugetlbfs, /proc.
///
/// What an overlay covers may be anything, but only an administrator puts it there.
const LOCAL: [i64; 17] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0x7371_7368,
    0xe0f5_e1e2,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x9660,
    0x1501_3346,
    0x4d44,
    0x2011_bab0,
    0x9584_58f6,
    0x9fa0,
];

/// Answers until the socket closes.
pub(super) fn serve(socket: &UnixStream) -> io::Result<()> {
    while let Some(message) = wire::next(socket, true)? {
        let question = message.read()?;
        match answer(&question, message.file.as_ref().map(AsFd::as_fd), socket) {
            Ok((file, facts)) => wire::send(socket, &Answer::File(facts), Some(file.as_fd()))?,
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(libc::EINVAL);
                wire::send(socket, &Answer::Refused(error), None)?;
            }
        }
    }
    Ok(())
}

fn answer(
    question: &Question<'_>,
    root: Option<BorrowedFd<'_>>,
    socket: &UnixStream,
) -> io::Result<(File, Facts)> {
    let handle = File::from(match root {
        Some(root) => look_up(root, question)?,
        None => look_up_here(question.path)?,
    });
    let (device, _) = identity(&handle)?;
    if question.avoid.contains(&device) {
        return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
    }
    wire::send(socket, &Answer::Found(device), None)?;
    let file_system = fstatfs(&handle)?.f_type;
    let copied = !LOCAL.contains(&file_system);
    if !copied {
        wire::send(socket, &Answer::Local, None)?;
    }
    let metadata = handle.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
    let facts = Facts {
        device,
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        owner: metadata.uid(),
        mode: metadata.mode(),
        file_system,
        copied,
    };
    if copied {
        return Ok((copy(&file, question.limit.min(MAX_COPY), socket)?, facts));
    }
    Ok((file, facts))
}

/// Not for reading, so that no FIFO blocks and no device reacts; links inside `root` are followed inside it only.
fn look_up(root: BorrowedFd<'_>, question: &Question<'_>) -> io::Result<OwnedFd> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !question.follow);
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, question.path, flags, Mode::empty(), inside)?)
}

/// A link of `/proc`, which leads to the file wherever it is mounted, and even when it is deleted.
fn look_up_here(path: &[u8]) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The file's bytes in memory; one that grows meanwhile is cut at the limit, too.
fn copy(file: &File, limit: u64, socket: &UnixStream) -> io::Result<File> {
    let mut copy = memory(c"copy")?;
    let mut copied = 0;
    loop {
        let piece = io::copy(&mut file.take(PIECE), &mut copy)?;
        copied += piece;
        if copied > limit {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        if piece == 0 {
            return Ok(copy);
        }
        wire::send(socket, &Answer::Goes, None)?;
    }
}
