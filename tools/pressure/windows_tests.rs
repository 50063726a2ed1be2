//! What windows show, added up.

use super::*;

fn task(tid: u32, waited_ns: u64, read_bytes: u64) -> TaskStock {
    TaskStock {
        tgid: 1,
        tid,
        comm: "x".into(),
        process_comm: "x".into(),
        cgroup_id: 1,
        is_kernel_thread: false,
        has_exited: false,
        lost_ns: [waited_ns, 0, 0],
        caused_ns: 0,
        ios: 1,
        read_bytes,
        written_bytes: 0,
        faults: 0,
        open: 1,
        open_ns: 5,
        many: None,
    }
}

fn window(open_ns: u64, stratum_ns: u64) -> Window {
    Window {
        start_ns: 1_000,
        end_ns: 1_000 + open_ns,
        stratum_ns,
    }
}

#[test]
fn what_was_seen_is_weighted_and_what_was_counted_is_not() {
    let mut sums = Sums::default();
    sums.add(
        vec![task(1, 10, 4096), task(2, 4, 0)],
        &window(10, 100),
        &Filter::default(),
    );
    sums.add(vec![task(1, 20, 4096)], &window(10, 50), &Filter::default());
    sums.add_counted(
        vec![TaskStock {
            ios: 0,
            ..task(1, 0, 100)
        }],
        &Filter::default(),
    );
    let Finished {
        mut tasks,
        estimates,
        ..
    } = sums.finish(150);
    tasks.sort_by_key(|task| task.tid);
    assert_eq!(
        (tasks[0].lost_ns[0], tasks[0].ios, tasks[0].read_bytes),
        (200, 15, 8292)
    );
    assert_eq!((tasks[1].lost_ns[0], tasks[1].ios), (40, 10));
    // What was open then is not now.
    assert_eq!((tasks[0].open, tasks[1].open), (1, 0));
    let lost = estimates.expect("not all was looked at").lost;
    assert_eq!(lost[0].total, 240.0);
}

#[test]
fn losses_that_no_window_saw_are_not_known() {
    let mut sums = Sums::default();
    for _ in 0..20 {
        sums.add(vec![task(1, 10, 0)], &window(2, 100), &Filter::default());
    }
    let estimates = sums.finish(2_000).estimates.expect("not all was looked at");
    let json = estimates.to_json();
    assert!(json["cpu_ns"]["margin_95"].is_number(), "{json}");
    assert!(json["io_ns"]["margin_95"].is_null(), "{json}");
}

#[test]
fn a_whole_interval_in_one_window_is_exact() {
    let mut sums = Sums::default();
    sums.add(vec![task(1, 10, 0)], &window(100, 100), &Filter::default());
    let Finished {
        tasks, estimates, ..
    } = sums.finish(130);
    assert_eq!(tasks[0].lost_ns[0], 10);
    assert!(estimates.is_none());
}
