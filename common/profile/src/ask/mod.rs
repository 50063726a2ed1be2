//! Questions that a profile answers in text.

pub mod filter;
pub mod heat;
pub mod merge;
pub mod peek;
pub mod top;
