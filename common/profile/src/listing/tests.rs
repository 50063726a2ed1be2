use super::*;
use crate::frame::FrameKind;
use crate::model::{Task, ValueType};

fn headings(tasks: &[(u32, u32)]) -> Vec<String> {
    let samples = tasks.iter().map(|&(tgid, tid)| Sample {
        task: Task::new("cc1", tgid, tid),
        count: 1,
        values: vec![1],
        ..Sample::default()
    });
    let profile = Profile {
        tool: "profile",
        values: vec![ValueType::new("samples", "count")],
        samples: samples.collect(),
        duration_ns: 1,
    };
    let options = ListOptions {
        top: 10,
        idle: Idle::Show,
        is_time: false,
        split: false,
        whole: false,
        color: false,
    };
    let mut text = Vec::new();
    write(&profile, &options, &mut text).expect("a vector");
    let text = String::from_utf8(text).expect("text");
    let headings = text.lines().filter(|line| line.contains("cc1"));
    headings.map(str::to_owned).collect()
}

#[test]
fn processes_of_one_name_stand_together() {
    for (tasks, whose) in [
        (&[(7, 7)][..], "(pid 7)"),
        (&[(7, 8)], "(pid 7, tid 8)"),
        (&[(7, 7), (7, 8)], "(pid 7, 2 threads)"),
        (&[(7, 7), (9, 9)], "(2 processes)"),
        (&[(7, 7), (7, 8), (9, 9)], "(2 processes, 3 threads)"),
    ] {
        let found = headings(tasks);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with(&format!("cc1 {whose}")), "{found:?}");
    }
}

#[test]
fn time_in_the_run_queue_is_told_apart() {
    let sample = |reason, idle, values: [u64; 2]| Sample {
        task: Task::new("fio", 7, 7),
        reason: Some(reason),
        user: [].into(),
        user_end: None,
        kernel: [].into(),
        waker: None,
        idle,
        count: 1,
        values: values.to_vec(),
    };
    let mut samples = vec![
        sample("block-io", false, [16, 84]),
        sample("preempted", false, [0, 60]),
        sample("epoll", true, [900, 40]),
        sample("preempted", false, [0, 40]),
    ];
    samples[3].kernel = [Frame {
        name: "ret_from_fork_asm".into(),
        kind: FrameKind::Kernel,
        inlined: false,
        module: None,
        address: 0,
        line: None,
    }]
    .into();
    let profile = Profile {
        tool: "offcputime",
        values: ["blocked", "runqueue"]
            .map(|name| ValueType::new(name, "ns"))
            .to_vec(),
        samples,
        duration_ns: 1,
    };
    let options = ListOptions {
        top: 10,
        idle: Idle::Fold,
        is_time: true,
        split: false,
        whole: false,
        color: false,
    };
    let mut text = Vec::new();
    write(&profile, &options, &mut text).expect("a vector");
    let text = String::from_utf8(text).expect("text");
    for line in [
        "100 ns  41.7%  fio (pid 7)  block-io, 84% for a CPU  1 wait",
        "60 ns  25.0%  fio (pid 7)  preempted  1 wait",
        "40 ns  16.7%  fio (pid 7)  first wait for a CPU  1 wait",
        "[idle] 900 ns in 1 thread with nothing to do, then 40 ns, 17%, for a CPU",
    ] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}
