//! Processes that were asked for, and whether they are still there.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::targets::Targets;

/// The processes that `-p` names: who is asked for by another option, too, is one of their threads.
pub(crate) struct Lives {
    /// `None`: it had ended before tracing began.
    processes: Vec<(u32, Option<OwnedFd>)>,
    /// It is known of all of them when they end.
    are_all: bool,
}

impl Lives {
    /// Those that are there when tracing begins.
    pub(crate) fn look(targets: &Targets) -> Self {
        let pids: BTreeSet<u32> = targets.pids.iter().copied().collect();
        let open = |pid: &u32| {
            let id = Pid::from_raw(i32::try_from(*pid).ok()?)?;
            match pidfd_open(id, PidfdFlags::empty()) {
                Ok(process) => Some((*pid, Some(process))),
                // It was there when the options were read.
                Err(Errno::SRCH) => Some((*pid, None)),
                Err(_) => None,
            }
        };
        let processes: Vec<_> = pids.iter().filter_map(open).collect();
        let are_all = processes.len() == pids.len();
        Self { processes, are_all }
    }

    /// Tells if nobody is left who was asked for.
    pub(crate) fn are_over(&self) -> bool {
        self.are_all
            && !self.processes.is_empty()
            && self.processes.iter().all(|(_, fd)| has_ended(fd))
    }

    /// Words for the end of all of them, with which a run ends, too.
    pub(crate) fn awaited(&self) -> Option<String> {
        match &self.processes[..] {
            _ if !self.are_all => None,
            [] => None,
            [(pid, _)] => Some(format!("until Ctrl-C or the end of process {pid}")),
            all => Some(format!(
                "until Ctrl-C or the end of all {} processes",
                all.len()
            )),
        }
    }

    /// A remark on those that have ended.
    pub(crate) fn remark(&self) -> Option<String> {
        let ended = self.processes.iter().filter(|(_, fd)| has_ended(fd));
        let ended: Vec<u32> = ended.map(|(pid, _)| *pid).collect();
        match &ended[..] {
            [] => None,
            [pid] => Some(format!("process {pid} has ended")),
            [first, ..] => Some(format!(
                "{} of {} processes have ended, {first} for one",
                ended.len(),
                self.processes.len()
            )),
        }
    }
}

fn has_ended(process: &Option<OwnedFd>) -> bool {
    let Some(process) = process else {
        return true;
    };
    let mut ends = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().expect("sleep")
    }

    fn end(mut child: Child) {
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    fn of(children: &[&Child]) -> Targets {
        Targets {
            pids: children.iter().map(|child| child.id()).collect(),
            ..Targets::default()
        }
    }

    #[test]
    fn a_run_is_over_when_the_last_of_its_processes_has_ended() {
        let (one, two) = (sleeper(), sleeper());
        let lives = Lives::look(&of(&[&one, &two, &two]));
        let id = one.id();
        let said = lives.awaited();
        assert_eq!(
            said.as_deref(),
            Some("until Ctrl-C or the end of all 2 processes")
        );
        let only = Lives::look(&of(&[&one])).awaited();
        assert_eq!(
            only,
            Some(format!("until Ctrl-C or the end of process {id}"))
        );
        assert_eq!((lives.are_over(), lives.remark()), (false, None));
        end(one);
        assert!(!lives.are_over());
        let said = format!("process {id} has ended");
        assert_eq!(lives.remark(), Some(said));
        end(two);
        assert!(lives.are_over());
        let said = lives.remark().expect("a remark");
        assert!(said.starts_with("2 of 2 processes have ended, "), "{said}");
    }

    #[test]
    fn a_process_that_ended_before_tracing_began_has_ended() {
        let child = sleeper();
        let targets = of(&[&child]);
        end(child);
        let lives = Lives::look(&targets);
        assert!(lives.are_over() && lives.remark().is_some());
    }

    #[test]
    fn a_run_over_all_processes_is_never_over() {
        let lives = Lives::look(&Targets::default());
        assert_eq!((lives.are_over(), lives.remark()), (false, None));
        assert_eq!(lives.awaited(), None);
    }
}
