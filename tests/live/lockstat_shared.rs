//! lockstat on locks that processes share, each of which may know threads by other numbers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::{alone, require_live};
use crate::lockstat_now::{STUCK, now, text};
use crate::tool::{Output, Tool};
use crate::workload::{Workload, number};

/// Two processes over a mutex, in a PID namespace each; the holder's number is such that it means the waiter there, or nobody.
const NUMBERS: [&str; 2] = ["1", "2"];

fn apart(dir: &Path, number: &str) -> Workload {
    let mut command = Command::new(compile(dir, "stuck", STUCK, &["-g"]));
    command.args(["apart", number]);
    Workload::spawn("stuck", command).0
}

fn report(output: &Output) -> Value {
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(output.stdout.lines().last().expect("a report")).expect("JSON")
}

#[test]
fn a_number_from_another_pid_namespace_makes_no_deadlock() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    for holder in NUMBERS {
        let mut workload = apart(dir.path(), holder);
        workload.go();
        let results = workload.results();
        let [truth] = &results[..] else {
            panic!("one waiter: {results:?}");
        };
        let pid = u32::try_from(number(truth, "tid")).expect("a number");
        let report = now(pid);
        assert_eq!(report["deadlocks"], serde_json::json!([]), "{report}");
        let [wait] = &report["waits"].as_array().expect("waits")[..] else {
            panic!("one wait: {report}");
        };
        assert_eq!(wait["tid"], truth["tid"]);
        assert_eq!(wait["class"], "mutex", "{report}");
        assert_eq!(wait["holder"]["kind"], "unrecorded", "{report}");
        let text = text(pid);
        assert!(!text.contains("DEADLOCK"), "{text}");
        assert!(text.contains("1 thread behind mutex"), "{text}");
        workload.finish();
    }
}

#[test]
fn who_holds_a_lock_across_pid_namespaces_is_known_by_releasing_it() {
    if !require_live() {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    for holder in NUMBERS {
        for is_released in [true, false] {
            let mut workload = apart(dir.path(), holder);
            let args = ["-U", "-j", "--comm", "stuck"];
            let tool = Tool::start("lockstat", &args);
            tool.wait_attached();
            workload.go();
            let waiter = number(&workload.results()[0], "tid");
            let output = if is_released {
                workload.finish();
                tool.interrupt();
                tool.finish()
            } else {
                tool.interrupt();
                let output = tool.finish();
                workload.finish();
                output
            };
            let report = report(&output);
            let [lock] = &report["locks"].as_array().expect("locks")[..] else {
                panic!("one lock: {report}");
            };
            let waiters = lock["waiters"].as_array().expect("waiters");
            assert_eq!(waiters.len(), 1, "{lock}");
            assert_eq!(number(&waiters[0], "tid"), waiter);
            let holders = lock["holders"].as_array().expect("holders");
            assert_eq!(holders.len(), usize::from(is_released), "{lock}");
            for holder in holders {
                assert_eq!(holder["known_as"], "waker", "{lock}");
                assert_ne!(number(holder, "tid"), waiter, "{lock}");
            }
        }
    }
}
