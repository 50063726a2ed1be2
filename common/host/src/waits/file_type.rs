//! Kinds of files: `S_IFMT >> 12`, and above it `enum special_file` of the BPF side.

/// A pipe, named or not.
pub const FIFO: u8 = 1;
/// Terminals and other devices that give characters.
pub const CHARACTERS: u8 = 2;
/// A file.
pub const REGULAR: u8 = 8;
/// A socket; in a poll, one of a peer whom its thread waits for.
pub const SOCKET: u8 = 12;
/// `eventfd(2)`
pub const EVENTFD: u8 = 16;
/// `inotify(7)`
pub const INOTIFY: u8 = 17;
/// `timerfd_create(2)`
pub const TIMERFD: u8 = 18;
/// `signalfd(2)`
pub const SIGNALFD: u8 = 19;
/// A socket of a connection that the other end asked for.
pub const ACCEPTED: u8 = 20;
/// A poll of a socket that is no end of a connection, of a descriptor of no kind above, or of several that are not for one peer.
pub const OTHER: u8 = 21;
/// A poll of no descriptor: a sleep.
pub const NOTHING: u8 = 22;
/// Directories, block devices, regular files.
pub(super) const ON_DISK: [u8; 3] = [4, 6, REGULAR];
