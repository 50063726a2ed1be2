//! Messages with a file attached, over a socket.

use std::fs::File;
use std::io::{self, Read};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Room for one descriptor, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 32]);

const FD_BYTES: u32 = size_of::<RawFd>() as u32;

/// Sends the first bytes of `bytes`, with a file; returns how many.
pub(super) fn send_with(
    socket: &UnixStream,
    bytes: &[u8],
    file: &impl AsRawFd,
) -> io::Result<usize> {
    let mut control = Control([0; 32]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let message = message(&mut part, &mut control);
    // SAFETY: the message describes `bytes` and `control`, which has room for the header and one descriptor.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(FD_BYTES) as usize;
        libc::CMSG_DATA(header)
            .cast::<RawFd>()
            .write_unaligned(file.as_raw_fd());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives all of `bytes`, and the file that may come with its beginning.
pub(super) fn receive(socket: &mut UnixStream, bytes: &mut [u8]) -> io::Result<Option<File>> {
    let mut control = Control([0; 32]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut message = message(&mut part, &mut control);
    // SAFETY: the message describes `bytes` and `control`; a descriptor in it is new and nobody else's.
    let (received, file) = unsafe {
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let file = (received > 0 && !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS)
            .then(|| {
                let fd = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
                File::from_raw_fd(fd)
            });
        (received, file)
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    socket.read_exact(&mut bytes[received..])?;
    Ok(file)
}

fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: msghdr is plain numbers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: computes a number.
    let room = unsafe { libc::CMSG_SPACE(FD_BYTES) };
    message.msg_controllen = room as usize;
    message
}
