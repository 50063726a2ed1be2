//! What is compared with what, and a tool while it runs.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::load::{Kind, field};

/// Longer than a measurement; SIGINT ends it when it is done.
const LONG: &str = "3600";

/// Who made the tool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Theirs => "libbpf-tools",
        }
    }
}

/// The same question, put to both.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    ours: Arguments,
    theirs: Arguments,
    pub(crate) load: Kind,
}

impl Case {
    /// The tool's name, the same on both sides.
    pub(crate) fn tool(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// In a self-check our side is the same tool and takes the same arguments.
    pub(crate) fn arguments(&self, side: Side, self_check: bool) -> Arguments {
        if side == Side::Ours && !self_check {
            self.ours
        } else {
            self.theirs
        }
    }
}

type Arguments = &'static [&'static str];

/// `name` is the tool's, and what is special behind a dash.
const fn case(name: &'static str, ours: Arguments, theirs: Arguments, load: Kind) -> Case {
    Case {
        name,
        ours,
        theirs,
        load,
    }
}

/// Both take the same arguments.
const fn same(name: &'static str, arguments: Arguments, load: Kind) -> Case {
    case(name, arguments, arguments, load)
}

/// Where `PID` stands in the arguments, the load's comes.
static CASES: [Case; 7] = [
    // Its default of 1,024 stacks overflows on any real machine, and a full map is cheap.
    case(
        "offcputime",
        &["-f", LONG],
        &["--stack-storage-size", "16384", LONG],
        Kind::Processes,
    ),
    // As theirs walks user stacks: by frame pointers, which mostly means not at all.
    case(
        "offcputime-fp",
        &["--unwind", "fp", "-f", LONG],
        &["--stack-storage-size", "16384", LONG],
        Kind::Processes,
    ),
    case(
        "offcputime-p",
        &["-p", "PID", "-f", LONG],
        &["-p", "PID", "--stack-storage-size", "16384", LONG],
        Kind::Threads,
    ),
    same("runqlat", &[LONG, "1"], Kind::Processes),
    same("runqlat-P", &["-P", LONG, "1"], Kind::Processes),
    same("biolatency", &[LONG, "1"], Kind::Disk),
    same("biolatency-D", &["-D", LONG, "1"], Kind::Disk),
];

/// The cases named, or all.
pub(crate) fn cases(names: &[String]) -> Result<Vec<&'static Case>> {
    let known = || CASES.iter().map(|case| case.name);
    if let Some(name) = names
        .iter()
        .find(|name| known().all(|known| known != **name))
    {
        bail!(
            "no such case: {name} ({})",
            known().collect::<Vec<_>>().join(", ")
        );
    }
    let wanted = |case: &&Case| names.is_empty() || names.iter().any(|name| name == case.name);
    Ok(CASES.iter().filter(wanted).collect())
}

/// A tool at work. Dropping it kills it.
pub(crate) struct Tool {
    child: Child,
    stderr: File,
    /// Just before it was executed.
    pub(crate) started: Instant,
}

impl Tool {
    pub(crate) fn start(program: &Path, args: &[&str], load: u32) -> Result<Self> {
        let load = load.to_string();
        let args = args
            .iter()
            .map(|&arg| if arg == "PID" { load.as_str() } else { arg });
        // A file: a pipe that nobody reads could fill up and stop the tool.
        let stderr = tempfile::tempfile()?;
        let started = Instant::now();
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self {
            child,
            stderr,
            started,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error, with the tool's last words, when it has ended by itself.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("ended with {status}: {}", self.last_words()),
            None => Ok(()),
        }
    }

    /// Asks for the report, waits for the end; returns the peak of its memory in bytes.
    pub(crate) fn finish(mut self) -> Result<u64> {
        let pid = i32::try_from(self.pid()).context("a PID that is none")?;
        // SAFETY: sends a signal, touches no memory; the child is not reaped yet, so the PID is its.
        unsafe { libc::kill(pid, libc::SIGINT) };
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut peak = 0;
        loop {
            // Resolving and printing comes last, so the peak may too; a zombie has none to show.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            peak = field(&status, "VmHWM:").map_or(peak, |kib| kib * 1024);
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(peak),
                Some(status) => bail!("ended with {status}: {}", self.last_words()),
                None if Instant::now() > deadline => bail!("does not end after SIGINT"),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn last_words(&mut self) -> String {
        let mut words = String::new();
        // What cannot be read is simply not shown.
        let _ = self
            .stderr
            .rewind()
            .and_then(|()| self.stderr.read_to_string(&mut words));
        words.trim().to_owned()
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // After `finish` there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::cases;

    #[test]
    fn an_unknown_case_is_refused_with_the_known_ones() {
        let error = cases(&["runqlat".into(), "runqlen".into()])
            .err()
            .expect("runqlen is unknown");
        assert_eq!(
            error.to_string(),
            "no such case: runqlen (offcputime, offcputime-fp, offcputime-p, runqlat, runqlat-P, biolatency, biolatency-D)"
        );
        assert_eq!(
            cases(&["runqlat".into()]).expect("runqlat is known").len(),
            1
        );
    }
}
