//! `lockstat --now` on locks of the kernel that are made to stand still.

use std::fs;
use std::process::Command;

use crate::beside::lockstat_hung::behind_an_inode;
use crate::beside::lockstat_now::{now, told};
use crate::c_program::run;
use crate::prelude::*;

#[test]
fn a_kernel_lock_that_stands_still_names_its_owner() {
    let _machine = Machine::alone();
    let (_program, workload, truth) = behind_an_inode();
    let report = now(workload.pid());
    let waits = list(&report, "waits");
    assert_eq!(waits.len(), 2, "{report}");
    for wait in waits {
        assert_eq!(wait["class"], "kernel rwsem (write)", "{wait}");
        assert_eq!(wait["holder"]["tid"], truth["holder"]);
        assert_eq!(wait["holder"]["kind"], "thread");
        let state = text(wait, "holder.state");
        assert!(state.contains("handle_userfault"), "{state}");
        assert!(ids(&truth, "waiters").contains(&number(wait, "tid")));
    }
    let text = told(workload.pid());
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
    let _machine = Machine::alone();
    let program = Program::c("frozen", FROZEN, "");
    let [image, mount] = ["image", "mount"].map(|name| program.dir().join(name));
    fs::create_dir(&mount).expect("a directory");
    let file = fs::File::create(&image).expect("a file");
    file.set_len(32 << 20).expect("a sparse file");
    run(Command::new("mkfs.ext4").arg("-q").arg(&image));
    run(Command::new("mount")
        .args(["-o", "loop"])
        .args([&image, &mount]));
    let mounted = Mounted(mount.clone());
    let mut workload = program.start([mount]);
    workload.go();
    let truth = &workload.results()[0];
    let report = now(workload.pid());
    let wait = only(&report, "waits");
    assert_eq!(wait["tid"], truth["waiter"], "{report}");
    assert_eq!(wait["holder"]["tid"], truth["holder"]);
    assert_eq!(wait["holder"]["kind"], "thread");
    assert_eq!(
        wait["lock"],
        format!("mmap_lock of process {}", workload.pid())
    );
    let unread = &report["losses"]["memory_locked"];
    assert_eq!(*unread, 1, "it says what it did not read");
    workload.finish();
    drop(mounted);
}
