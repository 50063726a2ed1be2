//! The reading process: it may wait for ever, and has no right but to read.

use std::io;
use std::mem::zeroed;
use std::os::unix::net::UnixStream;

use super::{Answer, BLOCK, Bytes, MOST_AT_ONCE, Question};
use crate::wire;

/// Answers until the socket closes.
pub(super) fn serve(socket: &UnixStream) -> io::Result<()> {
    let mut blocks = vec![[0; BLOCK]; MOST_AT_ONCE];
    while let Some(message) = wire::next(socket, false)? {
        let question: Question = message.read()?;
        let before = sleeps();
        let pieces = question.pieces.iter().zip(&mut blocks);
        let read = pieces.map(|(&(address, length), block)| {
            let block = &mut block[..length.min(BLOCK)];
            match read(question.tgid, address, block) {
                Ok(bytes) => Ok(Bytes(&block[..bytes])),
                Err(error) => Err(error.raw_os_error().unwrap_or(libc::EINVAL)),
            }
        });
        let answer = Answer {
            read: read.collect(),
            was_awaited: sleeps() != before,
        };
        wire::send(socket, &answer, None)?;
    }
    Ok(())
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
