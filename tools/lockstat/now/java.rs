//! Monitors and locks of Java: which waits are for them, and who has them, as the virtual machine knows.

use std::collections::{HashMap, HashSet};

use bpf::lockstat::types::java_machine;
use host::procs;
use symbols::places::Places;

use super::claim::Claim;
use super::lock::{Holder, Identity, Told, Wait, Waited};
use super::thread::Threads;
use super::waits::Found;
use crate::lockstat::hotspot::{DESCRIPTION, Description, JavaThread, Machine, memory_of};

/// Virtual machines whose threads are looked at.
const MOST_MACHINES: usize = 64;

/// A machine, and where its threads note what they are parked for, if that is known.
struct Described {
    description: Description,
    layout: Option<java_machine>,
}

impl Described {
    fn read(tgid: u32, places: &mut Places) -> Option<Self> {
        let (library, variable) = DESCRIPTION;
        let at = places.variable_of_library(tgid, library, variable)?;
        let read = memory_of(tgid);
        let description = Description::read(at, &read)?;
        let variables = &mut |name: &str| places.variable_of_library(tgid, library, name);
        let machine = Machine::of(&description, &read);
        let space = procs::stack_start(tgid);
        let layout = space.and_then(|space| machine.layout(space, variables));
        Some(Self {
            description,
            layout,
        })
    }
}

/// A lock that a thread waits for.
struct Lock {
    kind: Waited,
    /// The monitor's, or the lock's object's.
    address: u64,
    /// The name of its class.
    class: Option<String>,
    /// The JavaThread that has it, if it is no monitor.
    owner: u64,
}

/// Waits of processes that run a Java virtual machine.
#[derive(Default)]
pub(super) struct Javas {
    /// The machines' descriptions, by process.
    described: HashMap<u32, Described>,
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
            let described = Described::read(tgid, &mut places);
            javas
                .described
                .extend(described.map(|described| (tgid, described)));
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
        for (tgid, described) in &self.described {
            let members = members(threads, *tgid);
            with_machine(*tgid, described, |machine, java| {
                for (tid, lock) in awaited(machine, described, java) {
                    let Some(waiter) = members.get(&tid) else {
                        continue;
                    };
                    let space = threads.all[*waiter].space;
                    let is_its = |wait: &&mut Wait| wait.waiter == *waiter;
                    let at = waits.iter_mut().find(is_its);
                    let name = lock.class.map(|class| format!("of {class}"));
                    let wait = Wait {
                        waiter: *waiter,
                        kind: lock.kind,
                        lock: Identity::Private {
                            space,
                            address: lock.address,
                        },
                        name: name.unwrap_or_default(),
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
        for (tgid, described) in &self.described {
            let members = members(threads, *tgid);
            with_machine(*tgid, described, |machine, java| {
                let now: HashMap<u32, Lock> = awaited(machine, described, java).collect();
                let is_javas = |wait: &&Wait| [Waited::Java, Waited::JavaLock].contains(&wait.kind);
                for wait in waits.iter().filter(is_javas) {
                    let waiter = &threads.all[wait.waiter];
                    let Identity::Private { address, .. } = wait.lock else {
                        continue;
                    };
                    let lock = now.get(&waiter.own_tid);
                    let Some(lock) = lock.filter(|lock| lock.address == address) else {
                        continue;
                    };
                    if waiter.task.tgid != *tgid {
                        continue;
                    }
                    lasting.insert(wait.waiter);
                    let owner = match lock.kind {
                        Waited::Java => machine.owner(address, java),
                        _ => java.iter().find(|thread| thread.address == lock.owner),
                    };
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

/// Threads that wait for monitors, or for locks that know who has them, by the IDs that their process knows.
fn awaited(
    machine: &Machine<'_>,
    described: &Described,
    java: &[JavaThread],
) -> impl Iterator<Item = (u32, Lock)> {
    let lock = |thread: &JavaThread| match thread.awaited {
        Some(monitor) => Some(Lock {
            kind: Waited::Java,
            address: monitor,
            class: machine.class(monitor),
            owner: 0,
        }),
        None => parked(machine, described.layout.as_ref()?, thread),
    };
    java.iter()
        .filter_map(move |thread| Some((thread.tid, lock(thread)?)))
}

fn parked(machine: &Machine<'_>, layout: &java_machine, thread: &JavaThread) -> Option<Lock> {
    let awaited = machine.awaited(layout, thread.address)?;
    let class = machine.name(awaited.class);
    (awaited.owner != 0).then(|| Lock {
        kind: Waited::JavaLock,
        address: awaited.object,
        // Its inner classes work for it.
        class: class.and_then(|name| Some(name.split('$').next()?.to_owned())),
        owner: awaited.owner,
    })
}

/// Threads of a process by the IDs that it knows them by.
fn members(threads: &Threads, tgid: u32) -> HashMap<u32, usize> {
    let all = threads.all.iter().enumerate();
    let own = all.filter(|(_, thread)| thread.task.tgid == tgid && !thread.is_dead());
    own.map(|(index, thread)| (thread.own_tid, index)).collect()
}

/// Reads the threads of a process's virtual machine, if that can be done.
fn with_machine(tgid: u32, described: &Described, does: impl FnOnce(&Machine<'_>, &[JavaThread])) {
    let read = memory_of(tgid);
    let machine = Machine::of(&described.description, &read);
    if let Some(threads) = machine.threads() {
        does(&machine, &threads);
    }
}
