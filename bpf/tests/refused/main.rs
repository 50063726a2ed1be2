//! Programs that some kernel's verifier would refuse, found in the objects without a kernel.

mod code;
#[path = "../compile/mod.rs"]
mod compile;
mod contexts;
mod kfuncs;
