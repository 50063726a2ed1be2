//! A snapshot for people: deadlocks with their stacks, then who keeps others waiting.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use host::waits::flags;
use profile::escape::terminal;
use profile::model::StackEnd;
use profile::style::Style;
use profile::text::{WIDTH, cut, fit, sentence};
use profile::units;

use super::lock::{Holder, Identity, Wait, Waited};
use super::snapshot::Snapshot;
use super::thread::Stack;
use super::thread::{Phase, Thread};
use super::told::{NAMED, also, label, question, so_far};
use super::verdict::{Deadlock, Kind, Root, Tree, Verdict};
use crate::lockstat::futex::python;

/// Waits for waiters for waiters, down to here; a chain in a tree has an end, but it may be long.
const DEEPEST: usize = 32;
/// Columns of a lock's name, and of the deepest indentation.
const NAME: usize = 48;
const INDENT: usize = 24;

/// How to write.
pub(crate) struct Options {
    /// Trees shown.
    pub(crate) top: usize,
    /// Show stacks of waiters and holders, not only of deadlocks.
    pub(crate) stacks: bool,
    pub(crate) color: bool,
}

struct Writer<'a, W> {
    snapshot: &'a Snapshot,
    verdict: &'a Verdict,
    style: Style,
    out: &'a mut W,
}

/// Writes all of it.
pub(crate) fn write(
    snapshot: &Snapshot,
    verdict: &Verdict,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut writer = Writer {
        snapshot,
        verdict,
        style: Style::from(options.color),
        out,
    };
    writer.summary()?;
    for deadlock in &verdict.deadlocks {
        writer.deadlock(deadlock)?;
    }
    for tree in verdict.trees.iter().take(options.top) {
        writer.tree(tree, options.stacks)?;
    }
    let hidden = verdict.trees.len().saturating_sub(options.top);
    if hidden > 0 {
        let what = units::counted(hidden as u64, "more holders with fewer threads behind them");
        writeln!(writer.out, "\n{what}; -n shows them")?;
    }
    Ok(())
}

/// What a thread is doing, if it does not wait for a lock.
pub(crate) fn activity(thread: &Thread, stack: Option<&Stack>, said: Option<&str>) -> String {
    match thread.phase {
        Phase::Running => "on a CPU".into(),
        Phase::Runnable => "waiting for a CPU".into(),
        Phase::Asleep if thread.wait.flags & flags::STOPPED != 0 => "stopped".into(),
        Phase::Asleep if said.is_some() => {
            let said = said.unwrap_or_default();
            format!("asleep ({})", cut(&terminal(said), NAME))
        }
        Phase::Asleep => {
            let place = stack
                .and_then(|stack| stack.kernel.last())
                .map(|leaf| format!(", in {}", cut(&terminal(&leaf.name), NAME)))
                .unwrap_or_default();
            format!("asleep ({}{place})", thread.wait.reason())
        }
    }
}

/// `mutex app+0x4060`
pub(crate) fn lock(wait: &Wait) -> String {
    let kind = wait.kind.name();
    match wait.name.as_str() {
        "" => kind.into(),
        _ if wait.kind.is_join() => kind.into(),
        name => format!("{kind} {}", fit(&terminal(name), NAME)),
    }
}

impl<W: Write> Writer<'_, W> {
    fn thread(&self, index: usize) -> &Thread {
        &self.snapshot.threads.all[index]
    }

    /// Writes a sentence in lines that a terminal holds; it may begin with a word that stands out.
    fn say(&mut self, indent: usize, word: &str, rest: &str) -> io::Result<()> {
        let indent = indent.min(INDENT);
        let text = format!("{word}{rest}");
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        for (at, line) in sentence(&words, "", WIDTH - indent).iter().enumerate() {
            let head = if at == 0 { word } else { "" };
            let tail = line.strip_prefix(head).unwrap_or(line);
            match head {
                "" => writeln!(self.out, "{:indent$}{tail}", "")?,
                _ => writeln!(self.out, "{:indent$}{}{tail}", "", self.style.bold(head))?,
            }
        }
        Ok(())
    }

    fn label(&self, index: usize) -> String {
        label(self.thread(index))
    }

    /// The same of one that waits, with the time that it has waited if somebody says that.
    fn waiter(&self, index: usize) -> String {
        let wait = self.verdict.by_waiter.get(&index);
        let so_far = wait.and_then(|wait| so_far(&self.snapshot.waits[*wait]));
        let so_far = so_far.map(|so_far| format!(" for {so_far}"));
        self.label(index) + &so_far.unwrap_or_default()
    }

    fn wait_of(&self, thread: usize) -> &Wait {
        &self.snapshot.waits[self.verdict.by_waiter[&thread]]
    }

    fn summary(&mut self) -> io::Result<()> {
        let all = &self.snapshot.threads.all;
        let wanted = all.iter().filter(|thread| thread.wanted).count() as u64;
        let waiting = wanted_waiters(self.snapshot, Waited::is_lock);
        let events = wanted_waiters(self.snapshot, Waited::is_event);
        let apart = units::duration(u64::try_from(self.snapshot.apart.as_nanos()).unwrap_or(0));
        write!(
            self.out,
            "{} within {apart}: ",
            units::counted(wanted, "threads")
        )?;
        match waiting {
            0 => writeln!(self.out, "no thread waits for a lock")?,
            1 => writeln!(self.out, "1 waits for a lock")?,
            n => writeln!(self.out, "{} wait for locks", units::count(n))?,
        }
        if events > 0 {
            let who = match events {
                1 => "1 thread waits".into(),
                n => format!("{} threads wait", units::count(n)),
            };
            let what = "for an event (a condition, a semaphore, work); a lock may be made of these";
            self.say(0, "", &format!("{who} {what}"))?;
        }
        if self.snapshot.is_silent {
            let what = "PostgreSQL's own locks are not looked at: before 14 the server does not \
                        say what its processes wait for";
            self.say(0, "", what)?;
        }
        if self.snapshot.passing > 0 {
            let passing = units::counted(self.snapshot.passing, "waits for locks");
            writeln!(self.out, "{passing} ended meanwhile")?;
        }
        Ok(())
    }

    fn deadlock(&mut self, deadlock: &Deadlock) -> io::Result<()> {
        let members = &deadlock.members;
        let processes: HashSet<u32> = members.iter().map(|t| self.thread(*t).task.tgid).collect();
        let whose = match processes.len() {
            1 => format!(" of process {}", self.thread(members[0]).task.tgid),
            n => format!(" of {n} processes"),
        };
        let n = units::counted(members.len() as u64, "threads");
        let what = match (deadlock.kind, members.len()) {
            (Kind::Circle, 1) => format!("1 thread{whose} waits for itself"),
            (Kind::Circle, _) => format!("{n}{whose} wait for each other"),
            (Kind::Process, _) => {
                format!("{n}{whose} wait for locks, and no thread is left that could release one")
            }
            (Kind::Abandoned, _) => {
                format!("{n}{whose} behind a lock whose holder has exited")
            }
        };
        let word = match (deadlock.certain, deadlock.timed) {
            (true, false) => "DEADLOCK",
            (true, true) => "DEADLOCK until a time-out",
            (false, _) => "PERHAPS A DEADLOCK",
        };
        writeln!(self.out)?;
        self.say(0, word, &format!(": {what}"))?;
        for &member in members {
            let line = self.wait_line(member);
            self.say(2, "", &line)?;
            self.statement(4, member)?;
        }
        if !deadlock.behind.is_empty() {
            let names = self.names(&deadlock.behind);
            self.say(2, "", &format!("behind them: {names}"))?;
        }
        for &member in members {
            self.stack(member)?;
        }
        Ok(())
    }

    /// `a (…) waits for mutex app+0x4060, held by b (…)`
    fn wait_line(&self, waiter: usize) -> String {
        let wait = self.wait_of(waiter);
        // A server ends deadlocks, and no other wait.
        let timed = match wait.kind {
            Waited::Server(_) => "",
            _ if wait.timed => " for a limited time",
            _ => "",
        };
        let so_far = so_far(wait).map(|so_far| format!(", for {so_far} so far"));
        let held = match wait.holder {
            _ if wait.kind.is_event() => String::new(),
            Holder::Thread(end) if wait.kind.is_join() => format!(" of {}", self.label(end)),
            Holder::Thread(holder) if holder == waiter => ", which it holds itself".into(),
            Holder::Thread(holder) => format!(", held by {}", self.label(holder)),
            Holder::Perhaps(holder) => format!(", last taken by {}", self.label(holder)),
            Holder::Ahead(other) => format!(", behind {} in line for it", self.label(other)),
            Holder::Process(leader) => format!(", held by a thread of {}", self.label(leader)),
            Holder::Gone(tid) => format!(", held by thread {tid}, which has exited"),
            Holder::Readers(1) => ", held by a reader that is not recorded".into(),
            Holder::Readers(n) => format!(", held by {n} readers that are not recorded"),
            Holder::Unrecorded => ", whose holder is not recorded".into(),
        };
        format!(
            "{} waits{timed} for {}{held}{}{}{}",
            self.label(waiter),
            lock(wait),
            also(self.snapshot, wait, &[]),
            so_far.unwrap_or_default(),
            question(self.snapshot, wait),
        )
    }

    fn names(&self, threads: &[usize]) -> String {
        let mut names: Vec<String> = threads
            .iter()
            .take(NAMED)
            .map(|thread| self.waiter(*thread))
            .collect();
        let rest = threads.len().saturating_sub(NAMED);
        if rest > 0 {
            names.push(format!("{} more", units::count(rest as u64)));
        }
        names.join(", ")
    }

    fn tree(&mut self, tree: &Tree, stacks: bool) -> io::Result<()> {
        let behind = units::counted(tree.behind.len() as u64, "threads");
        let root = match tree.root {
            Root::Thread(thread) => {
                let said = self.snapshot.said.get(&thread).map(String::as_str);
                let stack = self.snapshot.stacks.get(&thread);
                let doing = activity(self.thread(thread), stack, said);
                format!("{}, {doing}", self.label(thread))
            }
            Root::Lock(wait) => {
                let wait = &self.snapshot.waits[wait];
                let is_hidden = matches!(wait.lock, Identity::Hidden { .. });
                let which = match is_hidden && wait.name.is_empty() && tree.direct.len() > 1 {
                    true => " (one or several)",
                    false => "",
                };
                let holder = match wait.holder {
                    Holder::Readers(1) => "which a reader holds that is not recorded".into(),
                    Holder::Readers(n) => format!("which {n} readers hold that are not recorded"),
                    Holder::Process(leader) => {
                        format!("which a thread of {} holds", self.label(leader))
                    }
                    _ => "whose holder is not recorded".into(),
                };
                let asked = question(self.snapshot, wait);
                format!("{}{which}, {holder}{asked}", lock(wait))
            }
        };
        writeln!(self.out)?;
        self.say(0, &behind, &format!(" behind {root}"))?;
        if let Root::Thread(thread) = tree.root {
            self.statement(2, thread)?;
        }
        self.level(&tree.direct, 1)?;
        if stacks {
            if let Root::Thread(thread) = tree.root {
                self.stack(thread)?;
            }
            for &waiter in tree.behind.iter().take(NAMED) {
                self.stack(waiter)?;
            }
        }
        Ok(())
    }

    /// Waits for the same lock in one line each, with what stands behind their waiters below.
    fn level(&mut self, waits: &[usize], depth: usize) -> io::Result<()> {
        let all = &self.snapshot.waits;
        let queue: Vec<usize> = waits.iter().map(|wait| all[*wait].waiter).collect();
        let mut locks: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for &index in waits {
            let wait = &self.snapshot.waits[index];
            let last = match wait.holder {
                Holder::Perhaps(_) => ", last taken there",
                Holder::Ahead(_) => ", in line behind it",
                _ => "",
            };
            let others = also(self.snapshot, wait, &queue);
            locks
                .entry(format!("{}{last}{others}", lock(wait)))
                .or_default()
                .push(wait.waiter);
        }
        for (lock, waiters) in locks {
            let names = self.names(&waiters);
            self.say(2 * depth, "", &format!("{lock}: {names}"))?;
            for waiter in waiters.into_iter().take(NAMED) {
                self.statement(2 * depth + 2, waiter)?;
                let next = self.verdict.waiters.get(&waiter).cloned();
                let next: Vec<usize> = next
                    .unwrap_or_default()
                    .iter()
                    .map(|thread| self.verdict.by_waiter[thread])
                    .collect();
                if !next.is_empty() && depth < DEEPEST {
                    let count = units::counted(next.len() as u64, "threads");
                    let label = self.label(waiter);
                    self.say(2 * depth + 2, "", &format!("{count} behind {label}"))?;
                    self.level(&next, depth + 2)?;
                }
            }
        }
        Ok(())
    }

    /// The statement that a session is at, if that was asked for: `PID 12: UPDATE …`.
    fn statement(&mut self, indent: usize, thread: usize) -> io::Result<()> {
        let Some(statement) = self.snapshot.statements.get(&thread) else {
            return Ok(());
        };
        let indent = indent.min(INDENT);
        let text = format!(
            "PID {}: {}",
            self.thread(thread).task.tgid,
            terminal(statement)
        );
        writeln!(self.out, "{:indent$}{}", "", cut(&text, WIDTH - indent))
    }

    /// Leaf first, as debuggers print them.
    fn stack(&mut self, thread: usize) -> io::Result<()> {
        writeln!(self.out, "\n  {}", self.label(thread))?;
        let Some(stack) = self.snapshot.stacks.get(&thread) else {
            return writeln!(self.out, "    (not asleep: no stack)");
        };
        for frame in stack.kernel.iter().rev() {
            let name = format!("{} [k]", cut(&terminal(&frame.name), WIDTH - 8));
            writeln!(self.out, "    {}", self.style.dim(name))?;
        }
        for frame in stack.user.iter().rev() {
            let name = match python::place(frame) {
                Some(place) => format!("{} ({place})", frame.name),
                None => frame.name.to_string(),
            };
            writeln!(self.out, "    {}", cut(&terminal(&name), WIDTH - 4))?;
        }
        match stack.user_end {
            None | Some(StackEnd::Root) => Ok(()),
            Some(_) => writeln!(self.out, "    (and more, which could not be walked)"),
        }
    }
}

/// Waiters that the options asked for.
pub(crate) fn wanted_waiters(snapshot: &Snapshot, kind: impl Fn(Waited) -> bool) -> u64 {
    let waits = snapshot.waits.iter();
    waits
        .filter(|wait| kind(wait.kind) && snapshot.threads.all[wait.waiter].wanted)
        .count() as u64
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
