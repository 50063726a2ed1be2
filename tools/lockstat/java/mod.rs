//! Java virtual machines among the processes, for the BPF side: where a thread notes what it waits for, and names of what that is.

mod asleep;
mod executors;
mod threads;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{java_class_key, java_machine};
use host::procs;
use host::task::all_processes;
use libbpf_rs::{MapCore, MapFlags};
use loader::{maps, section};
use plain::Plain;
use profile::units;
use symbols::places::Places;

use asleep::Sleepers;
use threads::{Process, Threads};

use crate::lockstat::hotspot::{
    CLASS_UNKNOWN, DESCRIPTION, Description, Machine, Pages, memory_of,
};

/// `MAX_JAVAS` of the BPF side.
const MOST: usize = 256;
/// `MAX_JAVA_THREADS` of the BPF side, which forgets those of more that were not met for longest.
const MOST_THREADS: usize = 16_384;
/// Processes that were looked at and are remembered.
const MOST_LOOKED_AT: usize = 1 << 14;
/// Time between looks at a process that has no machine yet, or at objects that may have moved.
const AGAIN: Duration = Duration::from_secs(1);
/// The same of a process whose machine is about to begin.
const SOON: Duration = Duration::from_millis(20);
/// Beginnings of names of classes whose objects last, and are locks, or what locks and queues are made of.
const LASTING: [&str; 8] = [
    "java.util.concurrent.Semaphore$",
    "java.util.concurrent.SynchronousQueue$Transfer",
    "java.util.concurrent.LinkedTransferQueue",
    "java.util.concurrent.locks.AbstractQueuedLongSynchronizer$ConditionObject",
    "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject",
    "java.util.concurrent.locks.ReentrantLock$",
    "java.util.concurrent.locks.ReentrantReadWriteLock$",
    "java.util.concurrent.locks.StampedLock",
];
/// Classes whose names are kept.
const MOST_CLASSES: usize = 1 << 15;
/// The program that starts most of them.
const LAUNCHER: &str = "java";

/// A machine that the BPF side knows.
struct Known {
    description: Description,
    layout: java_machine,
    threads: Threads,
}

/// A process that was looked at: its address space, and when to look again.
struct Looked {
    space: u64,
    again: Instant,
}

/// Machines and the names of their classes; those of processes that are gone stay.
#[derive(Default)]
pub(crate) struct Javas {
    machines: HashMap<u32, Known>,
    looked: HashMap<u32, Looked>,
    classes: HashMap<(u32, u64), Arc<str>>,
    /// Times that the BPF side could not be told.
    untold: u64,
    /// Processes that there was no room for.
    left_out: u64,
    /// Threads that there was no room for, at most at once.
    crowded_out: usize,
}

impl Javas {
    /// Looks at those of `tgids`, or where there are none at all processes that a machine's launcher runs in.
    pub(crate) fn begin(
        &mut self,
        tgids: &[u32],
        skel: &mut LockstatSkel<'_>,
        places: &mut Places,
    ) {
        let among: BTreeSet<u32> = match tgids {
            [] => all_processes().into_iter().filter(is_launcher).collect(),
            tgids => tgids.iter().copied().collect(),
        };
        let told = self.tell(&among, skel, places, Sleepers::of);
        let told = told.and_then(|()| self.tell_loaded(skel, places));
        self.untold += u64::from(told.is_err());
    }

    /// Looks for machines among processes that wait for what nobody has seen yet, and takes in new threads and classes of those that are
    /// known.
    pub(crate) fn follow(
        &mut self,
        news: &BTreeSet<u32>,
        skel: &mut LockstatSkel<'_>,
        places: &mut Places,
    ) {
        let told = self.tell(news, skel, places, |_| Sleepers::default());
        self.untold += u64::from(told.is_err());
    }

    fn tell(
        &mut self,
        news: &BTreeSet<u32>,
        skel: &mut LockstatSkel<'_>,
        places: &mut Places,
        asleep: impl Fn(u32) -> Sleepers,
    ) -> Result<()> {
        for tgid in news {
            self.look(*tgid, skel, places)?;
        }
        for (tgid, known) in &mut self.machines {
            known.follow(*tgid, &asleep(*tgid), skel)?;
        }
        let threads = self.machines.values().map(|known| known.threads.count());
        let too_many = threads.sum::<usize>().saturating_sub(MOST_THREADS);
        self.crowded_out = self.crowded_out.max(too_many);
        if !self.machines.is_empty() {
            self.name(skel)?;
        }
        Ok(())
    }

    /// The class of what a thread of a process waits for, by its address.
    pub(crate) fn class(&self, tgid: u32, address: u64) -> Option<Arc<str>> {
        self.classes.get(&(tgid, address)).cloned()
    }

    /// Looks whether an object of a process's, by its address, is what an executor's threads wait for when they have nothing to do.
    pub(crate) fn is_work(&self, tgid: u32, object: u64) -> bool {
        let known = self.machines.get(&tgid);
        known.is_some_and(|known| known.threads.queues.have(object))
    }

    /// Lines for people, if something is not known.
    pub(crate) fn describe(&self) -> Vec<String> {
        let those = |is_one: fn(&Known) -> bool, what: &str| {
            let found = self.machines.iter().filter(|(_, known)| is_one(known));
            let found: BTreeSet<u32> = found.map(|(tgid, _)| *tgid).collect();
            let first = found.first()?;
            let others = match found.len() as u64 - 1 {
                0 => String::new(),
                more => format!(" and of {}", units::counted(more, "others")),
            };
            Some(format!("of Java process {first}{others} {what}"))
        };
        let unknown = |known: &Known| known.layout.class_place == CLASS_UNKNOWN;
        let lines = [
            those(unknown, "only monitors are known: libjvm.so has no symbols"),
            those(
                |known| known.threads.queues.carry(),
                "virtual threads' waits are not shown",
            ),
        ];
        let missed = [
            (self.left_out, "Java processes: too many at once"),
            (
                self.crowded_out as u64,
                "threads of Java: too many at once, waits of some have no name",
            ),
            (
                self.untold,
                "times that new threads of Java were not taken in",
            ),
        ];
        let missed = missed.into_iter().filter(|(count, _)| *count > 0);
        let missed = missed.map(|(count, what)| format!("{count} {what}"));
        lines.into_iter().flatten().chain(missed).collect()
    }

    fn look(&mut self, tgid: u32, skel: &mut LockstatSkel<'_>, places: &mut Places) -> Result<()> {
        let Some(space) = procs::stack_start(tgid) else {
            return Ok(());
        };
        let is_known = |known: &Known| known.layout.space == space;
        let is_early = |looked: &Looked| looked.space == space && Instant::now() < looked.again;
        if self.machines.get(&tgid).is_some_and(is_known)
            || self.looked.get(&tgid).is_some_and(is_early)
        {
            return Ok(());
        }
        let (library, variable) = DESCRIPTION;
        let described = places.variable_of_library(tgid, library, variable);
        if self.looked.len() >= MOST_LOOKED_AT {
            self.looked.clear();
        }
        let wait = if described.is_some() { SOON } else { AGAIN };
        let again = Instant::now() + wait;
        self.looked.insert(tgid, Looked { space, again });
        let read = memory_of(tgid);
        let description = described.and_then(|at| Description::read(at, &read));
        let Some(description) = description.filter(|_| self.has_room(skel)) else {
            return Ok(());
        };
        let variable = &mut |name: &str| places.variable_of_library(tgid, library, name);
        let layout = Machine::of(&description, &read).layout(space, variable);
        let Some(layout) = layout else {
            return Ok(());
        };
        put(&skel.maps.java_machines, &tgid, &layout)?;
        section(skel.maps.bss_data.as_deref_mut(), ".bss")?.has_javas = 1;
        self.machines.insert(
            tgid,
            Known {
                description,
                layout,
                threads: Threads::default(),
            },
        );
        Ok(())
    }

    /// Forgets machines that are gone, if there are too many.
    fn has_room(&mut self, skel: &LockstatSkel<'_>) -> bool {
        if self.machines.len() >= MOST {
            self.machines.retain(|tgid, known| {
                let is_there = procs::stack_start(*tgid) == Some(known.layout.space);
                if !is_there {
                    // It is there, for nobody else deletes any.
                    let _ = skel.maps.java_machines.delete(&tgid.to_ne_bytes());
                }
                is_there
            });
            let machines = &self.machines;
            self.classes
                .retain(|(tgid, _), _| machines.contains_key(tgid));
        }
        let has_room = self.machines.len() < MOST;
        self.left_out += u64::from(!has_room);
        has_room
    }

    /// Tells which of the classes that are loaded already are of objects that last.
    fn tell_loaded(&mut self, skel: &LockstatSkel<'_>, places: &mut Places) -> Result<()> {
        for (tgid, known) in &self.machines {
            let memory = memory_of(*tgid);
            let pages = Pages::new(&memory);
            let read = |address: u64, buffer: &mut [u8]| pages.fill(address, buffer);
            let variables =
                &mut |name: &str| places.variable_of_library(*tgid, DESCRIPTION.0, name);
            let machine = Machine::of(&known.description, &read);
            for (class, name) in machine.loaded(variables, &LASTING) {
                let key = java_class_key {
                    class,
                    tgid: *tgid,
                    hole: 0,
                };
                put(&skel.maps.java_classes, &key, &1_u8)?;
                self.classes.insert((*tgid, class), name.into());
            }
        }
        Ok(())
    }

    /// Names the classes that have come, while their processes live.
    fn name(&mut self, skel: &LockstatSkel<'_>) -> Result<()> {
        for (key, said) in maps::entries::<java_class_key, u8>(&skel.maps.java_classes)? {
            let class = (key.tgid, key.class);
            let Some(known) = self.machines.get(&key.tgid) else {
                continue;
            };
            if self.classes.len() >= MOST_CLASSES {
                self.classes.clear();
            }
            let name = match self.classes.entry(class) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unnamed) => {
                    let read = memory_of(key.tgid);
                    let name = Machine::of(&known.description, &read).name(key.class);
                    let Some(name) = name else {
                        continue;
                    };
                    unnamed.insert(name.into())
                }
            };
            // The BPF side may have forgotten it meanwhile.
            let lasts = u8::from(LASTING.iter().any(|lasting| name.starts_with(lasting)));
            if lasts != said {
                put(&skel.maps.java_classes, &key, &lasts)?;
            }
        }
        Ok(())
    }
}

impl Known {
    /// Tells the BPF side of its threads. `asleep`: those that may be waiting already.
    fn follow(&mut self, tgid: u32, asleep: &Sleepers, skel: &LockstatSkel<'_>) -> Result<()> {
        let memory = memory_of(tgid);
        let pages = Pages::new(&memory);
        let read = |address: u64, buffer: &mut [u8]| pages.fill(address, buffer);
        let machine = Machine::of(&self.description, &read);
        let process = Process {
            tgid,
            machine: &machine,
            layout: &self.layout,
        };
        self.threads.follow(&process, asleep, skel)
    }
}

/// Puts something into a map of the BPF side's.
fn put<K: Plain, V: Plain>(map: &impl MapCore, key: &K, value: &V) -> Result<()> {
    // SAFETY: the BPF side's types have no padding.
    let [key, value] = unsafe { [plain::as_bytes(key), plain::as_bytes(value)] };
    Ok(map.update(key, value, MapFlags::ANY)?)
}

/// Puts something into a map of the BPF side's, unless that has it: it is missing if there is no room.
fn put_new<K: Plain, V: Plain>(map: &impl MapCore, key: &K, value: &V) {
    // SAFETY: the BPF side's types have no padding.
    let [key, value] = unsafe { [plain::as_bytes(key), plain::as_bytes(value)] };
    let _ = map.update(key, value, MapFlags::NO_EXIST);
}

fn is_launcher(tgid: &u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{tgid}/exe"));
    program.is_ok_and(|program| program.file_name().is_some_and(|name| name == LAUNCHER))
}
