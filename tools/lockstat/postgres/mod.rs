//! Waits of PostgreSQL's processes, by the wait events that these announce: row locks, LWLocks, buffers, I/O.

mod events;
mod rows;
mod servers;

pub(crate) use events::Class;
pub(crate) use rows::{name, take};
pub(crate) use servers::Servers;
