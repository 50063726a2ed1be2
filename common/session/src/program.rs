//! Starts and ends every tool: errors on one line, exit status.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::Shell;
use host::{descriptors, errands, privileges, remedies, scheduling, signals};

use crate::detaching;
use crate::outcome::Outcome;

/// `--completions SHELL`: prints the script that completes this tool's options.
///
/// # Errors
///
/// When it cannot be written.
pub(crate) fn print_completions(shell: Shell, mut command: clap::Command) -> Result<Outcome> {
    let name = command.get_name().to_owned();
    // Not to stdout at once: it panics where that fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, &name, &mut script);
    io::stdout().write_all(&script).context("write to stdout")?;
    Ok(Outcome::Done)
}

/// Exit status for losses under `--strict`.
const LOSSY: u8 = 3;
/// Exit status for a command line that makes no sense, as clap's.
const USAGE: u8 = 2;

/// Runs a tool that has this command line: errors go to stderr as `tool: what: why; remedy`, a closed pipe ends quietly.
pub fn main(tool: &str, line: &[OsString], run: impl FnOnce() -> Result<Outcome>) -> ExitCode {
    signals::keep_children();
    descriptors::raise_limit();
    descriptors::make_room();
    scheduling::guard();
    // Not the whole machine until Ctrl-C: a script's variable was empty. A later one is the command's own.
    let mut behind = line.iter().skip_while(|arg| *arg != "--");
    if behind.next().is_some() && behind.next().is_none() {
        profile::say!("error: no command after '--'\n\nFor more information, try '--help'.");
        return ExitCode::from(USAGE);
    }
    let ran = run();
    let status = status_of(tool, ran);
    detaching::wait(tool);
    errands::reap();
    scheduling::end();
    status
}

fn status_of(tool: &str, ran: Result<Outcome>) -> ExitCode {
    match ran {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Lossy) => ExitCode::from(LOSSY),
        Ok(Outcome::Command(status)) => ExitCode::from(status),
        Err(err) if err.chain().any(is_broken_pipe) => ExitCode::SUCCESS,
        Err(err) => {
            profile::say!("{tool}: {}", remedies::line(&err, privileges::suffice()));
            ExitCode::FAILURE
        }
    }
}

/// Whoever closed the pipe has read enough, and there is nothing to add; a command still has its status, though.
///
/// # Errors
///
/// Every other one.
pub fn unless_closed<T>(written: Result<T>, otherwise: T) -> Result<T> {
    match written {
        Err(err) if err.chain().any(is_broken_pipe) => Ok(otherwise),
        other => other,
    }
}

fn is_broken_pipe(cause: &(dyn Error + 'static)) -> bool {
    cause
        .downcast_ref::<io::Error>()
        .is_some_and(|err| err.kind() == io::ErrorKind::BrokenPipe)
}
