//! How every tool starts and ends: privileges, errors on one line, exit status.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap_complete::Shell;

use crate::{descriptors, detaching, errands, scheduling, signals};

/// How a run that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit status 0.
    Done,
    /// Something was lost and `--strict` was given: exit status 3.
    Lossy,
    /// Exit status of `-- COMMAND`.
    Command(u8),
}

impl Outcome {
    /// Of the same run around a command that ended with `status`. A failure of the command is its own affair, which
    /// scripts act upon: losses show in the status of successful ones only.
    pub(crate) fn after_command(self, status: u8) -> Self {
        match (self, status) {
            (Self::Lossy, 0) => Self::Lossy,
            _ => Self::Command(status),
        }
    }
}

/// `--completions SHELL`: prints the script that completes this tool's options.
///
/// # Errors
///
/// When it cannot be written.
pub fn print_completions(shell: Shell, mut command: clap::Command) -> Result<Outcome> {
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

/// Runs a tool: errors go to stderr as `tool: what: why`, a closed pipe ends quietly.
pub fn main(tool: &str, run: impl FnOnce() -> Result<Outcome>) -> ExitCode {
    signals::keep_children();
    descriptors::raise_limit();
    descriptors::make_room();
    scheduling::guard();
    // Not the whole machine until Ctrl-C: a script's variable was empty. A later one is the command's own.
    let mut behind = std::env::args_os().skip_while(|arg| arg != "--");
    if behind.next().is_some() && behind.next().is_none() {
        crate::say!("error: no command after '--'\n\nFor more information, try '--help'.");
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
            let line = with_remedy(format!("{err:#}").replace('\n', " "));
            crate::say!("{tool}: {}", profile::escape::terminal(&line));
            ExitCode::FAILURE
        }
    }
}

/// What runs short anywhere has the same remedy everywhere.
fn with_remedy(line: String) -> String {
    if line.contains(&io::Error::from_raw_os_error(libc::EMFILE).to_string()) {
        return line + "; allow more with ulimit -n 1024";
    }
    line
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

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Checks what loading BPF programs takes, before anything is loaded.
///
/// # Errors
///
/// Names the capability that is missing, or says that the kernel has no type information.
pub fn check_privileges() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        // Without /proc the kernel's own refusal has to do.
        .unwrap_or(u64::MAX);
    check_capabilities(effective)?;
    check_lockdown(crate::probe::lockdown().as_deref())?;
    check_btf(Path::new("/sys/kernel/btf/vmlinux"))
}

/// Root may have been stripped of capabilities and others may have them, so the user ID is not asked.
fn check_capabilities(effective: u64) -> Result<()> {
    let has = |capability: u32| effective >> capability & 1 == 1;
    if has(CAP_SYS_ADMIN) {
        return Ok(());
    }
    let missing: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter_map(|(capability, name)| (!has(capability)).then_some(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "needs root, or CAP_BPF and CAP_PERFMON (missing: {}); run it with sudo",
        missing.join(", ")
    )
}

/// In the stricter of its two modes BPF programs may not read the kernel's memory.
fn check_lockdown(mode: Option<&str>) -> Result<()> {
    if mode == Some("confidentiality") {
        bail!("kernel lockdown is in confidentiality mode, which forbids tracing; boot without it");
    }
    Ok(())
}

fn check_btf(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    bail!(
        "this kernel has no BTF ({} is missing); a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_capability_is_named() {
        assert!(check_capabilities(1 << CAP_SYS_ADMIN).is_ok());
        assert!(check_capabilities(1 << CAP_BPF | 1 << CAP_PERFMON).is_ok());
        let message = check_capabilities(1 << CAP_BPF).unwrap_err().to_string();
        assert!(message.contains("(missing: CAP_PERFMON)"), "{message}");
        let message = check_capabilities(0).unwrap_err().to_string();
        assert!(
            message.contains("(missing: CAP_BPF, CAP_PERFMON); run it with sudo"),
            "{message}"
        );
    }

    #[test]
    fn lockdown_forbids_tracing_in_its_stricter_mode_only() {
        assert!(check_lockdown(None).is_ok() && check_lockdown(Some("integrity")).is_ok());
        let message = check_lockdown(Some("confidentiality")).unwrap_err();
        assert!(message.to_string().contains("lockdown"), "{message}");
    }

    #[test]
    fn a_kernel_without_btf_is_told_from_other_troubles() {
        let message = check_btf(Path::new("/nonexistent/btf"))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("no BTF") && message.contains("CONFIG_DEBUG_INFO_BTF=y"),
            "{message}"
        );
    }
}
