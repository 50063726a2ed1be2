//! `--probe`: what one pastes into a bug report.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};

use anyhow::Result;
use loader::Selection;

use super::{Feature, Kernel, Need, degradations};
use crate::outcome::Outcome;
use crate::requirements::lockdown;

/// Width of the lines.
const COLUMNS: usize = 80;

/// What the kernel offers, which of a tool's programs are used with the options given, and what it has to do without.
pub fn describe(tool: &str, kernel: &Kernel, needs: &[Need], programs: Selection<'_>) -> String {
    let mut text = format!("{tool} {} on {}\n", env!("CARGO_PKG_VERSION"), system());
    for feature in Feature::ALL {
        let line = if kernel.has(feature) {
            format!("  yes  {feature}\n")
        } else {
            format!("  no   {feature}: {}\n", feature.since())
        };
        text += &line;
    }
    let used = |wanted: bool| {
        let names = programs.iter().filter(|(_, used)| *used == wanted);
        names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    for (heading, wanted) in [("uses", true), ("not used", false)] {
        let _ = writeln!(text, "{}", wrapped(heading, &used(wanted)));
    }
    let missing = degradations(kernel, needs);
    if missing.is_empty() {
        text += "nothing is missing\n";
    }
    for line in missing {
        let _ = writeln!(text, "{}", wrapped("  without", &line));
    }
    text
}

/// For `-v`: [`describe`], on stderr.
pub fn say(tool: &str, kernel: &Kernel, needs: &[Need], programs: Selection<'_>) {
    profile::say!("{}", describe(tool, kernel, needs, programs).trim_end());
}

/// `--probe`: printed, and the run is over.
///
/// # Errors
///
/// Those of writing to stdout.
pub fn print(
    tool: &str,
    kernel: &Kernel,
    needs: &[Need],
    programs: Selection<'_>,
) -> Result<Outcome> {
    let text = describe(tool, kernel, needs, programs);
    io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}

/// Kernel release, machine, lockdown, and the distribution's name for itself.
fn system() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let mut system = format!("Linux {} {}", release.trim(), std::env::consts::ARCH);
    if let Some(name) = read("/etc/os-release")
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
    {
        let name = profile::escape::terminal(name.trim_matches('"'));
        let _ = write!(system, ", {name}");
    }
    if let Some(mode) = lockdown() {
        let _ = write!(system, ", lockdown {mode}");
    }
    system
}

/// `heading word word…` in lines of 80 columns, the later ones indented.
fn wrapped(heading: &str, text: &str) -> String {
    let mut lines = vec![heading.to_owned()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let last = lines.last_mut().expect("never empty");
        if last.len() + 1 + word.len() > COLUMNS {
            lines.push(format!("      {word}"));
        } else {
            let _ = write!(last, " {word}");
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        let text = wrapped("uses", &"sched_switch, ".repeat(20));
        assert!(text.lines().count() > 3, "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert_eq!(text.matches("sched_switch").count(), 20);
    }
}
