//! Tests whose outcome is the same whatever else runs: they may run beside each other, and `tests/run` has them do so.

mod bad_days;
mod capabilities;
pub(crate) mod containers;
mod crowds;
mod descriptors;
mod endings;
mod events;
mod faults;
mod inherited;
pub(crate) mod lockstat_now;
mod lockstat_shared;
mod outputs;
mod privileges;
mod refused;
mod schema;
mod unheard;
