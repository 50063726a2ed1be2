//! lockstat, as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::lockstat::main(&std::env::args_os().collect::<Vec<_>>())
}
