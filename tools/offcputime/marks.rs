//! Functions whose calls and returns begin and end pieces of work.

use std::fmt::{self, Display};
use std::path::Path;
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
    /// Of the file; `None`: of the process's own.
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

/// Where work begins, and where it ends.
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

    /// A place whose file nobody has named, and which no process that was asked for tells.
    pub(crate) fn nowhere(&self, targets: &Targets) -> Option<&str> {
        let mut places = [&self.from, &self.to].into_iter();
        let place = places.find(|place| place.path.is_none())?;
        program_of(targets).is_none().then_some(&place.symbol)
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
        let pid = functions::only_process(&targets.pids)?;
        let own = program_of(targets);
        let programs = [
            (&self.from, &skel.progs.work_begins),
            (&self.to, &skel.progs.work_ends),
        ];
        let links = programs.into_iter().map(|(place, program)| {
            let path = place.path.as_ref().or(own.as_ref());
            let function = Function {
                path: path.context("a function without its file")?,
                symbol: &place.symbol,
                is_return: place.is_return,
            };
            functions::attach(function, |file, offset| {
                place.put(program, pid, file, offset)
            })
        });
        links.collect()
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

/// The file of the processes that are asked for, or of the command.
fn program_of(targets: &Targets) -> Option<String> {
    let own = targets.pids.first().map(|pid| format!("/proc/{pid}/exe"));
    let command = targets.command.first();
    own.or_else(|| command.and_then(|name| Some(name.to_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(from: &str, to: Option<&str>) -> Marks {
        let place = |text: &str| text.parse().expect("a place");
        Marks::new(place(from), to.map(place))
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
