//! Waits of PostgreSQL's processes, by the wait events that these announce: row locks, LWLocks, buffers, I/O.

mod events;
mod lock_table;
mod rows;
mod servers;
mod statement;

pub(crate) use events::{Class, name as event_name};
pub(crate) use lock_table::{Blocked, Tag, blocked};
pub(crate) use rows::{name, take};
pub(crate) use servers::{Backend, Servers, backends, event};
pub(crate) use statement::{VARIABLE as STATEMENT, statement};
