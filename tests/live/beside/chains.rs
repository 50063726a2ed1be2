//! Call chains that are known from a program's source, and what the tools make of them: frame for frame, to the root.
//!
//! A chain is written root first, frames separated by ` > `. A frame is a function's name, or several with `|` between
//! them, with `*` for anything; a number before it repeats it; `@` and the end of a file's name say where it is. `..` stands for any number of frames
//! that are not the program's own: libc's insides differ between its versions. `START` and `THREAD` are what libc calls
//! `main` and a thread's function with, `SIGNAL` is what a signal's handler returns to. `cpu:` or `asleep:` before a chain says that only one tool is sure to meet it,
//! `perhaps:` that none is, `young:` that its code may have no table yet, for it has just been mapped: the stack ends there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::args::Args;
use crate::c_program::run;
use crate::prelude::*;
use crate::targets::ended;

/// `_start` and libc's two functions; without libc's debug file the second has no name.
const START: &str =
    "_start > __libc_start_main*|__libc_start_main_impl > __libc_start_call_main|libc*+0x*";
/// Functions that `clone` and `clone3` call, and code that a signal's handler returns to.
#[cfg(target_arch = "x86_64")]
const THREAD: &str = "*clone3 > start_thread|libc*+0x*";
#[cfg(target_arch = "x86_64")]
const SIGNAL: &str = "__restore_rt*";
#[cfg(target_arch = "aarch64")]
const THREAD: &str = "thread_start > start_thread|libc*+0x*";
#[cfg(target_arch = "aarch64")]
const SIGNAL: &str = "__kernel_rt_sigreturn@[vdso]";

/// Share of whole chains among the samples in functions of the program's own; the others are on the way to a chain's end. How long libraries
/// are on the way, in an unwinder or an allocator, says nothing of a walk.
const WHOLE: f64 = 0.9;

/// One sampled or blocked stack.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// Names, root first, and the file of each.
    pub(crate) frames: Vec<(String, String)>,
    pub(crate) end: String,
    pub(crate) count: u64,
    kernel: String,
}

impl Stack {
    pub(crate) fn new(stack: &Value, count: u64) -> Self {
        let frames = list(stack, "user").iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            frames: frames
                .map(|frame| (text(&frame["name"]), text(&frame["module"])))
                .collect(),
            end: stack["user_end"].as_str().unwrap_or("no stack").to_owned(),
            count,
            kernel: stack["kernel"].to_string(),
        }
    }

    /// A page that is being copied after a fork is not mapped for a moment, nor is a huge one while it is split, as libc's
    /// madvise(2) of an ending thread's stack does; if it is the stack's, there is no reading it.
    fn lacks_a_page(&self) -> bool {
        let changes = ["\"do_wp_page\"", "\"__split_huge_pmd"];
        self.end == "unreadable" && changes.iter().any(|by| self.kernel.contains(by))
    }

    /// A signal's return restores one register after the other: between two of them they are of no frame.
    fn is_between_frames(&self) -> bool {
        self.end == "no-table" && self.kernel.contains("sys_rt_sigreturn")
    }

    /// Before gcc's unwinder for arm64 returns into a function, it puts that one's registers where its own caller's were saved, and
    /// then the place to return to; what lies between the two on the stack it adds to sp last. Till then no table has its caller.
    fn is_landing(&self) -> bool {
        let leaves = self.frames.iter().rev().take(2);
        let mut names = leaves.map(|(name, _)| name);
        cfg!(target_arch = "aarch64") && names.any(|name| name.starts_with("_Unwind_R"))
    }

    fn is_at_the_edge(&self) -> bool {
        match &self.frames[..] {
            [] => self.kernel == "[]" || self.kernel.contains("do_exit"),
            [(name, _)] => name.ends_with("clone3"),
            // A new thread has its creator's registers, but not its stack, until it looks which of the two it is.
            [(creator, _), (name, _)] => creator == "create_thread" && name.ends_with("clone"),
            _ => false,
        }
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.frames.iter().map(|(name, _)| name.as_str()).collect();
        format!(
            "{} ({}, {} times){}",
            names.join(" > "),
            self.end,
            self.count,
            self.kernel
        )
    }
}

/// One part of a chain.
#[derive(Clone, Debug)]
enum Part {
    /// Alternatives: name, ending of the file's name.
    Frame(Vec<String>, String),
    Others,
}

/// Where a chain is sure to be met: everywhere, if it does not say so.
const PLACES: [&str; 4] = ["cpu: ", "asleep: ", "perhaps: ", YOUNG];
const YOUNG: &str = "young: ";

/// The chains of one program.
pub(crate) struct Chains {
    chains: Vec<(String, Vec<Part>)>,
    /// Its own functions: every name in the chains that has no `*`.
    own: Vec<String>,
}

/// Where a chain is met, and the chain.
fn placed(line: &str) -> (Option<&str>, &str) {
    let found = PLACES
        .iter()
        .find_map(|place| Some((*place, line.strip_prefix(place)?)));
    found.map_or((None, line), |(place, chain)| (Some(place), chain))
}

/// A frame's number of repetitions, and the frame.
fn repeated(text: &str) -> (usize, &str) {
    let split = text.split_once(' ');
    let split = split.and_then(|(number, frame)| Some((number.parse().ok()?, frame)));
    split.unwrap_or((1, text))
}

fn parts(text: &str) -> Vec<Part> {
    if text == ".." {
        return vec![Part::Others];
    }
    let (times, text) = repeated(text);
    let (names, file) = text.split_once('@').unwrap_or((text, ""));
    vec![Part::Frame(names.split('|').map(str::to_owned).collect(), file.into()); times]
}

impl Chains {
    /// Reads chains, one a line; blank lines do not count.
    pub(crate) fn new(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let chains: Vec<(String, Vec<Part>)> = lines
            .map(|line| {
                let (_, chain) = placed(line);
                let whole = chain.replace("START", START).replace("THREAD", THREAD);
                let whole = whole.replace("SIGNAL", SIGNAL);
                let parts = whole.split(" > ").flat_map(parts).collect();
                (line.to_owned(), parts)
            })
            .collect();
        let names = text
            .lines()
            .flat_map(|line| placed(line.trim()).1.split(" > "));
        let own = names
            .filter(|name| {
                !name.contains('@') && !["START", "THREAD", "SIGNAL", "..", ""].contains(name)
            })
            .flat_map(|names| repeated(names).1.split('|'))
            .filter(|name| !name.contains('*') || name.contains("::"))
            .map(str::to_owned)
            .collect();
        Self { chains, own }
    }

    fn is_own(&self, name: &str) -> bool {
        self.own.iter().any(|own| glob(own, name))
    }

    fn matches(&self, parts: &[Part], frames: &[(String, String)]) -> bool {
        match (parts.split_first(), frames.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((Part::Others, after)), first) => {
                let skip = |((name, _), rest): (&(String, String), &[_])| {
                    !self.is_own(name) && self.matches(parts, rest)
                };
                self.matches(after, frames) || first.is_some_and(skip)
            }
            (Some((Part::Frame(names, file), after)), Some(((name, module), rest))) => {
                names.iter().any(|wanted| glob(wanted, name))
                    && module.ends_with(file.as_str())
                    && self.matches(after, rest)
            }
            (Some(_), None) => false,
        }
    }

    /// Whether a stack is the beginning of a chain, with nothing of the program's own behind it: on the way to its end.
    fn is_beginning(&self, parts: &[Part], stack: &Stack) -> bool {
        (1..=parts.len()).any(|length| {
            let mut beginning = parts[..length].to_vec();
            beginning.push(Part::Others);
            self.matches(&beginning, &stack.frames)
        })
    }

    fn is_young(&self, stack: &Stack) -> bool {
        let young = |(line, parts): &(String, Vec<Part>)| {
            line.starts_with(YOUNG) && self.matches(parts, &stack.frames)
        };
        stack.end == "no-table" && self.chains.iter().any(young)
    }

    /// Every stack is one of the chains or on the way there, complete to its root, and every chain occurs.
    ///
    /// Gives the number of whole chains, and of these and all stacks that are in a function of the program's own.
    pub(crate) fn check(&self, stacks: &[Stack], place: &str, what: &str) -> (u64, u64) {
        let mut seen: BTreeMap<&str, u64> = self
            .chains
            .iter()
            .map(|(line, _)| (line.as_str(), 0))
            .collect();
        let mut wrong = Vec::new();
        let (mut whole, mut on_the_way) = (0, 0);
        for stack in stacks.iter().filter(|stack| !self.is_young(stack)) {
            let (mut right, mut is_whole) = (false, false);
            for (line, parts) in &self.chains {
                if line.starts_with(YOUNG) {
                    continue;
                }
                if self.matches(parts, &stack.frames) {
                    *seen.get_mut(line.as_str()).expect("all are there") += stack.count;
                    (right, is_whole) = (true, true);
                } else {
                    right |= self.is_beginning(parts, stack);
                }
            }
            let leaf = stack.frames.last();
            match is_whole {
                true => whole += stack.count,
                false if leaf.is_some_and(|(name, _)| self.is_own(name)) => {
                    on_the_way += stack.count
                }
                false => {}
            }
            if !right || stack.end != "root" {
                wrong.push(stack.text());
            }
        }
        let missing: Vec<&str> = seen
            .iter()
            .filter(|(line, count)| **count == 0 && placed(line).0.is_none_or(|only| only == place))
            .map(|(line, _)| *line)
            .collect();
        assert!(
            wrong.is_empty() && missing.is_empty(),
            "{what}, {place}wrong:\n  {}\nmissing:\n  {}",
            wrong.join("\n  "),
            missing.join("\n  "),
        );
        (whole, whole + on_the_way)
    }
}

/// Whether `text` is `pattern`, in which `*` stands for anything.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|at| rest.is_char_boundary(*at))
                .any(|at| glob(after, &rest[at..]))
        }),
    }
}

/// A file of `tests/workloads/chains`.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/workloads/chains")
        .join(name)
}

/// Compiles sources to `dir/name` with flags that keep calls calls.
pub(crate) fn compile(
    compiler: &str,
    dir: &Path,
    name: &str,
    file: &str,
    flags: impl Args,
) -> PathBuf {
    let program = dir.join(name);
    run(Command::new(compiler)
        .args(["-fno-optimize-sibling-calls", "-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(source(file))
        .args(flags.words()));
    program
}

/// Makes a case of each variant, all at the same time: compilers are most of what these tests take.
pub(crate) fn cases<V: Copy + Send>(variants: &[V], case: impl Fn(V) -> Case + Sync) -> Vec<Case> {
    thread::scope(|scope| {
        let case = &case;
        let made: Vec<_> = variants
            .iter()
            .map(|variant| {
                let variant = *variant;
                scope.spawn(move || case(variant))
            })
            .collect();
        let made = made.into_iter().map(thread::ScopedJoinHandle::join);
        made.map(|case| case.expect("compiled")).collect()
    })
}

/// A program and the chains that it makes.
pub(crate) struct Case {
    pub(crate) what: String,
    pub(crate) command: Command,
    pub(crate) chains: String,
    /// Stacks without a frame that begins so are not the program's: other threads of its runtime.
    pub(crate) only: &'static str,
}

impl Case {
    pub(crate) fn new(what: &str, program: &Path, chains: &str) -> Self {
        Self {
            what: what.to_owned(),
            command: Command::new(program),
            chains: chains.to_owned(),
            only: "",
        }
    }
}

/// Traces programs, one after another, with both tools at once; a tool's report of them all.
pub(crate) fn trace(workloads: &mut [Workload], options: &str) -> [Value; 2] {
    let tgids: Vec<String> = workloads.iter().map(|one| one.pid().to_string()).collect();
    let targets = format!("-j -p {} {options}", tgids.join(","));
    let tools = [("profile", "-F 1997"), ("offcputime", "-m 0")];
    let tools = tools.map(|(name, own)| Tool::start(name, format!("{own} {targets}")));
    tools.iter().for_each(Tool::wait_attached);
    for workload in workloads {
        // One that has something to say before the end goes on when the tools have looked at it.
        while !workload.work().is_empty() {
            tools.iter().for_each(Tool::await_rest);
        }
    }
    ended(tools)
}

/// A process's stacks in a report, but for threads at their edges. One that has never run has none; one on its way to
/// its first instruction has registers that belong to no function yet; one that is about to be gone has no memory, and
/// one whose stack's page is just being copied or split lacks that.
pub(crate) fn stacks_of(report: &Value, tgid: u32) -> Vec<Stack> {
    let stacks = list(report, "stacks").iter();
    let own = stacks.filter(|stack| stack["pid"] == tgid);
    own.map(|stack| Stack::new(stack, number(stack, "count")))
        .filter(|stack| {
            !stack.is_at_the_edge() && !stack.is_between_frames() && !stack.is_landing()
        })
        .filter(|stack| !stack.lacks_a_page())
        .collect()
}

/// Traces programs that have these chains, and no others, both on a CPU and asleep.
pub(crate) fn hold_to(cases: Vec<Case>, options: &str) {
    let mut workloads = Vec::new();
    let mut expected = Vec::new();
    for case in cases {
        workloads.push(Workload::spawn(&case.what, case.command));
        expected.push((case.what, Chains::new(&case.chains), case.only));
    }
    let [on_cpu, asleep] = trace(&mut workloads, options);
    for (workload, (what, chains, only)) in workloads.into_iter().zip(expected) {
        let tgid = workload.pid();
        workload.finish();
        let [on_cpu, asleep] = [&on_cpu, &asleep].map(|report| {
            let mut stacks = stacks_of(report, tgid);
            stacks.retain(|stack| stack.frames.iter().any(|(name, _)| name.starts_with(only)));
            stacks
        });
        chains.check(&asleep, PLACES[1], &what);
        let (whole, all) = chains.check(&on_cpu, PLACES[0], &what);
        let share = whole as f64 / all as f64;
        assert_within(
            format!("{what}: share of whole chains"),
            share,
            WHOLE..,
            all,
        );
    }
}
