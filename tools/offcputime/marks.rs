//! Functions whose calls and returns begin and end pieces of work.

use std::env;
use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use bpf::offcputime::OffcputimeSkel;
use budget::meter::runs;
use libbpf_rs::{Link, ProgramMut, UprobeOpts};
use loader::functions::{self, Function};
use session::targets::Targets;
use session::traps;

/// A place in a program: a function's call or its return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file's; `None`: the file of the process or of the command.
    path: Option<String>,
    symbol: String,
    is_return: bool,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, place) = text.split_once(':').unwrap_or(("", ""));
        let is_return = match kind {
            "uprobe" => false,
            "uretprobe" => true,
            _ => return Err(EXPECTED.into()),
        };
        let (path, symbol) = traps::file_and_function(place);
        if symbol.is_empty() || path == Some("") {
            return Err(EXPECTED.into());
        }
        Ok(Self {
            path: path.map(str::to_owned),
            symbol: symbol.into(),
            is_return,
        })
    }
}

const EXPECTED: &str = "write uprobe:FUNCTION or uprobe:PATH:FUNCTION, uretprobe: for its return";

/// The places where work begins and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    from: Place,
    to: Place,
}

impl Marks {
    /// Without an end: the return of what began it.
    pub(crate) fn new(from: Place, to: Option<Place>) -> Self {
        let to = to.unwrap_or_else(|| Place {
            is_return: true,
            ..from.clone()
        });
        Self { from, to }
    }

    /// Looks whether they lead somewhere.
    ///
    /// # Errors
    ///
    /// Text for the user when nobody has named a file, and nothing that was asked for tells one; or both are the same place.
    pub(crate) fn check(&self, targets: &Targets) -> Result<(), String> {
        let Self { from, to } = self;
        let is_told = !targets.pids.is_empty() || !targets.command.is_empty();
        let mut nameless = [from, to].into_iter().filter(|place| place.path.is_none());
        if let Some(Place { symbol, .. }) = nameless.next().filter(|_| !is_told) {
            return Err(format!(
                "uprobe:{symbol}: in which file? write uprobe:PATH:{symbol}, or -p PID"
            ));
        }
        if from.is_return == to.is_return && from.is_of_function_of(to, targets) {
            return Err(format!(
                "work would end where it begins, at {}: --to is to name another place",
                from.words()
            ));
        }
        Ok(())
    }

    /// Tells if they are calls of one function, which may be recursive.
    pub(crate) fn are_of_calls(&self, targets: &Targets) -> bool {
        let Self { from, to } = self;
        to.is_return && !from.is_return && from.is_of_function_of(to, targets)
    }

    /// Measures what a run of its programs costs beside what the kernel's account of them has, ns: the mean of both.
    ///
    /// # Errors
    ///
    /// They cannot be put on a function of our own.
    pub(crate) fn trap_ns(&self, skel: &OffcputimeSkel<'_>) -> Result<u64> {
        let mut sum = 0;
        for (place, program) in [
            (&self.from, &skel.progs.work_begins),
            (&self.to, &skel.progs.work_ends),
        ] {
            let put = |pid, file: &Path, offset| place.put(program, pid, file, offset);
            let trap_ns = traps::trap_ns(put, || runs(program))?;
            sum += trap_ns.context("measure a trap: uprobes do not work here")?;
        }
        Ok(sum / 2)
    }

    /// Puts the programs there.
    ///
    /// # Errors
    ///
    /// There are no such functions, or the kernel refuses it.
    pub(crate) fn attach(&self, skel: &OffcputimeSkel<'_>, targets: &Targets) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        for (place, program) in [
            (&self.from, &skel.progs.work_begins),
            (&self.to, &skel.progs.work_ends),
        ] {
            for (pid, path) in place.files(targets)? {
                let function = Function {
                    path: &path,
                    symbol: &place.symbol,
                    keeps_thread: true,
                };
                let put = |file: &Path, offset| match is_of_32_bits(file) {
                    // A call leaves other numbers of bytes on the stack there.
                    true => Err(io::Error::other(
                        "a program of 32 bits: only those of 64 have work cycles",
                    )
                    .into()),
                    false => place.put(program, pid, file, offset),
                };
                links.push(functions::attach(function, put)?);
            }
        }
        Ok(links)
    }
}

/// `handle to its return`, `begin to the return of finish`
impl Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        let end = match from.symbol == to.symbol && to.is_return {
            true => "its return".into(),
            false => to.words(),
        };
        write!(f, "{} to {end}", from.words())
    }
}

impl Place {
    /// Looks whether both are of one function, whatever their files are called.
    fn is_of_function_of(&self, other: &Self, targets: &Targets) -> bool {
        // A version follows the name.
        let name = |place: &Self| place.symbol.split('@').next().map(str::to_owned);
        let file = |place: &Self| {
            let (_, path) = place.files(targets).ok()?.into_iter().next()?;
            path.contains('/')
                .then(|| Path::new(&path).canonicalize().ok())?
        };
        let are_same_files =
            || self.path == other.path || file(self).is_some_and(|own| Some(own) == file(other));
        // A name may have its parameters, or be mangled.
        let offsets = |place: &Self| {
            let file = File::open(file(place)?).ok()?;
            elf::function_offsets(&file, &name(place)?).filter(|offsets| !offsets.is_empty())
        };
        let are_same_functions = || {
            name(self) == name(other)
                || offsets(self).is_some_and(|own| Some(own) == offsets(other))
        };
        are_same_files() && are_same_functions()
    }

    /// Files that have it, each for a process or, with -1, for all.
    fn files(&self, targets: &Targets) -> Result<Vec<(i32, String)>> {
        if let Some(path) = &self.path {
            let pid = functions::only_process(&targets.pids)?;
            return Ok(vec![(pid, path.clone())]);
        }
        if let Some(name) = targets.command.first() {
            let file =
                executable(name).with_context(|| format!("no command {}", name.display()))?;
            return Ok(vec![(-1, file)]);
        }
        let of_process = |pid: &u32| Ok((i32::try_from(*pid)?, format!("/proc/{pid}/exe")));
        targets.pids.iter().map(of_process).collect()
    }

    fn put(
        &self,
        program: &ProgramMut<'_>,
        pid: i32,
        file: &Path,
        offset: usize,
    ) -> libbpf_rs::Result<Link> {
        let options = UprobeOpts {
            retprobe: self.is_return,
            ..UprobeOpts::default()
        };
        program.attach_uprobe_with_opts(pid, file, offset, options)
    }

    fn words(&self) -> String {
        match self.is_return {
            true => format!("the return of {}", self.symbol),
            false => self.symbol.clone(),
        }
    }
}

/// `ELFCLASS32`, in the fifth byte.
fn is_of_32_bits(path: &Path) -> bool {
    let mut begin = [0; 5];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut begin).is_ok() && begin[4] == 1)
}

/// The file of a command, where a shell would find it.
fn executable(name: &OsStr) -> Option<String> {
    let text = |path: &Path| Some(path.to_str()?.to_owned());
    if name.as_bytes().contains(&b'/') {
        return text(Path::new(name));
    }
    // The default is execvp(3)'s.
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let here = |dir: PathBuf| match dir.as_os_str().is_empty() {
        true => ".".into(),
        false => dir,
    };
    let mut files = env::split_paths(&path).map(|dir| here(dir).join(name));
    let is_program = |file: &PathBuf| {
        let meta = fs::metadata(file);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let file = files.find(is_program)?;
    text(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(from: &str, to: Option<&str>) -> Marks {
        let place = |text: &str| text.parse().expect("a place");
        Marks::new(place(from), to.map(place))
    }

    fn processes(pids: &[u32]) -> Targets {
        Targets {
            pids: pids.to_vec(),
            ..Targets::default()
        }
    }

    #[test]
    fn work_ends_at_the_return_of_what_began_it() {
        let nobody = Targets::default();
        let called = marks("uprobe:handle", None);
        assert_eq!(called, marks("uprobe:handle", Some("uretprobe:handle")));
        assert_eq!(called.to_string(), "handle to its return");
        assert!(called.are_of_calls(&nobody));
        let told = marks("uprobe:/a:b/c:begin", Some("uretprobe:libc:finish"));
        assert_eq!(told.to_string(), "begin to the return of finish");
        assert!(!told.are_of_calls(&nobody));
        let gap = marks("uretprobe:/a:f", Some("uprobe:/a:f"));
        assert_eq!(gap.to_string(), "the return of f to f");
    }

    #[test]
    fn a_function_is_one_whatever_its_file_is_called() {
        let own = processes(&[std::process::id()]);
        let path = env::current_exe().expect("a file").display().to_string();
        let named = marks("uprobe:main", Some(&format!("uretprobe:{path}:main@V1")));
        assert!(named.are_of_calls(&own));
        let other = marks("uprobe:main", Some("uretprobe:/bin/sh:main"));
        assert!(!other.are_of_calls(&own));
    }

    #[test]
    fn places_that_lead_nowhere_are_refused() {
        let called = marks("uprobe:handle", None);
        let refused =
            |marks: Marks, pids: &[u32]| marks.check(&processes(pids)).expect_err("refused");
        assert!(refused(called.clone(), &[]).contains("uprobe:handle: in which file?"));
        assert_eq!(called.check(&processes(&[7])), Ok(()));
        for (from, to) in [
            ("uretprobe:f", None),
            ("uprobe:/bin/sh:f", Some("uprobe:/bin/../bin/sh:f")),
        ] {
            let refused = refused(marks(from, to), &[7]);
            assert!(
                refused.contains("work would end where it begins"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_commands_file_is_the_first_that_a_shell_would_run() {
        let found = executable(OsStr::new("sh")).expect("a shell");
        assert!(found.starts_with('/') && found.ends_with("/sh"), "{found}");
        assert_eq!(executable(OsStr::new("./here")), Some("./here".into()));
        assert_eq!(executable(OsStr::new("no-such-command")), None);
    }

    #[test]
    fn programs_of_32_bits_are_known() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (class, is_of_32_bits) in [(1, true), (2, false)] {
            fs::write(file.path(), [0x7f, b'E', b'L', b'F', class]).expect("written");
            assert_eq!(super::is_of_32_bits(file.path()), is_of_32_bits);
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in [
            "handle",
            "uprobe:",
            "uprobe:/a:",
            "uprobe::f",
            "kprobe:f",
            "tracepoint:a:b",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
