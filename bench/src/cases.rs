//! What is compared with what: the same question, put to every tool that answers it.

use anyhow::{Result, bail};

use crate::answer::Answer;
use crate::load::Kind;
use crate::scripts::{BIOLATENCY, LOCKSTAT, OFFCPUTIME, PROFILE, RUNQLAT};

/// Longer than a measurement; SIGINT ends it when it is done.
const LONG: &str = "3600";

/// Who made the tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Maker {
    Ours,
    /// Several of ours, at once.
    OursTogether,
    LibbpfTools,
    Bpftrace,
    Perf,
}

impl Maker {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursTogether => "ours, at once",
            Self::LibbpfTools => "libbpf-tools",
            Self::Bpftrace => "bpftrace",
            Self::Perf => "perf",
        }
    }

    /// Whether its work is done by BPF programs, which the kernel keeps an account of.
    pub(crate) fn is_bpf(self) -> bool {
        self != Self::Perf
    }
}

/// Between the command lines of several.
pub(crate) const AND: &str = "&";

/// One tool that answers the question, or several. In the arguments `PID` stands for the load's, `FILE` for one in memory.
pub(crate) struct Contender {
    pub(crate) maker: Maker,
    pub(crate) arguments: &'static [&'static str],
    /// How to read what it prints, where it can be held to the kernel's own account.
    pub(crate) answer: Answer,
}

/// The same question, put to all.
pub(crate) struct Case {
    /// Our tool's name, and what is special behind a dash.
    pub(crate) name: &'static str,
    /// The question in words, for those that stand in docs/numbers.md.
    pub(crate) question: Option<&'static str>,
    /// Ours first.
    pub(crate) contenders: &'static [Contender],
    pub(crate) load: Kind,
}

impl Case {
    /// The program that `maker` answers with.
    pub(crate) fn program(&self, maker: Maker) -> &'static str {
        match maker {
            Maker::Ours | Maker::OursTogether | Maker::LibbpfTools => {
                self.name.split('-').next().unwrap_or(self.name)
            }
            Maker::Bpftrace => "bpftrace",
            Maker::Perf => "perf",
        }
    }
}

const fn by(maker: Maker, arguments: &'static [&'static str], answer: Answer) -> Contender {
    Contender {
        maker,
        arguments,
        answer,
    }
}

const fn ours(arguments: &'static [&'static str], answer: Answer) -> Contender {
    by(Maker::Ours, arguments, answer)
}

const fn libbpf_tools(arguments: &'static [&'static str], answer: Answer) -> Contender {
    by(Maker::LibbpfTools, arguments, answer)
}

/// Engines of why as tools of their own, with what it asks of them.
const TOGETHER: &[&str] = &[
    "offcputime",
    "-m",
    "0",
    "--waker",
    "-p",
    "PID",
    LONG,
    AND,
    "runqlat",
    "-p",
    "PID",
    LONG,
    "1",
    AND,
    "profile",
    "-F",
    "499",
    "-p",
    "PID",
    LONG,
    AND,
    "lockstat",
    "-p",
    "PID",
    LONG,
    AND,
    "biolatency",
    "-D",
    "-P",
    "--phases",
    LONG,
    "1",
];

static CASES: [Case; 12] = [
    // Its default of 1,024 stacks overflows on any real machine, and a full map is cheap.
    Case {
        name: "offcputime",
        question: None,
        contenders: &[
            ours(&["-f", LONG], Answer::None),
            libbpf_tools(&["--stack-storage-size", "16384", LONG], Answer::None),
        ],
        load: Kind::Processes,
    },
    // As theirs walks user stacks: by frame pointers, which mostly means not at all.
    Case {
        name: "offcputime-fp",
        question: None,
        contenders: &[
            ours(&["--unwind", "fp", "-f", LONG], Answer::None),
            libbpf_tools(&["--stack-storage-size", "16384", LONG], Answer::None),
        ],
        load: Kind::Processes,
    },
    Case {
        name: "offcputime-p",
        question: Some("where threads of one process wait"),
        contenders: &[
            ours(&["-p", "PID", "-f", LONG], Answer::Microseconds),
            libbpf_tools(
                &["-p", "PID", "--stack-storage-size", "16384", LONG],
                Answer::Microseconds,
            ),
            by(
                Maker::Bpftrace,
                &["-e", OFFCPUTIME, "PID"],
                Answer::Microseconds,
            ),
            by(
                Maker::Perf,
                &[
                    "record",
                    "-e",
                    "sched:sched_switch",
                    "-g",
                    "-p",
                    "PID",
                    "-o",
                    "FILE",
                ],
                Answer::None,
            ),
        ],
        load: Kind::Threads,
    },
    Case {
        name: "runqlat",
        question: None,
        contenders: &[
            ours(&[LONG, "1"], Answer::None),
            libbpf_tools(&[LONG, "1"], Answer::None),
        ],
        load: Kind::Processes,
    },
    Case {
        name: "runqlat-p",
        question: Some("how long threads of one process wait for a CPU"),
        contenders: &[
            ours(&["-p", "PID", LONG, "1"], Answer::Waits),
            libbpf_tools(&["-p", "PID", LONG, "1"], Answer::Waits),
            by(Maker::Bpftrace, &["-e", RUNQLAT], Answer::Waits),
            by(
                Maker::Perf,
                &["sched", "record", "-o", "FILE"],
                Answer::None,
            ),
        ],
        load: Kind::Threads,
    },
    Case {
        name: "runqlat-P",
        question: None,
        contenders: &[
            ours(&["-P", LONG, "1"], Answer::None),
            libbpf_tools(&["-P", LONG, "1"], Answer::None),
        ],
        load: Kind::Processes,
    },
    Case {
        name: "biolatency",
        question: Some("how long the disks take"),
        contenders: &[
            ours(&[LONG, "1"], Answer::Requests),
            libbpf_tools(&[LONG, "1"], Answer::Requests),
            by(Maker::Bpftrace, &["-e", BIOLATENCY], Answer::Requests),
            by(
                Maker::Perf,
                &[
                    "record",
                    "-e",
                    "block:block_rq_issue,block:block_rq_complete",
                    "-a",
                    "-o",
                    "FILE",
                ],
                Answer::None,
            ),
        ],
        load: Kind::Disk,
    },
    Case {
        name: "biolatency-D",
        question: None,
        contenders: &[
            ours(&["-D", LONG, "1"], Answer::None),
            libbpf_tools(&["-D", LONG, "1"], Answer::None),
        ],
        load: Kind::Disk,
    },
    // libbpf-tools have none.
    Case {
        name: "profile",
        question: Some("where CPU time goes, 99 times a second"),
        contenders: &[
            ours(&["-F", "99", "-f", LONG], Answer::Samples),
            by(Maker::Bpftrace, &["-e", PROFILE], Answer::Samples),
            by(
                Maker::Perf,
                &[
                    "record",
                    "-F",
                    "99",
                    "-e",
                    "cpu-clock",
                    "-a",
                    "-g",
                    "-o",
                    "FILE",
                ],
                Answer::None,
            ),
        ],
        load: Kind::Processes,
    },
    // libbpf-tools' klockstat knows the kernel's locks only.
    Case {
        name: "lockstat",
        question: Some("which locks threads of one process wait for"),
        contenders: &[
            ours(&["-U", "-p", "PID", LONG], Answer::Contentions),
            by(
                Maker::Bpftrace,
                &["-e", LOCKSTAT, "PID"],
                Answer::Contentions,
            ),
            by(
                Maker::Perf,
                &[
                    "record",
                    "-e",
                    "syscalls:sys_enter_futex,syscalls:sys_exit_futex",
                    "-g",
                    "-p",
                    "PID",
                    "-o",
                    "FILE",
                ],
                Answer::None,
            ),
        ],
        load: Kind::Locks,
    },
    // What a wait costs beside its stack: the load keeps no frame pointers, and a walk by them ends where it begins.
    Case {
        name: "lockstat-fp",
        question: Some("the same, without the threads' stacks"),
        contenders: &[ours(
            &["-U", "-p", "PID", "--unwind", "fp", LONG],
            Answer::Contentions,
        )],
        load: Kind::Locks,
    },
    Case {
        name: "why",
        question: Some("where all time of one process goes, and who causes it"),
        contenders: &[
            ours(&["--max-overhead", "100", "-p", "PID", LONG], Answer::None),
            by(Maker::OursTogether, TOGETHER, Answer::None),
        ],
        load: Kind::Threads,
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

#[cfg(test)]
mod tests {
    use super::{CASES, Maker, cases};

    #[test]
    fn an_unknown_case_is_refused_with_the_known_ones() {
        let error = cases(&["runqlat".into(), "runqlen".into()])
            .err()
            .expect("runqlen is unknown");
        let text = error.to_string();
        assert!(
            text.starts_with("no such case: runqlen (offcputime, "),
            "{text}"
        );
        assert_eq!(
            cases(&["runqlat".into()]).expect("runqlat is known").len(),
            1
        );
    }

    #[test]
    fn ours_is_first_everywhere() {
        assert!(
            CASES
                .iter()
                .all(|case| case.contenders[0].maker == Maker::Ours)
        );
    }
}
