//! syscount, as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::syscount::main(&std::env::args_os().collect::<Vec<_>>())
}
