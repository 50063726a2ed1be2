//! Waits for a disk: page faults on a cold file, direct reads, and syncs.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use usekit_workloads::stage::Stage;

use crate::measure::Plan;

const PAGE: usize = 4096;

/// A file of `plan.waits` pages that are on disk and nowhere else.
fn cold_file(plan: Plan, dir: &Path) -> (PathBuf, File) {
    let path = dir.join(format!("waiter-{}-{}", plan.kind, std::process::id()));
    let fail = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let mut file = file.unwrap_or_else(|error| fail(error));
    let page = [0x5a; PAGE];
    let written = (0..plan.waits).try_for_each(|_| file.write_all(&page));
    written
        .and_then(|()| file.sync_all())
        .unwrap_or_else(|error| fail(error));
    // SAFETY: an open descriptor; length 0 means to the end.
    let rc = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(rc, 0, "the advice is valid for a file");
    (path, file)
}

fn remove(path: &Path) {
    // Only the name goes; what matters is that no test run leaves it behind.
    let _ = std::fs::remove_file(path);
}

fn bytes(plan: Plan) -> usize {
    usize::try_from(plan.waits).expect("a file that fits in memory") * PAGE
}

pub(crate) fn pagefault(stage: &mut Stage, plan: Plan, dir: &Path) {
    let (path, file) = cold_file(plan, dir);
    remove(&path);
    plan.waiter(stage, move || {
        // SAFETY: a fresh mapping of a file that nobody shortens, checked before use.
        let base = unsafe {
            let (length, fd) = (bytes(plan), file.as_raw_fd());
            let base = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED, "a small file can be mapped");
            // Without read-ahead each page is a wait of its own.
            libc::madvise(base, length, libc::MADV_RANDOM);
            base.cast::<u8>()
        };
        move |i| {
            // SAFETY: wait number `i` is below `waits`, the pages of the mapping.
            let byte = unsafe { base.add(i as usize * PAGE).read_volatile() };
            assert_eq!(byte, 0x5a, "the page came from the file");
        }
    });
}

#[repr(align(4096))]
struct AlignedPage([u8; PAGE]);

pub(crate) fn direct(stage: &mut Stage, plan: Plan, dir: &Path) {
    let (path, _) = cold_file(plan, dir);
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    remove(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: O_DIRECT: {error}", path.display()));
    plan.waiter(stage, move || {
        let mut page = Box::new(AlignedPage([0; PAGE]));
        move |i| {
            file.read_exact_at(&mut page.0, i * PAGE as u64)
                .expect("the page is there")
        }
    });
}

pub(crate) fn fsync(stage: &mut Stage, plan: Plan, dir: &Path) {
    let (path, file) = cold_file(plan, dir);
    remove(&path);
    plan.waiter(stage, move || {
        move |i| {
            file.write_all_at(&[0xa5; PAGE], i * PAGE as u64)
                .expect("the page is there");
            file.sync_data().expect("the disk takes it");
        }
    });
}
