//! What a profile is: stacks with values, and the text it turns into.
//!
//! Pure: no BPF, no `/proc`, nothing Linux-only. Stacks are root → leaf everywhere.

pub mod escape;
pub mod folded;
pub mod frame;
pub mod json;
pub mod model;
pub mod statistics;
pub mod units;
