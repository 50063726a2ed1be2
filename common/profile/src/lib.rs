//! What a profile is: stacks with values, and the text it turns into.
//!
//! Pure: no BPF, no `/proc`, nothing Linux-only. Stacks are root → leaf everywhere.

pub mod ask;
pub mod brief;
mod columns;
pub mod compare;
pub mod draw;
pub mod ends;
pub mod escape;
pub mod events;
pub mod folded;
pub mod frame;
pub mod functions;
pub mod heaviest;
pub mod json;
pub mod listing;
pub mod losses;
pub mod model;
pub mod nameless;
mod pprof;
pub mod rank;
pub mod read;
pub mod reasons;
pub mod recording;
pub mod say;
mod shares;
pub mod statistics;
pub mod style;
pub mod sums;
pub mod table;
pub mod text;
pub mod tree;
pub mod units;
pub mod write;
