//! `lockstat --now` on locks of the kernel that are made to stand still.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::c_program::compile;
use crate::kernel::alone;
use crate::lockstat_now::{list, now, text};
use crate::workload::{Workload, number};

const INODE: &str = include_str!("../workloads/locks/inode.c");

/// Threads that hang behind an inode, who they are, and its directory.
pub(crate) fn behind_an_inode() -> (Workload, Value, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "inode", INODE, &[]);
    let mut command = Command::new(program);
    command.arg(dir.path().join("file"));
    let (mut workload, _) = Workload::spawn("inode", command);
    workload.go();
    let truth = workload.results().remove(0);
    (workload, truth, dir)
}

#[test]
fn a_kernel_lock_that_stands_still_names_its_owner() {
    let Some(_machine) = alone() else {
        return;
    };
    let (workload, truth, _dir) = behind_an_inode();
    let report = now(workload.pid());
    let waits = report["waits"].as_array().expect("waits");
    assert_eq!(waits.len(), 2, "{report}");
    for wait in waits {
        assert_eq!(wait["class"], "kernel rwsem (write)", "{wait}");
        assert_eq!(wait["holder"]["tid"], truth["holder"]);
        assert_eq!(wait["holder"]["kind"], "thread");
        let state = wait["holder"]["state"].as_str().expect("a state");
        assert!(state.contains("handle_userfault"), "{state}");
        assert!(list(&truth["waiters"]).contains(&number(wait, "tid")));
    }
    let text = text(workload.pid());
    assert!(text.contains("\n2 threads behind inode (PID "), "{text}");
    workload.finish();
}

const FROZEN: &str = include_str!("../workloads/locks/frozen.c");

/// A file system of its own, thawed and unmounted whatever happens.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Thawed already after an orderly end.
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).output();
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_process_with_its_mmap_lock_held_does_not_hang_the_tool() {
    let Some(_machine) = alone() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "frozen", FROZEN, &[]);
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    std::fs::create_dir(&mount).expect("a directory");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(32 << 20).expect("a sparse file");
    crate::c_program::run(Command::new("mkfs.ext4").arg("-q").arg(&image));
    crate::c_program::run(
        Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &mount]),
    );
    let mounted = Mounted(mount.clone());
    let mut command = Command::new(program);
    command.arg(&mount);
    let (mut workload, _) = Workload::spawn("frozen", command);
    workload.go();
    let truth = &workload.results()[0];
    let report = now(workload.pid());
    let waits = report["waits"].as_array().expect("waits");
    assert_eq!(waits.len(), 1, "{report}");
    assert_eq!(waits[0]["tid"], truth["waiter"], "{report}");
    assert_eq!(waits[0]["holder"]["tid"], truth["holder"]);
    assert_eq!(waits[0]["holder"]["kind"], "thread");
    let name = format!("mmap_lock of process {}", workload.pid());
    assert_eq!(waits[0]["lock"], name);
    assert_eq!(
        report["losses"]["memory_locked"], 1,
        "it says what it did not read"
    );
    workload.finish();
    drop(mounted);
}
