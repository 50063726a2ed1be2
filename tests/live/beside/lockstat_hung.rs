//! lockstat on threads that hang on a kernel lock throughout.

use crate::prelude::*;

const INODE: &str = include_str!("../../workloads/locks/inode.c");

/// The program, in whose directory an inode is, threads that hang behind that, and who they are. In this order: should a test fail, the
/// threads have to go before the directory can.
pub(crate) fn behind_an_inode() -> (Program, Workload, Value) {
    let program = Program::c("inode", INODE, "");
    let mut workload = program.start([program.dir().join("file")]);
    workload.go();
    let truth = workload.results().remove(0);
    (program, workload, truth)
}

/// Where the kernel says for what its hung tasks wait, and of rwsems' readers and writers.
#[test]
fn waits_that_neither_begin_nor_end_while_it_looks_are_counted() {
    let _machine = Machine::beside();
    let (_program, workload, truth) = behind_an_inode();
    for window in ["0.5", "-i 0.2 0.5"] {
        let args = format!("-K -j -p {} {window}", workload.pid());
        for report in Tool::run("lockstat", args).ok().reports() {
            let lock = only(&report, "locks");
            assert_eq!((&lock["class"], number(lock, "open")), (&"rwsem".into(), 2));
            let expected = 2 * number(&report, "duration_ns");
            assert_eq!(number(lock, "total_ns"), expected, "{lock}");
            let holder = only(lock, "holders");
            assert_eq!(holder["tid"], truth["holder"]);
            assert_eq!(number(holder, "caused_ns"), expected);
        }
    }
    workload.finish();
}
