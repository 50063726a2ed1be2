//! The reading process: it may wait for ever, and has no right but to read.

use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::os::unix::net::UnixStream;

use super::{ANSWER_BYTES, BLOCK, QUESTION_BYTES};
use crate::privileges::{Capability, keep_only};

/// Answers until the socket closes.
pub(super) fn serve(mut socket: UnixStream) -> io::Result<()> {
    keep_only(&[Capability::SysPtrace])?;
    let mut answer = [0; ANSWER_BYTES + BLOCK];
    loop {
        let mut question = [0; QUESTION_BYTES];
        match socket.read_exact(&mut question) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            heard => heard?,
        }
        let word = |at: usize| {
            question[at..]
                .first_chunk()
                .expect("two words and one of 8")
        };
        let (tgid, length) = (u32::from_ne_bytes(*word(0)), u32::from_ne_bytes(*word(4)));
        let address = question
            .last_chunk()
            .map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let length = usize::try_from(length).unwrap_or(BLOCK).min(BLOCK);
        let (header, bytes) = answer.split_at_mut(ANSWER_BYTES);
        let before = sleeps();
        let read = read(tgid, address, &mut bytes[..length]);
        let was_awaited = i32::from(sleeps() != before);
        let result = match &read {
            Ok(bytes) => i32::try_from(*bytes).expect("at most a block"),
            Err(error) => -error.raw_os_error().unwrap_or(libc::EINVAL).abs(),
        };
        header[..4].copy_from_slice(&result.to_ne_bytes());
        header[4..].copy_from_slice(&was_awaited.to_ne_bytes());
        socket.write_all(&answer[..ANSWER_BYTES + read.unwrap_or(0)])?;
    }
}

/// What there is up to the first page that is not there.
fn read(tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // Older kernels read a piece as a whole or not at all; none spans two pages.
    let address = usize::try_from(address).map_err(io::Error::other)?;
    let first = (BLOCK - address % BLOCK).min(buffer.len());
    let remote = [
        (address, first),
        (address.wrapping_add(first), buffer.len() - first),
    ];
    let remote = remote.map(|(address, length)| libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: length,
    });
    let pieces = libc::c_ulong::from(remote[1].iov_len > 0) + 1;
    let pid = libc::pid_t::try_from(tgid).map_err(io::Error::other)?;
    // SAFETY: `local` describes `buffer`; remote addresses are only ever read by the kernel, which checks them.
    let read =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), pieces, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// How often this process has gone to sleep.
fn sleeps() -> libc::c_long {
    // SAFETY: rusage is plain numbers, for which zero is valid, and one is filled.
    unsafe {
        let mut usage: libc::rusage = zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_nvcsw
    }
}
