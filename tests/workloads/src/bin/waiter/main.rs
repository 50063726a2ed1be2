//! One thread per kind of wait, each timing every wait itself.

mod locks;
mod measure;
mod memory_and_disk;
mod partners;
mod queues;
mod timers;

use std::path::{Path, PathBuf};

use usekit_workloads::flags::Flags;
use usekit_workloads::stage::Stage;

use crate::measure::Plan;

const USAGE: &str =
    "waiter [--waits N] [--disk-waits N] [--millis D] [--kinds KIND,KIND…] [--dir DIR]
kinds: sleep mutex pmutex pipe poll epoll socket wait file-lock semaphore msg-queue eventfd inotify,
and in DIR, on a real disk: pagefault direct fsync";
const KINDS: [&str; 13] = [
    "sleep",
    "mutex",
    "pmutex",
    "pipe",
    "poll",
    "epoll",
    "socket",
    "wait",
    "file-lock",
    "semaphore",
    "msg-queue",
    "eventfd",
    "inotify",
];
const DISK_KINDS: [&str; 3] = ["pagefault", "direct", "fsync"];

fn main() {
    let flags = Flags::of_program(USAGE);
    let dir = flags.last("--dir").map(PathBuf::from);
    let disk_kinds: &[&str] = if dir.is_some() { &DISK_KINDS } else { &[] };
    let available: Vec<&str> = KINDS.iter().chain(disk_kinds).copied().collect();
    let chosen = flags
        .last("--kinds")
        .map(|list| list.to_string_lossy().into_owned());
    let chosen: Vec<&str> = chosen
        .as_deref()
        .map_or(available.clone(), |list| list.split(',').collect());
    if let Some(kind) = chosen.iter().find(|kind| !available.contains(kind)) {
        flags.reject(&format!("no kind {kind:?}, or it needs --dir"));
    }

    let waits = flags.number("--waits").unwrap_or(23);
    let disk_waits = flags.number("--disk-waits").unwrap_or(waits);
    let millis: u64 = flags.number("--millis").unwrap_or(20);
    let plan = |kind: &'static str| {
        // Each kind its own length, so that a test sees two kinds that were swapped.
        let nth = KINDS.iter().position(|&k| k == kind).unwrap_or(0) as u64;
        let waits = if DISK_KINDS.contains(&kind) {
            disk_waits
        } else {
            waits
        };
        Plan {
            kind,
            waits,
            period_ns: (millis + nth) * 1_000_000,
            progress: Box::leak(Box::default()),
        }
    };
    queues::leave_nothing_behind();
    // Children are forked while the process still has one thread.
    let children = chosen
        .contains(&"wait")
        .then(|| partners::fork_children(waits));

    let mut stage = Stage::new();
    let dir = dir.unwrap_or_default();
    for kind in available
        .iter()
        .copied()
        .filter(|kind| chosen.contains(kind))
    {
        add(kind, &mut stage, plan(kind), &dir);
    }
    if let Some(children) = children {
        partners::wait(&mut stage, plan("wait"), children);
    }
    stage.run()
}

/// Adds the threads of a kind of waits; those of children are added apart.
fn add(kind: &str, stage: &mut Stage, plan: Plan, dir: &Path) {
    match kind {
        "sleep" => timers::sleep(stage, plan),
        "poll" => timers::poll(stage, plan),
        "epoll" => timers::epoll(stage, plan),
        "mutex" => locks::std_mutex(stage, plan),
        "pmutex" => locks::pthread_mutex(stage, plan),
        "pipe" => partners::pipe(stage, plan),
        "socket" => partners::socket(stage, plan),
        "file-lock" => queues::file_lock(stage, plan),
        "semaphore" => queues::semaphore(stage, plan),
        "msg-queue" => queues::message_queue(stage, plan),
        "eventfd" => queues::eventfd(stage, plan),
        "inotify" => queues::inotify(stage, plan),
        "pagefault" => memory_and_disk::pagefault(stage, plan, dir),
        "direct" => memory_and_disk::direct(stage, plan, dir),
        "fsync" => memory_and_disk::fsync(stage, plan, dir),
        _ => {}
    }
}
