//! Wait chains: while a thread waited for a lock, its holder waited for another one, and so on.

mod assemble;
mod rows;
pub(crate) mod text;

use std::collections::HashMap;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use profile::model::Task;

use crate::lockstat::row::{Identity, LockRow, Side};
use assemble::assemble;
use rows::Rows;

/// What a lock is called where it is part of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// `mutex`, `rwsem`, …
    pub(crate) class: &'static str,
    /// Whether the lock can say who has it.
    pub(crate) names_holder: bool,
}

impl Label {
    pub(crate) fn of(row: &LockRow, names_holder: bool) -> Self {
        Self {
            name: row.name.own.clone(),
            class: row.class,
            names_holder,
        }
    }
}

/// Names of locks as the BPF side tells them apart.
pub(crate) type Labels = HashMap<Identity, Label>;

/// A thread that waited, what for, and who had that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) waiter: Task,
    pub(crate) lock: Label,
    /// `None`: nobody knows.
    pub(crate) holder: Option<Task>,
    /// Of the first link: all of the time. Of another: what its waiter waited while the one before waited for it.
    pub(crate) ns: u64,
}

/// Two links or more; each one's holder is the next one's waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Of the first thread.
    pub(crate) waits: u64,
    pub(crate) links: Vec<Link>,
}

/// What finds chains, over all intervals.
#[derive(Default)]
pub(crate) struct Chains {
    rows: Rows,
    /// Names of the interval before: what a holder waited for may have ended in it.
    labels: Labels,
}

impl Chains {
    /// The chains that ended in the interval of this half of the tables; those that cost most first.
    pub(crate) fn take(
        &mut self,
        skel: &LockstatSkel<'_>,
        half: u32,
        labels: Labels,
    ) -> Result<Vec<Chain>> {
        let rows = self.rows.take(skel, half)?;
        let chains = assemble(&rows, |lock| {
            labels.get(lock).or_else(|| self.labels.get(lock))
        });
        self.labels = labels;
        Ok(chains)
    }
}

/// Adds the kernel's locks.
pub(crate) fn label_kernel(rows: &[LockRow], labels: &mut Labels) {
    let kernel = rows.iter().filter(|row| row.identity.side == Side::Kernel);
    labels.extend(kernel.map(|row| (row.identity, Label::of(row, true))));
}

/// Adds what PostgreSQL's processes wait for, which names nobody.
pub(crate) fn label_servers(rows: &[LockRow], labels: &mut Labels) {
    labels.extend(rows.iter().map(|row| (row.identity, Label::of(row, false))));
}
