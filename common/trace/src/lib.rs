//! What the tracing tools share; it knows no tool by name.

pub mod arrivals;
pub mod budget;
pub mod cgroups;
pub mod closing;
pub mod collect;
pub mod command;
pub mod cost;
pub mod glob;
pub mod histogram;
pub mod intervals;
pub mod iterate;
pub mod libraries;
pub mod loader;
pub mod losses;
mod machine;
mod mappings;
pub mod maps;
pub mod memory;
pub mod options;
pub mod output;
pub mod perf;
pub mod places;
pub mod privileges;
pub mod probe;
pub mod progress;
pub mod run;
pub mod signals;
pub mod stacks;
pub mod symbolize;
pub mod targets;
pub mod task;
pub mod unwind;
pub mod waits;
pub mod window;

pub use mappings::own_file_offset;
pub use profile::say;
