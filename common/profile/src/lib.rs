//! What a profile is: stacks with values, and the text it turns into.
//!
//! Pure: no BPF, no `/proc`, nothing Linux-only. Stacks are root → leaf everywhere.

pub mod frame;
pub mod model;
