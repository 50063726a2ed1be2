//! What the workloads share: flags, clocks, the kernel's accounts and the protocol with the test.
//!
//! A workload prints `ready PID` once all its threads are asleep, starts on a line on stdin, prints one JSON object per
//! thread with what it measured itself, then `done`, and keeps every thread until stdin ends. So a
//! tracer can attach before the work, and `/proc/PID/task/TID` stays readable after it.

#![allow(clippy::print_stderr, reason = "their output is read by tests")]

#[macro_use]
mod countdown;
pub mod account;
pub mod affinity;
pub mod clock;
pub mod flags;
pub mod protocol;
pub mod stage;
pub mod task;
