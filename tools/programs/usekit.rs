//! usekit: every tool in one program, called by a link with the tool's name, or by its first word.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// A tool's name, its question, and its `main`.
type Tool = (&'static str, &'static str, fn(&[OsString]) -> ExitCode);

const TOOLS: &[Tool] = &[
    ("why", tools::why::QUESTION, tools::why::main),
    ("pressure", tools::pressure::QUESTION, tools::pressure::main),
    ("profile", tools::profile::QUESTION, tools::profile::main),
    (
        "offcputime",
        tools::offcputime::QUESTION,
        tools::offcputime::main,
    ),
    ("runqlat", tools::runqlat::QUESTION, tools::runqlat::main),
    ("lockstat", tools::lockstat::QUESTION, tools::lockstat::main),
    (
        "biolatency",
        tools::biolatency::QUESTION,
        tools::biolatency::main,
    ),
    ("syscount", tools::syscount::QUESTION, tools::syscount::main),
    ("flame", flame::QUESTION, flame::main),
];

/// Scripts that complete `usekit TOOL ...`, by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", include_str!("completions/usekit.bash")),
    ("fish", include_str!("completions/usekit.fish")),
    ("zsh", include_str!("completions/usekit.zsh")),
];

/// Exit status for a command line that makes no sense, as the tools'.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let called = line.first().and_then(|path| Path::new(path).file_name());
    if let Some((.., main)) = called.and_then(tool) {
        return main(&line);
    }
    let Some((name, rest)) = line.get(1).map(|name| (name, &line[1..])) else {
        return print(&list());
    };
    match (tool(name), name.to_str()) {
        (Some((.., main)), _) => main(rest),
        (None, Some("--help" | "-h" | "help")) => print(&list()),
        (None, Some("--version" | "-V")) => {
            print(concat!("usekit ", env!("CARGO_PKG_VERSION"), "\n"))
        }
        (None, Some("--completions")) => completions(rest.get(1)),
        (None, _) => {
            let name = name.to_string_lossy();
            profile::say!(
                "usekit: no tool {}; usekit alone lists them",
                profile::escape::terminal(&name)
            );
            ExitCode::from(USAGE)
        }
    }
}

fn tool(name: &OsStr) -> Option<Tool> {
    TOOLS.iter().copied().find(|(tool, ..)| name == *tool)
}

fn completions(shell: Option<&OsString>) -> ExitCode {
    let mut known = COMPLETIONS.into_iter();
    match known.find(|(name, _)| shell.is_some_and(|shell| shell == name)) {
        Some((_, script)) => print(script),
        None => {
            profile::say!("usekit: --completions wants one of: bash, fish, zsh");
            ExitCode::from(USAGE)
        }
    }
}

fn list() -> String {
    let row = |(name, question, _): &Tool| format!("  {name:<12}{question}\n");
    let rows: String = TOOLS.iter().map(row).collect();
    format!("Usage: usekit TOOL [OPTIONS]\n\n{rows}\nusekit TOOL --help says more of one.\n")
}

/// A reader that closed the pipe has read enough.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let error = anyhow::Error::new(error).context("write to stdout");
            profile::say!("usekit: {}", host::remedies::line(&error, true));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
