//! Two profiles beside each other: what changed, and what only chance did.

mod chance;
pub mod diff;
pub mod gate;
mod random;
pub mod report;
pub mod scale;
mod shuffle;

pub use chance::{Judged, Verdict};
