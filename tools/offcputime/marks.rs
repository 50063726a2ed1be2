//! Functions whose calls and returns begin and end pieces of work.

use std::env;
use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs;
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
        let (path, symbol) = match place.rsplit_once(':') {
            Some((path, symbol)) => (Some(path), symbol),
            None => (None, place),
        };
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
    ///
    /// # Errors
    ///
    /// Text for the user when both are the same place.
    pub(crate) fn new(from: Place, to: Option<Place>) -> Result<Self, String> {
        let to = to.unwrap_or_else(|| Place {
            is_return: true,
            ..from.clone()
        });
        if from == to {
            return Err(format!(
                "work would end where it begins, at {}: --to is to name another place",
                from.words()
            ));
        }
        Ok(Self { from, to })
    }

    /// A place whose file nobody has named, and which nothing that was asked for tells.
    pub(crate) fn nowhere(&self, targets: &Targets) -> Option<&str> {
        let mut places = [&self.from, &self.to].into_iter();
        let place = places.find(|place| place.path.is_none())?;
        let is_told = !targets.pids.is_empty() || !targets.command.is_empty();
        (!is_told).then_some(&place.symbol)
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

    /// Calls of one function, which may be recursive.
    pub(crate) fn are_of_calls(&self) -> bool {
        let Self { from, to } = self;
        to.is_return && !from.is_return && (&from.path, &from.symbol) == (&to.path, &to.symbol)
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
                let put = |file: &Path, offset| place.put(program, pid, file, offset);
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
        let end = match self.are_of_calls() {
            true => "its return".into(),
            false => to.words(),
        };
        write!(f, "{} to {end}", from.words())
    }
}

impl Place {
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

/// The file of a command, where a shell would find it.
fn executable(name: &OsStr) -> Option<String> {
    let text = |path: &Path| Some(path.to_str()?.to_owned());
    if name.as_bytes().contains(&b'/') {
        return text(Path::new(name));
    }
    let path = env::var_os("PATH")?;
    let mut files = env::split_paths(&path).map(|dir| dir.join(name));
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
        Marks::new(place(from), to.map(place)).expect("two places")
    }

    #[test]
    fn work_ends_at_the_return_of_what_began_it() {
        let called = marks("uprobe:handle", None);
        assert_eq!(called, marks("uprobe:handle", Some("uretprobe:handle")));
        assert_eq!(called.to_string(), "handle to its return");
        assert!(called.are_of_calls());
        assert_eq!(called.nowhere(&Targets::default()), Some("handle"));
        let process = Targets {
            pids: vec![7],
            ..Targets::default()
        };
        assert_eq!(called.nowhere(&process), None);
        let told = marks("uprobe:/a:b/c:begin", Some("uretprobe:libc:finish"));
        assert_eq!(told.to_string(), "begin to the return of finish");
        assert!(!told.are_of_calls());
        assert_eq!(told.nowhere(&Targets::default()), None);
        let gap = marks("uretprobe:/a:f", Some("uprobe:/a:f"));
        assert_eq!(gap.to_string(), "the return of f to f");
    }

    #[test]
    fn work_does_not_end_where_it_begins() {
        let place = |text: &str| text.parse::<Place>().expect("a place");
        for (from, to) in [("uretprobe:f", None), ("uprobe:/a:f", Some("uprobe:/a:f"))] {
            let refused = Marks::new(place(from), to.map(place)).expect_err("one place");
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
