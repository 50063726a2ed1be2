//! The tracing tools, one module each: `programs` calls them, as a program a tool or all of them in one.

#[path = "biolatency/main.rs"]
pub mod biolatency;
#[path = "lockstat/main.rs"]
pub mod lockstat;
#[cfg(test)]
mod made_up;
#[cfg(test)]
mod narrow;
#[path = "offcputime/main.rs"]
pub mod offcputime;
#[cfg(test)]
mod one_window;
#[path = "pressure/main.rs"]
pub mod pressure;
#[path = "profile/main.rs"]
pub mod profile;
#[path = "runqlat/main.rs"]
pub mod runqlat;
#[path = "syscount/main.rs"]
pub mod syscount;
#[path = "why/main.rs"]
pub mod why;
