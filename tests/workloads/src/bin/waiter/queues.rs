//! Waits for locks of files, System V's semaphores and message queues, and what the kernel tells by a descriptor.

use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

use usekit_workloads::stage::Stage;

use crate::measure::Plan;

/// A file twice, so that one holds its lock against the other.
fn file_twice() -> [File; 2] {
    // SAFETY: the name is a string, and the new descriptor nobody else's.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"locked".as_ptr(), 0)) };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = File::open(path).expect("a file in memory can be opened again");
    [file, again]
}

fn lock(file: &File, operation: libc::c_int) {
    // SAFETY: takes a descriptor that is open.
    works(unsafe { libc::flock(file.as_raw_fd(), operation) });
}

pub(crate) fn file_lock(stage: &mut Stage, plan: Plan) {
    let files = (0..plan.waits).map(|_| file_twice());
    let (held, awaited): (Vec<_>, Vec<_>) = files.map(|[one, two]| (one, two)).unzip();
    for file in &held {
        lock(file, libc::LOCK_EX);
    }
    plan.partner(stage, move || {
        move |i| lock(&held[i as usize], libc::LOCK_UN)
    });
    plan.waiter(stage, move || {
        move |i| lock(&awaited[i as usize], libc::LOCK_EX)
    });
}

/// Gives the process semaphores and queues of its own, which end with it, where it may. It is called before there are threads.
pub(crate) fn leave_nothing_behind() {
    // SAFETY: takes a number. Without privileges it changes nothing, and what ends in order removes its own.
    unsafe { libc::unshare(libc::CLONE_NEWIPC) };
}

fn works(result: libc::c_int) -> libc::c_int {
    assert!(result >= 0, "{}", Error::last_os_error());
    result
}

pub(crate) fn semaphore(stage: &mut Stage, plan: Plan) {
    // SAFETY: takes numbers.
    let id = works(unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) });
    let add = move |change| {
        let mut operation = libc::sembuf {
            sem_num: 0,
            sem_op: change,
            sem_flg: 0,
        };
        // SAFETY: one operation.
        works(unsafe { libc::semop(id, &raw mut operation, 1) });
    };
    plan.partner(stage, move || move |_| add(1));
    plan.waiter(stage, move || {
        move |i| {
            add(-1);
            if i + 1 == plan.waits {
                // SAFETY: takes numbers. Nobody uses it any more.
                works(unsafe { libc::semctl(id, 0, libc::IPC_RMID) });
            }
        }
    });
}

pub(crate) fn message_queue(stage: &mut Stage, plan: Plan) {
    /// A type above 0, and no text.
    static MESSAGE: libc::c_long = 1;
    // SAFETY: takes numbers.
    let id = works(unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) });
    plan.partner(stage, move || {
        move |_| {
            // SAFETY: a message without text is its type.
            works(unsafe { libc::msgsnd(id, (&raw const MESSAGE).cast(), 0, 0) });
        }
    });
    plan.waiter(stage, move || {
        move |i| {
            let mut message = 0_i64;
            // SAFETY: there is room for a message without text.
            let length = unsafe { libc::msgrcv(id, (&raw mut message).cast(), 0, 0, 0) };
            assert_eq!(
                (length, message),
                (0, MESSAGE),
                "{}",
                Error::last_os_error()
            );
            if i + 1 == plan.waits {
                // SAFETY: nobody uses it any more.
                works(unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) });
            }
        }
    });
}

/// A new descriptor, or why there is none.
fn file(descriptor: libc::c_int) -> File {
    // SAFETY: it is nobody else's.
    unsafe { File::from_raw_fd(works(descriptor)) }
}

pub(crate) fn eventfd(stage: &mut Stage, plan: Plan) {
    // SAFETY: takes numbers.
    let mut reader = file(unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE) });
    let mut writer = reader.try_clone().expect("a descriptor can be had");
    plan.partner(stage, move || {
        move |_| writer.write_all(&1_u64.to_ne_bytes()).expect("an event")
    });
    plan.waiter(stage, move || {
        move |_| reader.read_exact(&mut [0; 8]).expect("an event")
    });
}

/// A file in memory, opened again by its name, whose changes `reader` is told: a memfd's own descriptor notifies nobody.
fn watched_file(reader: &File) -> File {
    let [kept, _] = file_twice();
    let path = format!("/proc/self/fd/{}", kept.as_raw_fd());
    let open = File::options().write(true).open(&path);
    let path = path + "\0";
    // SAFETY: the path ends with a zero.
    works(unsafe {
        libc::inotify_add_watch(reader.as_raw_fd(), path.as_ptr().cast(), libc::IN_MODIFY)
    });
    open.expect("a file in memory can be opened again")
}

/// Two files take turns. The kernel makes one event of two that are alike and follow each other (`inotify_merge`), so with one file a
/// reader that comes late would wait for an event too many.
pub(crate) fn inotify(stage: &mut Stage, plan: Plan) {
    // SAFETY: takes a number.
    let mut reader = file(unsafe { libc::inotify_init1(0) });
    let mut files = [(); 2].map(|()| watched_file(&reader));
    plan.partner(stage, move || {
        move |i| {
            files[i as usize % 2]
                .write_all(b"x")
                .expect("room in memory")
        }
    });
    plan.waiter(stage, move || {
        // One event, and without a name.
        move |_| {
            reader
                .read_exact(&mut [0; size_of::<libc::inotify_event>()])
                .expect("an event")
        }
    });
}
