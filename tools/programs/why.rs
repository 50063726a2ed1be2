//! why, as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    tools::why::main(&std::env::args_os().collect::<Vec<_>>())
}
