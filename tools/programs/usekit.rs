//! usekit: every tool in one program, called by a link with the tool's name, or by its first word.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// A tool's name, its question, and its `main`.
type Tool = (&'static str, &'static str, fn(&[OsString]) -> ExitCode);

const TOOLS: [Tool; 7] = [
    (
        "pressure",
        "Which resource is short right now, who loses, who causes it?",
        tools::pressure::main,
    ),
    ("profile", "Where does CPU time go?", tools::profile::main),
    (
        "offcputime",
        "Where do threads wait, why, and who woke them?",
        tools::offcputime::main,
    ),
    (
        "runqlat",
        "How long do runnable threads wait for a CPU, and behind whom?",
        tools::runqlat::main,
    ),
    (
        "lockstat",
        "Which locks make threads wait, for how long, and who holds them?",
        tools::lockstat::main,
    ),
    (
        "biolatency",
        "How long does block I/O take; how busy is the disk; what failed?",
        tools::biolatency::main,
    ),
    (
        "flame",
        "What does a profile say, what changed, and did it get worse?",
        flame::main,
    ),
];

/// What completes `usekit TOOL ...`, by shell.
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
    TOOLS.into_iter().find(|(tool, ..)| name == *tool)
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
    let rows = TOOLS.map(|(name, question, _)| format!("  {name:<12}{question}\n"));
    format!(
        "Usage: usekit TOOL [OPTIONS]\n\n{}\nusekit TOOL --help says more of one.\n",
        rows.concat()
    )
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
