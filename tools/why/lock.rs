//! A lock that threads waited for, as a line of the account has it.

use profile::text::{WIDTH, columns, cut, cut_name, sentence};
use profile::units;
use serde_json::{Value, json};
use session::next::{self, Step};

use crate::lockstat::{self, For, HolderKind, Identity, LockRow};
use crate::offcputime::GIL;
use crate::why::kinds::Doing;

/// Share by which lockstat's time of the same waits may be larger before that is said.
const SAME: f64 = 0.02;
/// Columns of its name in a line, and of words on its holders.
const NAME: usize = 48;
const WORDS: usize = WIDTH - 20;

/// A lock, or several of a kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    /// Tells it from others of its name.
    pub(crate) identity: Option<Identity>,
    /// Class and name, as lockstat prints them.
    pub(crate) name: String,
    pub(crate) class: &'static str,
    /// The same in a sentence.
    noun: String,
    /// Its holders, and what they did meanwhile.
    about: Vec<String>,
    /// Doings of who held it, in a few words; empty: nobody knows.
    doing: String,
    /// Their doing for most of that time, and its share, from 0 to 1.
    pub(crate) did: Option<(Doing, f64)>,
    /// Those who held it or ended the waits for it: thread, how that is known, time that others waited, ns; the most first.
    pub(crate) holders: Vec<(u32, HolderKind, u64)>,
    /// Time of the same waits, by lockstat, ns.
    pub(crate) lockstat_ns: u64,
    /// Locks that it stands for.
    locks: u64,
    /// Threads may wait for work there, as far as lockstat can tell.
    pub(crate) is_unclear: bool,
    /// A look at this instant knows who has it.
    pub(crate) is_known_now: bool,
}

/// A name cut to its columns: `python-lock in shop.pay (shop.py:12)` keeps the line, and the last parts of the function.
fn fit(name: &str) -> String {
    let parts = name.split_once(" in ").filter(|_| columns(name) > NAME);
    let parts = parts.and_then(|(what, rest)| Some((what, rest.split_once(" (")?)));
    let Some((what, (function, place))) = parts else {
        return cut(name, NAME);
    };
    let room = NAME.saturating_sub(columns(what) + columns(place) + 6);
    cut(
        &format!("{what} in {} ({place}", cut_name(function, room)),
        NAME,
    )
}

/// The doing of its holders for more than half of the time that others waited, else at the begin of more than half of the waits.
fn did(row: &LockRow) -> Option<(Doing, f64)> {
    let holders = row.holders.iter().cloned();
    let all = holders.reduce(|mut all, one| {
        all.add(&one);
        all
    })?;
    let [on_cpu, queued, disk, others, asleep, unknown] = all.meanwhile.0;
    if all.meanwhile.states().is_some() {
        return most(&[
            (Some(Doing::OnCpu), on_cpu),
            (Some(Doing::Disk), disk),
            (Some(Doing::Asleep), asleep),
            (Some(Doing::ForOthers), others),
            (None, queued + unknown),
        ]);
    }
    most(&[
        (Some(Doing::OnCpu), all.on_cpu),
        (Some(Doing::OffCpu), all.blocked),
        (None, all.runnable),
    ])
}

/// The one with more than half, and its share.
fn most(parts: &[(Option<Doing>, u64)]) -> Option<(Doing, f64)> {
    let all: u64 = parts.iter().map(|(_, part)| part).sum();
    let (doing, part) = parts.iter().find(|(_, part)| part * 2 > all)?;
    doing.map(|doing| (doing, *part as f64 / all as f64))
}

impl Lock {
    pub(crate) fn of(row: &LockRow) -> Self {
        let threads = lockstat::by_thread(row.holders.iter());
        let doing = lockstat::doing(row, &threads);
        // Those who end waits are blamed by their functions already.
        let are_wakers = threads.iter().all(|one| one.kind == HolderKind::Waker);
        let mut about = match are_wakers && row.last.is_empty() {
            true => vec![doing.clone()],
            false => lockstat::by_whom(row),
        };
        about.retain(|part| !part.is_empty());
        let holders = threads.iter();
        let holders = holders.map(|one| (one.task.tid, one.kind, one.caused_ns));
        Self {
            identity: Some(row.identity),
            name: match row.class {
                // Its name says what it is.
                GIL => lockstat::label(row),
                _ => format!("{} {}", lockstat::class(row), lockstat::label(row)),
            },
            noun: format!("{} {}", lockstat::noun(row), lockstat::label(row)),
            class: row.class,
            about,
            doing,
            did: did(row),
            holders: holders.collect(),
            lockstat_ns: 0,
            locks: row.locks,
            is_unclear: row.what == For::Unclear,
            is_known_now: row.is_known_now(),
        }
    }

    /// Threads that held it, or released it, and the time that others waited meanwhile, ns; none of several locks, for each has its own.
    pub(crate) fn threads(&self) -> Vec<(u32, u64)> {
        let holders = self.holders.iter().filter(|_| self.locks == 1);
        holders.map(|(tid, _, ns)| (*tid, *ns)).collect()
    }

    /// Its name, of a length for lines.
    pub(crate) fn short(&self) -> String {
        fit(&self.name)
    }

    /// Words for it in a sentence.
    pub(crate) fn in_sentence(&self) -> String {
        fit(&self.noun)
    }

    /// The command that looks further at it, and at who waits for it.
    pub(crate) fn next(&self, target: &str) -> String {
        let answers = format!(
            "who waits for {} and who releases it",
            next::in_remark(&self.short(), "it")
        );
        Step::LockStacks.line_for(target, &answers)
    }

    /// Its holders and their doings, for a sentence.
    pub(crate) fn held(&self) -> Vec<String> {
        if self.about.is_empty() {
            return Vec::new();
        }
        let about = self.about.join("; ");
        let parts: Vec<String> = about.split(", ").map(str::to_owned).collect();
        sentence(&parts, ",", WIDTH)
    }

    /// Doings of its holders meanwhile, as parts of a sentence.
    pub(crate) fn doing(&self) -> Vec<String> {
        if self.doing.is_empty() {
            return Vec::new();
        }
        let doing = format!("({})", self.doing);
        doing
            .split_inclusive(", ")
            .map(|part| part.trim_end().to_owned())
            .collect()
    }

    /// Lines on its holders, below the one of its waits.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let lines = sentence(&self.about, ";", WORDS);
        let lines = lines.iter().flat_map(|line| {
            let parts: Vec<String> = line.split(", ").map(str::to_owned).collect();
            sentence(&parts, ",", WORDS)
        });
        lines.map(|line| format!("  {line}")).collect()
    }

    /// A line on its waits, which took `ns` exactly, where lockstat knows of more.
    pub(crate) fn difference(&self, ns: u64) -> Option<String> {
        let differs = self.lockstat_ns.saturating_sub(ns) as f64 > SAME * ns as f64;
        let time = units::duration(self.lockstat_ns);
        differs.then(|| format!("  lockstat has {time}: time spinning, and in calls"))
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        let holder = |(tid, kind, ns): &(u32, HolderKind, u64)| json!({ "tid": tid, "kind": kind.word(), "caused_ns": ns });
        json!({
            "name": self.name,
            "class": self.class,
            "lockstat_ns": self.lockstat_ns,
            "locks": self.locks,
            "holders": self.holders.iter().map(holder).collect::<Value>(),
            "meanwhile": self.doing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doings_are_parts_that_a_line_may_end_with() {
        let lock = Lock {
            doing: "meanwhile asleep 60%, on a CPU 40%".into(),
            ..Lock::default()
        };
        assert_eq!(lock.doing(), ["(meanwhile asleep 60%,", "on a CPU 40%)"]);
    }

    #[test]
    fn holders_did_what_took_more_than_half_of_the_time() {
        let did = |on_cpu, asleep, unknown| {
            most(&[
                (Some(Doing::OnCpu), on_cpu),
                (Some(Doing::Asleep), asleep),
                (None, unknown),
            ])
        };
        assert_eq!(did(6, 3, 1), Some((Doing::OnCpu, 0.6)));
        assert_eq!(did(1, 6, 1), Some((Doing::Asleep, 0.75)));
        assert_eq!(did(5, 5, 0), None);
        assert_eq!(did(2, 2, 6), None, "nobody knows");
        assert_eq!(did(0, 0, 0), None);
    }
}
