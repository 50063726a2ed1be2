//! What the tracing tools share; it knows no tool by name.

pub mod symbolize;
