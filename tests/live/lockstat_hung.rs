//! lockstat on threads that hang on a kernel lock throughout.

use crate::lockstat_now_kernel::behind_an_inode;
use crate::prelude::*;

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
