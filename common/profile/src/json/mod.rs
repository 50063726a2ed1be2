//! A profile as one JSON object.
//!
//! ```text
//! {"tool": "offcputime", "version": "0.1.0", "duration_ns": 30000000000,
//!  "values": [{"name": "blocked", "unit": "ns"}, …],
//!  "stacks": [{"comm": "redis-server", "pid": 123, "tid": 124, "reason": "futex", "idle": true, "count": 7,
//!              "values": [1234567, 89], "user": [FRAME, …], "user_end": "root", "kernel": [FRAME, …],
//!              "waker": {"comm": …, "pid": …, "tid": …, "user": […], "user_end": …, "kernel": […]} }, …],
//!  "event": "page-faults", "time_ns": 1700000000000000000, "sample_period_ns": 10101010, "comments": ["no losses", …],
//!  "build_ids": {"/usr/bin/redis-server": "c0ffee…", …},
//!  …whatever the tool adds: "losses", "cost"… }
//! ```
//!
//! Frames are root → leaf: `{"name", "kind": "user" | "kernel" | "jit", "address": "0x1a2b", "module", "inlined": true,
//! "file", "line"}`. Absent means unknown or false. Addresses are text because JavaScript's numbers end at 2^53; values
//! are integers in their unit. `user_end` says how the user stack ended: `root` (it is complete), `depth`, `no-table`,
//! `unreadable` or `unsupported`. `count` is the number of samples or intervals behind the values. A waker without `comm` is
//! an interrupt. `event` is what samples were taken of, `time_ns` when the window began (since 1970), `sample_period_ns` the
//! time that a sample of a clock stands for, and `comments` say what was lost and what it cost; all of them are optional.
//! Stacks are in no particular order and may repeat.

mod objects;

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Value};

use crate::model::Profile;
use objects::document;
pub(crate) use objects::{FrameObject, StackObject};

/// Writes the object on one line; `extra` fields are the tool's own, behind the profile's.
///
/// # Errors
///
/// Those of `out`; `InvalidInput` where `extra` has a field of the schema: the object would have it twice.
pub fn write(
    profile: &Profile,
    extra: &Map<String, Value>,
    out: &mut impl Write,
) -> io::Result<()> {
    let own = ["tool", "version", "duration_ns", "values", "stacks"];
    if let Some(field) = own.into_iter().find(|field| extra.contains_key(*field)) {
        let message = format!("field {field} is the profile's own");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    write_line(profile, extra, out)
}

/// Of one type, so that it is compiled, and optimised, here. Stacks by the ten thousand make a line of 100 MB.
fn write_line(
    profile: &Profile,
    extra: &Map<String, Value>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    serde_json::to_writer(&mut out, &document(profile, extra))?;
    writeln!(out)?;
    out.flush()
}

/// Builds the object in memory, where it is needed as a value; [`write()`](fn@write) does without.
pub fn to_json(profile: &Profile, extra: Map<String, Value>) -> Value {
    let mut object = serde_json::to_value(document(profile, &Map::new())).unwrap_or_default();
    if let Some(object) = object.as_object_mut() {
        object.extend(extra);
    }
    object
}
