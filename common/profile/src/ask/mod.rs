//! Questions that a profile answers in text.

pub mod top;
