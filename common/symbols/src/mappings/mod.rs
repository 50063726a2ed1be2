//! What every process has mapped executable, and since when.
//!
//! Two sources feed it: `/proc/PID/maps` for processes that ran before the tracer, and the kernel's perf side-band
//! stream for everything that happens afterwards, so that a process that lived for 5 ms is known as exactly as a daemon.

mod events;
mod forgotten;
mod held;
mod mapping;
pub(crate) mod maps;
mod paths;
mod process;
mod processes;
mod record;
mod ring;
mod sideband;
mod table;

use mapping::backing_of;
pub use mapping::{Backing, FileKey, Mapping};
pub(crate) use processes::Processes;

/// Where in its file our own code at `address` lies; `None` if it is in none.
pub fn own_file_offset(address: u64) -> Option<u64> {
    let own = maps::read(std::process::id()).ok()?;
    let found = own.iter().find(|mapping| mapping.covers(address))?;
    matches!(found.backing, Backing::File(_)).then(|| found.file_offset(address))
}

/// Bytes of our own executable mapping that starts at `start`.
pub(crate) fn mapped_size(start: u64) -> std::io::Result<u64> {
    let own = maps::read(std::process::id())?;
    let found = own
        .iter()
        .find(|m| m.start == start)
        .map(|m| m.end - m.start);
    found.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}
