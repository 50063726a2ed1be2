//! Addresses → names.

pub mod module;
