//! Objects that threads of a Java virtual machine wait for, whose classes say what they are.

use std::sync::Arc;

use profile::frame::Frame;

use crate::lockstat::futex::{Call, calls};
use crate::lockstat::names::Names;
use crate::lockstat::row::Identity;

/// `LOCK_OF_SLEEP` of the BPF side, then notices, monitors, objects that last, and futexes that threads wait on for others.
const SLEEP: u8 = 0xf9;
const NOTICE: u8 = 0xfa;
const MONITOR: u8 = 0xfb;
const LASTING: u8 = 0xfc;
const PASSING: u8 = 0xfd;

/// Functions that stand for a sleep, a wait to be notified, and one for a monitor, with their files.
const SLEEPS: Call<'_> = ("java.lang.Thread.sleep", Some(CLASSES));
const NOTIFIED: Call<'_> = ("ObjectMonitor::wait", Some(LIBRARY));
const ENTERED: Call<'_> = ("ObjectMonitor::enter", Some(LIBRARY));
const LIBRARY: &str = "libjvm.so";
/// The library of Java's classes, as rules call it.
const CLASSES: &str = "java";
/// Beginnings of functions that put a thread to sleep for a time, or park it.
const NAPS: [&str; 4] = [
    "JavaThread::sleep",
    "JVM_Sleep",
    "os::sleep",
    "Parker::park",
];
/// Packages of what waiting is made of: their functions ask for no lock.
const PACKAGES: [&str; 3] = [
    "java.util.concurrent.",
    "jdk.internal.misc.Unsafe",
    "sun.misc.Unsafe",
];
/// A function that the machine interprets, and has no name for.
const INTERPRETER: &str = "Interpreter";

/// The object that a row's threads wait for.
pub(super) struct Object {
    /// `LOCK_OF_…` of the BPF side.
    kind: u8,
    /// Its address is the row's.
    pub(super) is_seen: bool,
    class: Option<Arc<str>>,
    /// Threads of an executor wait for it when they have nothing to do.
    pub(super) is_work: bool,
}

impl Object {
    /// `None`: it is no lock of Java's.
    pub(super) fn of(lock: Identity, names: &Names) -> Option<Self> {
        let is_one = (SLEEP..=PASSING).contains(&lock.class);
        is_one.then(|| Self {
            kind: lock.class,
            is_seen: [NOTICE, MONITOR, LASTING].contains(&lock.class),
            class: names.javas.class(lock.tgid, lock.object),
            is_work: lock.class == LASTING && names.javas.is_work(lock.tgid, lock.address),
        })
    }

    /// Looks whether the stack of a thread that is said to sleep, root first, does not say otherwise: native code waits for a time, too.
    pub(super) fn fits(&self, frames: &[Frame]) -> bool {
        let naps = |name: &str| NAPS.iter().any(|nap| name.starts_with(nap));
        self.kind != SLEEP || frames.is_empty() || frames.iter().any(|frame| naps(&frame.name))
    }

    /// Functions that stand for the object in rules, leaf first: where monitors are waited for, and its class.
    pub(super) fn calls(&self) -> impl Iterator<Item = Call<'_>> {
        let function = match self.kind {
            SLEEP => Some(SLEEPS),
            NOTICE => Some(NOTIFIED),
            MONITOR => Some(ENTERED),
            _ => None,
        };
        // Any object may be a monitor.
        let class = self.class.as_deref().filter(|_| self.kind != MONITOR);
        let class = class.map(|class| (class, Some(CLASSES)));
        function.into_iter().chain(class)
    }

    /// The class as programs write it: `ReentrantLock` of the library's own, for which its inner classes work.
    pub(super) fn name(&self) -> &str {
        if self.kind == SLEEP {
            return "Thread.sleep";
        }
        let class = self.class.as_deref().unwrap_or("object");
        let Some(own) = class.strip_prefix("java.util.concurrent.") else {
            return class;
        };
        let own = own.strip_prefix("locks.").unwrap_or(own);
        match own.split_once('$') {
            Some((_, condition @ "ConditionObject")) => condition,
            Some((outer, _)) => outer,
            None => own,
        }
    }
}

/// The function of the program that waits, if it has a name; `frames` are root first.
pub(super) fn caller(frames: &[Frame]) -> Option<&str> {
    let is_machine = |call: &Call<'_>| {
        let file = call.1.and_then(|file| file.rsplit('/').next());
        file.is_some_and(|file| {
            file == LIBRARY || file.starts_with("libc.so") || file.starts_with("libpthread")
        })
    };
    let mut javas = calls(frames).skip_while(is_machine).map(|(name, _)| name);
    let is_program = |name: &&str| {
        let is_named =
            name.contains('.') && !name.contains("+0x") && !name.starts_with(INTERPRETER);
        is_named && !PACKAGES.iter().any(|package| name.contains(package))
    };
    javas.find(is_program)
}
