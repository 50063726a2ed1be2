//! Helper processes that touch what is not trusted, files and memory of other processes, and what is said to them.

pub mod helper;
pub mod pages;
pub mod wire;
