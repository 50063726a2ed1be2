//! Whole files or none; stdout where none is named.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use profile::write::Format;

/// Where a result goes, and as what.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
}

/// The format of a file, or of stdout without one.
pub(crate) fn format(target: Option<&Target>) -> Format {
    target.map_or(Format::Folded, |target| target.format)
}

/// A file whose ending is a format; for clap.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    match Format::of_name(text) {
        Some(format) => Ok(Target {
            path: text.into(),
            format,
        }),
        None => {
            let endings: Vec<&str> = Format::ENDINGS.iter().map(|(ending, _)| *ending).collect();
            Err(format!(
                "the ending chooses the format; use {}",
                endings.join(" ")
            ))
        }
    }
}

/// Writes into a file, or to stdout.
pub(crate) fn write(
    path: Option<&Path>,
    report: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let Some(path) = path else {
        let mut out = BufWriter::new(io::stdout().lock());
        report(&mut out)
            .and_then(|()| out.flush())
            .context("write to stdout")?;
        return Ok(());
    };
    let complaint = || format!("write {}", path.display());
    let target = followed(path).with_context(complaint)?;
    if target.exists() && !target.is_file() {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&target)
            .with_context(complaint)?;
        let mut out = BufWriter::new(file);
        return report(&mut out)
            .and_then(|()| out.flush())
            .with_context(complaint);
    }
    let directory = match target.parent() {
        Some(parent) if parent.as_os_str() != "" => parent,
        _ => Path::new("."),
    };
    let (mut file, mut refused) = (None, None);
    let temporary = tempfile::Builder::new().make_in(directory, |path| {
        // Created like any file, with what the umask leaves.
        let made = fs::File::options().write(true).create_new(true).open(path);
        refused = made.as_ref().err().and_then(io::Error::raw_os_error);
        made
    });
    // The crate's own error names the temporary file, which nobody asked for.
    let own = |err: io::Error| refused.map_or(err.kind().into(), io::Error::from_raw_os_error);
    let temporary = temporary.map_err(own).with_context(complaint)?;
    let mut out = BufWriter::new(file.insert(temporary).as_file());
    report(&mut out)
        .and_then(|()| out.flush())
        .with_context(complaint)?;
    drop(out);
    let temporary = file.take().context("it was put there above")?;
    temporary
        .persist(&target)
        .map_err(|err| err.error)
        .with_context(complaint)?;
    Ok(())
}

/// A symlink stays one: what it points to is replaced; unless the kernel refuses to follow it, as links that others have put into a
/// directory like /tmp (fs.protected_symlinks).
fn followed(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
    }
}

/// Pictures and binary files are not for terminals.
pub(crate) fn refuse_terminal(path: Option<&Path>, what: &str) -> Result<()> {
    if path.is_none() && io::stdout().is_terminal() {
        bail!("{what} is not for terminals: name a file with -o");
    }
    Ok(())
}

/// Says where a picture is and how to read it.
pub(crate) fn say(target: &Target) {
    say_hint(target, target.format.hint());
}

/// The same of a picture that is read in its own way.
pub(crate) fn say_hint(target: &Target, hint: &str) {
    if io::stderr().is_terminal() {
        profile::say!("{}: {hint}", target.path.display());
    }
}
