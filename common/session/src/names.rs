//! `--comm GLOB` that no thread's name matches. It is no mistake, for a thread may come to have one, but is worth a remark.

use host::{procs, task};
use profile::escape::terminal;

use crate::glob::Glob;
use crate::targets::Targets;

/// Names as they were when tracing began.
pub(crate) struct Names<'a> {
    targets: &'a Targets,
    had_match: bool,
}

impl<'a> Names<'a> {
    /// Looks at all threads, where names matter, up to the first that matches.
    pub(crate) fn look(targets: &'a Targets) -> Self {
        Self {
            targets,
            had_match: has_match(targets),
        }
    }

    /// A remark if no name matched at either end, and nothing was counted of a thread that came and went.
    pub(crate) fn remark(&self, counted: u64) -> Option<String> {
        let glob = self.targets.comm.as_ref()?;
        let is_matched = self.had_match || counted > 0 || has_match(self.targets);
        (!is_matched).then(|| unmatched(glob, "matched", " when tracing began or ended"))
    }
}

/// `no thread's name matches 'celery' (a name has 15 characters at most)`, for a single look.
pub fn no_match(glob: &Glob) -> String {
    unmatched(glob, "matches", "")
}

fn unmatched(glob: &Glob, matches: &str, when: &str) -> String {
    let pattern = terminal(glob.pattern());
    format!("no thread's name {matches} '{pattern}'{when} (a name has 15 characters at most)")
}

/// Looks whether a thread has such a name. The tool and the processes that it forks are nobody's targets, but for a command.
fn has_match(targets: &Targets) -> bool {
    let Some(glob) = &targets.comm else {
        return true;
    };
    let own = std::process::id();
    let processes = match &targets.pids[..] {
        [] if targets.tids.is_empty() => task::all_processes(),
        // The threads that were asked for are tasks, too.
        [] => return targets.tids.iter().any(|tid| is_called(*tid, glob)),
        pids => pids.to_vec(),
    };
    let has_called = |tgid: u32| task::threads_of(tgid).any(|tid| is_called(tid, glob));
    let is_own =
        |tgid: u32| tgid == own || targets.command.is_empty() && procs::parent(tgid) == Some(own);
    processes
        .into_iter()
        .any(|tgid| has_called(tgid) && !is_own(tgid))
}

fn is_called(tid: u32, glob: &Glob) -> bool {
    task::comm_of(tid).is_some_and(|name| matches(glob, &name))
}

/// A kernel worker's name has what it works on behind it in `/proc`.
fn matches(glob: &Glob, name: &str) -> bool {
    let own = match name.starts_with("kworker/") {
        true => name.split(['-', '+']).next().unwrap_or_default(),
        false => name,
    };
    glob.matches(own.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(glob: &str, pids: &[u32]) -> Targets {
        Targets {
            comm: Some(glob.parse().expect("a pattern")),
            pids: pids.to_vec(),
            ..Targets::default()
        }
    }

    #[test]
    fn a_name_that_nobody_has_is_remarked_unless_something_was_counted() {
        let nobody = called("no\u{1b}such", &[]);
        let names = Names::look(&nobody);
        let said = "no thread's name matched 'no\\x1bsuch' when tracing began or ended \
                    (a name has 15 characters at most)";
        assert_eq!(names.remark(0).as_deref(), Some(said));
        assert_eq!(names.remark(1), None, "somebody came and went");
        let (parent, everybody) = (procs::parent(std::process::id()), Targets::default());
        let parent = called("*", &[parent.expect("it runs")]);
        for targets in [&parent, &everybody] {
            assert_eq!(Names::look(targets).remark(0), None);
        }
    }

    #[test]
    fn the_tool_itself_is_nobody() {
        let own = called("*", &[std::process::id()]);
        assert!(Names::look(&own).remark(0).is_some());
    }

    #[test]
    fn a_kernel_workers_name_ends_before_its_work() {
        let glob = "kworker/0:1".parse().expect("a pattern");
        assert!(matches(&glob, "kworker/0:1-events"));
        assert!(matches(&glob, "kworker/0:1"));
        assert!(!matches(&"app".parse().expect("a pattern"), "app-1"));
    }
}
