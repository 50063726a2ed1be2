//! lockstat on threads that hang on a kernel lock throughout.

use serde_json::Value;

use crate::kernel::beside;
use crate::lockstat_kernel::locks;
use crate::lockstat_now_kernel::behind_an_inode;
use crate::tool::Tool;
use crate::workload::number;

/// Where the kernel says for what its hung tasks wait, and of rwsems' readers and writers.
#[test]
fn waits_that_neither_begin_nor_end_while_it_looks_are_counted() {
    let Some(_machine) = beside() else {
        return;
    };
    let (workload, truth, _dir) = behind_an_inode();
    let pid = workload.pid().to_string();
    for window in [&["0.5"][..], &["-i", "0.2", "0.5"]] {
        let output =
            Tool::start("lockstat", &[&["-K", "-j", "-p", &pid], window].concat()).finish();
        assert_eq!(output.code, 0, "{}", output.stderr);
        for line in output.stdout.lines() {
            let report: Value = serde_json::from_str(line).expect("JSON");
            let [lock] = locks(&report) else {
                panic!("one lock: {report}");
            };
            assert_eq!((&lock["class"], number(lock, "open")), (&"rwsem".into(), 2));
            let expected = 2 * number(&report, "duration_ns");
            assert_eq!(number(lock, "total_ns"), expected, "{lock}");
            let [holder] = &lock["holders"].as_array().expect("a list")[..] else {
                panic!("one holder: {lock}");
            };
            assert_eq!(holder["tid"], truth["holder"]);
            assert_eq!(number(holder, "caused_ns"), expected);
        }
    }
    workload.finish();
}
