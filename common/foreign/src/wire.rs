//! Messages between the tool and its helper processes: a length, so many bytes, and perhaps a file.
//!
//! A helper is believed as little as what it reads: each message has a limit, and lists in it have theirs, because an entry
//! takes more memory than its bytes.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serialize;

/// Bytes of the length in front.
const PREFIX: usize = 4;
/// Bytes of a question: a path and some numbers, or 512 addresses.
const MAX_QUESTION: usize = 16 << 10;

/// Bytes that arrived as one message.
#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
    /// The file that came with its beginning.
    pub file: Option<File>,
}

impl Message {
    /// Its content, which may refer to its bytes.
    ///
    /// # Errors
    ///
    /// `InvalidData` when it says something else, or more.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> io::Result<T> {
        match postcard::take_from_bytes(&self.bytes) {
            Ok((value, [])) => Ok(value),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Sends a message, with a file that arrives open.
///
/// # Errors
///
/// The socket's.
pub fn send(
    mut socket: &UnixStream,
    message: &impl Serialize,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let prefix = length.to_le_bytes();
    let parts = [IoSlice::new(&prefix), IoSlice::new(&bytes)];
    let files: Vec<_> = file.into_iter().collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let sent = retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    socket.write_all(&prefix[sent.min(PREFIX)..])?;
    socket.write_all(&bytes[sent.saturating_sub(PREFIX)..])
}

/// The tool's next question, in a helper; `None` when there will be no more.
///
/// # Errors
///
/// The socket's, and `InvalidData` when the question is too long.
pub fn next(socket: &UnixStream, takes_file: bool) -> io::Result<Option<Message>> {
    match receive(socket, MAX_QUESTION, takes_file, || Ok(())) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        received => received.map(Some),
    }
}

/// Receives a message of at most `most` bytes; before each part `wait` returns when there is one. Without `takes_file` no
/// file of the sender's is opened here.
///
/// # Errors
///
/// `UnexpectedEof` when the other end is closed, `InvalidData` when the message is too long, else those of `wait` and of the
/// socket.
pub(crate) fn receive(
    mut socket: &UnixStream,
    most: usize,
    takes_file: bool,
    mut wait: impl FnMut() -> io::Result<()>,
) -> io::Result<Message> {
    let mut prefix = [0; PREFIX];
    wait()?;
    let (received, file) = receive_with(socket, &mut prefix, takes_file)?;
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut fill = |mut bytes: &mut [u8]| {
        while !bytes.is_empty() {
            wait()?;
            match socket.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => bytes = &mut bytes[more..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    fill(&mut prefix[received..])?;
    let length = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    fill(&mut bytes)?;
    Ok(Message { bytes, file })
}

/// Receives the first bytes of `bytes`, and a file; returns how many, 0 at the end.
fn receive_with(
    socket: &UnixStream,
    bytes: &mut [u8],
    takes_file: bool,
) -> io::Result<(usize, Option<File>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let room = if takes_file { &mut room[..] } else { &mut [] };
    let mut control = RecvAncillaryBuffer::new(room);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, flags))?.bytes;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next().map(File::from),
        _ => None,
    });
    Ok((received, file))
}

/// Reads a list of at most `MOST` entries, for `deserialize_with`.
pub fn at_most<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(AtMost::<T, MOST>(PhantomData))
}

struct AtMost<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for AtMost<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at most {MOST} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = from.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            list.push(entry);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn hear(socket: &UnixStream, most: usize, takes_file: bool) -> io::Result<Message> {
        receive(socket, most, takes_file, || Ok(()))
    }

    /// Receives these bytes, behind which the other end is closed.
    fn heard(bytes: &[u8]) -> io::Result<u8> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        hear(&ours, 2, false)?.read()
    }

    #[test]
    fn message_and_file_arrive() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        for takes_file in [true, false] {
            send(&theirs, &(7_u32, "text"), Some(file.as_fd())).unwrap();
            send(&theirs, &"more", None).unwrap();
            let message = hear(&ours, 100, takes_file).unwrap();
            assert_eq!(message.read::<(u32, &str)>().unwrap(), (7, "text"));
            assert_eq!(message.file.is_some(), takes_file);
            let message = hear(&ours, 100, true).unwrap();
            assert_eq!(message.read::<&str>().unwrap(), "more");
            assert!(message.file.is_none());
        }
    }

    #[test]
    fn garbled_messages_are_errors() {
        assert_eq!(heard(b"\x01\0\0\0\x07").unwrap(), 7);
        for (bytes, error) in [
            (&b""[..], io::ErrorKind::UnexpectedEof),
            (b"\x01\0", io::ErrorKind::UnexpectedEof),
            (b"\x02\0\0\0\x07", io::ErrorKind::UnexpectedEof),
            (b"\0\0\0\0", io::ErrorKind::InvalidData),
            (b"\x02\0\0\0\x07\x07", io::ErrorKind::InvalidData),
            (b"\x03\0\0\0\x07\x07\x07", io::ErrorKind::InvalidData),
            (b"\xff\xff\xff\xff\x07", io::ErrorKind::InvalidData),
        ] {
            assert_eq!(heard(bytes).unwrap_err().kind(), error, "{bytes:?}");
        }
    }

    #[test]
    fn long_lists_are_errors() {
        #[derive(serde::Deserialize)]
        struct Three(#[serde(deserialize_with = "at_most::<_, _, 3>")] Vec<()>);

        let read = |bytes: &[u8]| postcard::from_bytes::<Three>(bytes).map(|list| list.0.len());
        assert_eq!(read(&[3]).unwrap(), 3);
        assert!(read(&[4]).is_err());
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
    }
}
