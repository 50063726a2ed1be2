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
    pub(crate) tool: &'static str,
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
    pub(crate) load: Kind,
}

impl Case {
    /// In a self-check our side is the same tool and takes the same arguments.
    pub(crate) fn arguments(&self, side: Side, self_check: bool) -> &'static [&'static str] {
        if side == Side::Ours && !self_check {
            self.ours
        } else {
            self.theirs
        }
    }
}

/// Where `PID` stands in the arguments, the load's comes.
static CASES: [Case; 7] = [
    Case {
        name: "offcputime",
        tool: "offcputime",
        ours: &["-f", LONG],
        // Its default of 1,024 stacks overflows on any real machine, and a full map is cheap.
        theirs: &["--stack-storage-size", "16384", LONG],
        load: Kind::Processes,
    },
    Case {
        name: "offcputime-fp",
        tool: "offcputime",
        // As theirs walks user stacks: by frame pointers, which mostly means not at all.
        ours: &["--unwind", "fp", "-f", LONG],
        theirs: &["--stack-storage-size", "16384", LONG],
        load: Kind::Processes,
    },
    Case {
        name: "offcputime-p",
        tool: "offcputime",
        ours: &["-p", "PID", "-f", LONG],
        theirs: &["-p", "PID", "--stack-storage-size", "16384", LONG],
        load: Kind::Threads,
    },
    Case {
        name: "runqlat",
        tool: "runqlat",
        ours: &[LONG, "1"],
        theirs: &[LONG, "1"],
        load: Kind::Processes,
    },
    Case {
        name: "runqlat-P",
        tool: "runqlat",
        ours: &["-P", LONG, "1"],
        theirs: &["-P", LONG, "1"],
        load: Kind::Processes,
    },
    Case {
        name: "biolatency",
        tool: "biolatency",
        ours: &[LONG, "1"],
        theirs: &[LONG, "1"],
        load: Kind::Disk,
    },
    Case {
        name: "biolatency-D",
        tool: "biolatency",
        ours: &["-D", LONG, "1"],
        theirs: &["-D", LONG, "1"],
        load: Kind::Disk,
    },
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
