//! The opening process: it may wait for ever, and says before each step that it has come so far.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;

use super::{Answer, Facts, Question};
use crate::forked::memory;
use crate::privileges::{Capability, keep_only};
use crate::wire;

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
    // To look into other processes, and at what only their users may read.
    keep_only(&[
        Capability::DacReadSearch,
        Capability::SysPtrace,
        Capability::CheckpointRestore,
    ])?;
    while let Some(message) = wire::next(socket, true)? {
        let question = message.read()?;
        match open(&question, message.file.as_ref().map(AsFd::as_fd), socket) {
            Ok((file, facts)) => wire::send(socket, &Answer::File(facts), Some(file.as_fd()))?,
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(libc::EINVAL);
                wire::send(socket, &Answer::Refused(error), None)?;
            }
        }
    }
    Ok(())
}

fn open(
    question: &Question<'_>,
    root: Option<BorrowedFd<'_>>,
    socket: &UnixStream,
) -> io::Result<(File, Facts)> {
    let handle = File::from(match root {
        Some(root) => look_up(root, question)?,
        None => look_up_here(question.path)?,
    });
    let (device, _) = identity(handle.as_fd()).ok_or(io::ErrorKind::InvalidData)?;
    if question.avoid.contains(&device) {
        return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
    }
    wire::send(socket, &Answer::Found(device), None)?;
    let file_system = file_system(&handle)?;
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
    let path = CString::new(question.path)?;
    let nofollow = if question.follow { 0 } else { libc::O_NOFOLLOW };
    // SAFETY: open_how is plain numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { zeroed() };
    how.flags = u64::from((libc::O_PATH | libc::O_CLOEXEC | nofollow).cast_unsigned());
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: path and how live over the call, and the size is how's.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    owned(fd)
}

/// A link of `/proc`, which leads to the file wherever it is mounted, and even when it is deleted.
fn look_up_here(path: &[u8]) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    // SAFETY: a valid C string.
    owned(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) }.into())
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Device and inode, as far as the kernel knows them without asking anybody.
pub(super) fn identity(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    // SAFETY: statx is plain numbers, for which zero is valid.
    let mut info: libc::statx = unsafe { zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path is a C string, and one statx is filled.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_INO,
            &raw mut info,
        )
    };
    let device = libc::makedev(info.stx_dev_major, info.stx_dev_minor);
    (result == 0).then_some((device, info.stx_ino))
}

fn file_system(file: &File) -> io::Result<i64> {
    // SAFETY: statfs is plain numbers, for which zero is valid.
    let mut info: libc::statfs = unsafe { zeroed() };
    // SAFETY: fills one statfs.
    match unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut info) } {
        0 => Ok(info.f_type),
        _ => Err(io::Error::last_os_error()),
    }
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
