//! `-o FILE`: whole files or none.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use host::procs;
use profile::write;
use rustix::fs::{AtFlags, CWD, linkat};
use tempfile::NamedTempFile;

use crate::program::unless_closed;

/// What a report looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Human,
    /// One stack a line.
    Folded,
    /// One object a line.
    Json,
    /// What the profile crate writes without the tool's help: pictures and other tools' formats.
    File(write::Format),
}

impl From<write::Format> for Format {
    fn from(format: write::Format) -> Self {
        match format {
            write::Format::Folded => Self::Folded,
            write::Format::Json => Self::Json,
            format => Self::File(format),
        }
    }
}

/// A file to write a report into; its ending chooses the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Where.
    pub path: PathBuf,
    /// As what.
    pub format: Format,
}

impl FromStr for OutputFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match write::Format::of_name(text) {
            Some(format) => Ok(Self {
                path: text.into(),
                format: format.into(),
            }),
            None => {
                let endings = write::Format::ENDINGS.iter().map(|(ending, _)| *ending);
                let endings: Vec<&str> = endings.collect();
                Err(format!(
                    "the ending chooses the format; use one of {}",
                    endings.join(" ")
                ))
            }
        }
    }
}

impl OutputFile {
    /// Fails now rather than after a long run.
    ///
    /// # Errors
    ///
    /// When the file could not be written.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let target = self.target().with_context(|| self.complaint())?;
        if target.exists() && !target.is_file() {
            fs::OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&target)
                .map(drop)
                .or_else(|err| {
                    if err.raw_os_error() == Some(libc::ENXIO) {
                        Ok(())
                    } else {
                        Err(err)
                    }
                })
        } else {
            temporary_beside(&target).map(drop)
        }
        .with_context(|| self.complaint())
    }

    /// Writes a file without a name in the target's directory and names it at last: whenever the tool is killed, nothing of
    /// it is left. Devices and FIFOs are written to directly.
    ///
    /// # Errors
    ///
    /// When writing fails; the target is untouched then.
    pub fn write(&self, report: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let target = self.target().with_context(|| self.complaint())?;
        if target.exists() && !target.is_file() {
            let file = fs::OpenOptions::new().write(true).open(&target);
            let mut out = BufWriter::new(file.with_context(|| self.complaint())?);
            report(&mut out).with_context(|| self.complaint())?;
            return out.flush().with_context(|| self.complaint());
        }
        let temporary = temporary_beside(&target).with_context(|| self.complaint())?;
        // Not through a named one, whose errors name the temporary file.
        let mut out = BufWriter::new(temporary.file());
        report(&mut out)
            .and_then(|()| Ok(out.flush()?))
            .with_context(|| self.complaint())?;
        drop(out);
        temporary
            .file()
            .set_permissions(fs::Permissions::from_mode(0o666 & !umask()))
            .and_then(|()| temporary.persist(&target))
            .with_context(|| self.complaint())?;
        Ok(())
    }

    /// Tells people where the file is and how to read it; machines know.
    pub fn say(&self, tool: &str, quiet: bool) {
        let found = write::Format::of_name(&self.path.to_string_lossy());
        if let Some(format) = found.filter(|_| !quiet && io::stderr().is_terminal()) {
            profile::say!("{tool}: {}: {}", self.path.display(), format.hint());
        }
    }

    /// A symlink stays one: what it points to is replaced. The kernel is to follow it, for it refuses links that others have put
    /// into a directory like /tmp (fs.protected_symlinks).
    fn target(&self) -> io::Result<PathBuf> {
        let there = fs::File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(&self.path);
        let there = match there {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(self.path.clone()),
            other => other?,
        };
        let path = fs::read_link(format!("/proc/self/fd/{}", there.as_raw_fd()))?;
        // Pipes and files that were removed have no path, though there is a text.
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let found = fs::symlink_metadata(&path).ok().map(identity);
        Ok(if found == Some(identity(there.metadata()?)) {
            path
        } else {
            self.path.clone()
        })
    }

    fn complaint(&self) -> String {
        format!("write {}", self.path.display())
    }
}

/// Writes a report into files and then to stdout, if it has a format: whoever reads that may have left, and is no trouble.
///
/// # Errors
///
/// Those of `write`, and of what is written to.
pub fn write_all(
    files: &[OutputFile],
    format: Option<Format>,
    mut write: impl FnMut(Format, &mut dyn Write) -> Result<()>,
) -> Result<()> {
    for file in files {
        unless_closed(file.write(|out| write(file.format, out)), ())?;
    }
    let Some(format) = format else {
        return Ok(());
    };
    let mut out = io::stdout().lock();
    let written = write(format, &mut out).and_then(|()| Ok(out.flush()?));
    unless_closed(written.context("write to stdout"), ())
}

/// A file to be.
enum Temporary {
    Nameless(fs::File),
    /// Where the file system has no others.
    Named(NamedTempFile),
}

impl Temporary {
    fn file(&self) -> &fs::File {
        match self {
            Self::Nameless(file) => file,
            Self::Named(file) => file.as_file(),
        }
    }

    /// Gives it its name, in place of whoever had that before.
    fn persist(self, target: &Path) -> io::Result<()> {
        let file = match self {
            Self::Named(file) => return file.persist(target).map(drop).map_err(|err| err.error),
            Self::Nameless(file) => file,
        };
        match link(&file, target) {
            // A link replaces nothing, a rename does.
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => tempfile::Builder::new()
                .make_in(directory(target), |path| link(&file, path))?
                .persist(target)
                .map(drop)
                .map_err(|err| err.error),
            other => other,
        }
    }
}

/// Names a nameless file.
fn link(file: &fs::File, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

fn temporary_beside(path: &Path) -> io::Result<Temporary> {
    let mut nameless = fs::File::options();
    nameless
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE);
    match nameless.open(directory(path)) {
        Ok(file) => return Ok(Temporary::Nameless(file)),
        // What file systems without such files say, and kernels before 3.11.
        Err(err)
            if [libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL]
                .contains(&err.raw_os_error().unwrap_or(0)) => {}
        Err(err) => return Err(err),
    }
    // Opened here, because the crate's own errors name the temporary path, which nobody asked for.
    let mut options = fs::File::options();
    options.write(true).create_new(true).mode(0o600);
    let named = tempfile::Builder::new().make_in(directory(path), |path| options.open(path));
    named.map(Temporary::Named)
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str() != OsStr::new("") => parent,
        _ => Path::new("."),
    }
}

fn umask() -> u32 {
    let status = procs::own_status();
    let mask = procs::words(&status, "Umask:").and_then(|mut words| words.next());
    mask.and_then(|mask| u32::from_str_radix(mask, 8).ok())
        .unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_in(dir: &tempfile::TempDir, name: &str) -> OutputFile {
        dir.path().join(name).to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn the_ending_chooses_and_others_are_refused() {
        assert_eq!(
            "a.folded".parse::<OutputFile>().unwrap().format,
            Format::Folded
        );
        let picture: OutputFile = "a.svg".parse().unwrap();
        assert_eq!(picture.format, Format::File(write::Format::Svg));
        let message = "a.png".parse::<OutputFile>().unwrap_err();
        assert!(
            message.contains(".folded") && message.contains(".svg"),
            "{message}"
        );
    }

    #[test]
    fn a_failed_report_leaves_the_old_file_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = file_in(&dir, "out.json");
        file.write(|out| Ok(out.write_all(b"old")?)).unwrap();
        let failed = file.write(|out| {
            out.write_all(b"new")?;
            anyhow::bail!("half-way")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&file.path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(
            fs::metadata(&file.path).unwrap().permissions().mode() & 0o777,
            0o666 & !umask()
        );
    }

    #[test]
    fn a_full_disk_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = file_in(&dir, "full.json");
        std::os::unix::fs::symlink("/dev/full", &file.path).unwrap();
        let failed = file.write(|out| Ok(out.write_all(b"x")?)).unwrap_err();
        assert!(
            format!("{failed:#}").contains("No space left on device"),
            "{failed:#}"
        );
    }

    #[test]
    fn an_unwritable_place_is_found_before_the_run() {
        let file: OutputFile = "/no/such/directory/out.folded".parse().unwrap();
        let message = format!("{:#}", file.check_writable().unwrap_err());
        assert_eq!(
            message,
            "write /no/such/directory/out.folded: No such file or directory (os error 2)"
        );
    }
}
