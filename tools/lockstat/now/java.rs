//! Monitors of Java: which waits are for them, and who has them, as the virtual machine knows.

use std::collections::{HashMap, HashSet};

use symbols::memory;
use symbols::places::Places;

use super::claim::Claim;
use super::lock::{Holder, Identity, Told, Wait, Waited};
use super::thread::Threads;
use super::waits::Found;
use crate::lockstat::hotspot::{DESCRIPTION, Description, JavaThread, Machine};

/// Virtual machines whose threads are looked at.
const MOST_MACHINES: usize = 64;

/// Waits of processes that run a Java virtual machine.
#[derive(Default)]
pub(super) struct Javas {
    /// The machines' descriptions, by process.
    described: HashMap<u32, Description>,
    /// Processes beyond the most, which nobody looked at.
    pub(super) left_out: u64,
}

impl Javas {
    /// Looks for virtual machines in processes with waits that nobody knows; `locked`: address spaces that are not to be read.
    pub(super) fn find(found: &[Found], threads: &Threads, locked: &HashSet<u64>) -> Self {
        let mut places = Places::default();
        let mut known = HashSet::new();
        let mut javas = Self::default();
        for found in found.iter().filter(|found| found.wait.is_unknown()) {
            let thread = &threads.all[found.wait.waiter];
            let tgid = thread.task.tgid;
            let is_out = thread.compat || locked.contains(&thread.space);
            if is_out || !known.insert(tgid) {
                continue;
            }
            if javas.described.len() >= MOST_MACHINES {
                javas.left_out += 1;
                continue;
            }
            let (library, variable) = DESCRIPTION;
            let at = places.variable_of_library(tgid, library, variable);
            let description = at.and_then(|at| Description::read(at, &memory_of(tgid)));
            javas
                .described
                .extend(description.map(|described| (tgid, described)));
        }
        javas
    }

    /// Tells if there is any.
    pub(super) fn are_there(&self) -> bool {
        !self.described.is_empty()
    }

    /// Says which of the waits are for monitors, and adds those of threads that their timers wake, to sleep on: of several that wait for
    /// a monitor one looks after it by and by.
    pub(super) fn name(&self, threads: &Threads, waits: &mut Vec<Wait>) {
        for (tgid, description) in &self.described {
            let members = members(threads, *tgid);
            with_machine(*tgid, description, |machine, java| {
                for (tid, monitor) in awaited(java) {
                    let Some(waiter) = members.get(&tid) else {
                        continue;
                    };
                    let space = threads.all[*waiter].space;
                    let is_its = |wait: &&mut Wait| wait.waiter == *waiter;
                    let at = waits.iter_mut().find(is_its);
                    let class = machine.class(monitor);
                    let wait = Wait {
                        waiter: *waiter,
                        kind: Waited::Java,
                        lock: Identity::Private {
                            space,
                            address: monitor,
                        },
                        name: class.map_or_else(String::new, |class| format!("of {class}")),
                        holder: Holder::Unrecorded,
                        timed: false,
                        private: true,
                        is_over: false,
                        told: Told::default(),
                    };
                    match at {
                        Some(known) => *known = wait,
                        None => waits.push(wait),
                    }
                }
            });
        }
    }

    /// Threads that have monitors that are waited for, by the monitor, and those that still wait for the same ones.
    pub(super) fn claims(
        &self,
        threads: &Threads,
        waits: &[Wait],
    ) -> (HashMap<Identity, Claim>, HashSet<usize>) {
        let (mut claims, mut lasting) = (HashMap::new(), HashSet::new());
        for (tgid, description) in &self.described {
            let members = members(threads, *tgid);
            with_machine(*tgid, description, |machine, java| {
                let now: HashMap<u32, u64> = awaited(java).collect();
                for wait in waits.iter().filter(|wait| wait.kind == Waited::Java) {
                    let waiter = &threads.all[wait.waiter];
                    let Identity::Private { address, .. } = wait.lock else {
                        continue;
                    };
                    if waiter.task.tgid != *tgid || now.get(&waiter.own_tid) != Some(&address) {
                        continue;
                    }
                    lasting.insert(wait.waiter);
                    let owner = machine.owner(address, java);
                    let thread = owner.and_then(|owner| members.get(&owner.tid));
                    let claim = thread.map(|thread| Claim {
                        thread: *thread,
                        is_owner: true,
                        is_only: true,
                    });
                    claims.extend(claim.map(|claim| (wait.lock.clone(), claim)));
                }
            });
        }
        (claims, lasting)
    }
}

/// Threads that wait for monitors, by the IDs that their process knows, and the monitors.
fn awaited(java: &[JavaThread]) -> impl Iterator<Item = (u32, u64)> {
    java.iter()
        .filter_map(|thread| Some((thread.tid, thread.awaited?)))
}

/// Threads of a process by the IDs that it knows them by.
fn members(threads: &Threads, tgid: u32) -> HashMap<u32, usize> {
    let all = threads.all.iter().enumerate();
    let own = all.filter(|(_, thread)| thread.task.tgid == tgid && !thread.is_dead());
    own.map(|(index, thread)| (thread.own_tid, index)).collect()
}

/// Reads the threads of a process's virtual machine, if that can be done.
fn with_machine(
    tgid: u32,
    description: &Description,
    does: impl FnOnce(&Machine<'_>, &[JavaThread]),
) {
    let read = memory_of(tgid);
    let machine = Machine::of(description, &read);
    if let Some(threads) = machine.threads() {
        does(&machine, &threads);
    }
}

fn memory_of(tgid: u32) -> impl Fn(u64, &mut [u8]) -> bool {
    move |address, buffer| memory::read(tgid, address, buffer).ok() == Some(buffer.len())
}
