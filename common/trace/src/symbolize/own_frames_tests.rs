//! Stacks as kernels give them, leaf first as they are read, and what is left of them.

use profile::frame::{Frame, FrameKind};

use super::own_frames::{Origin, interrupt_part, strip};

fn stack(leaf_first: &[&str]) -> Vec<Frame> {
    let frame = |name: &&str| Frame {
        name: (*name).into(),
        kind: FrameKind::Kernel,
        inlined: false,
        module: None,
        address: 0,
        line: None,
    };
    leaf_first.iter().rev().map(frame).collect()
}

fn leaf_first(frames: &[Frame]) -> Vec<&str> {
    frames.iter().rev().map(|frame| &*frame.name).collect()
}

#[track_caller]
fn assert_stripped(origin: Origin, own: &[&str], kept: &[&str]) {
    let mut frames = stack(&[own, kept].concat());
    strip(&mut frames, origin);
    assert_eq!(leaf_first(&frames), kept);
}

const SWITCH: [&str; 4] = ["__schedule", "schedule", "do_nanosleep", "do_syscall_64"];
const SAMPLER: [&str; 13] = [
    "bpf_get_stack_pe",
    "bpf_prog_b81ff5a0dbf4f4b1_sample",
    "bpf_overflow_handler",
    "__perf_event_overflow",
    "perf_swevent_hrtimer",
    "__hrtimer_run_queues",
    "hrtimer_interrupt",
    "local_apic_timer_interrupt",
    "__sysvec_apic_timer_interrupt",
    "instr_sysvec_apic_timer_interrupt",
    "sysvec_apic_timer_interrupt",
    "__irq_unlisted",
    "asm_sysvec_apic_timer_interrupt",
];

#[test]
fn a_stack_of_another_task_is_left_alone() {
    assert_stripped(Origin::Tracepoint, &[], &SWITCH);
    assert_stripped(Origin::Sample, &[], &SWITCH);
    assert_stripped(Origin::Tracepoint, &[], &[]);
}

#[test]
fn tracepoint_frames_go_however_many_there_are() {
    let leaf = "bpf_prog_6deef7357e7b4530_switch";
    assert_stripped(Origin::Tracepoint, &[leaf], &SWITCH);
    assert_stripped(
        Origin::Tracepoint,
        &[leaf, "bpf_trace_run4", "__traceiter_sched_switch"],
        &SWITCH,
    );
    assert_stripped(
        Origin::Tracepoint,
        &[
            "get_perf_callchain",
            "__bpf_get_stack",
            "bpf_get_stack_raw_tp",
            leaf,
            "bpf_trace_run4",
            "__bpf_trace_sched_switch",
        ],
        &SWITCH,
    );
    assert_stripped(
        Origin::Tracepoint,
        &[leaf, "trace_call_bpf", "perf_call_bpf_enter.isra.0"],
        &["syscall_trace_enter", "do_syscall_64"],
    );
    assert_stripped(
        Origin::Tracepoint,
        &[leaf, "bpf_trampoline_6442509513"],
        &["vfs_read", "ksys_read"],
    );
}

#[test]
fn what_follows_the_end_of_the_chain_stays() {
    let leaf = "bpf_prog_6deef7357e7b4530_waking";
    // A wakeup out of someone else's BPF program.
    assert_stripped(
        Origin::Tracepoint,
        &[leaf, "bpf_trace_run1", "__traceiter_sched_waking"],
        &["try_to_wake_up", "bpf_prog_0123456789abcdef_other"],
    );
    assert_stripped(
        Origin::Tracepoint,
        &[leaf, "bpf_trace_run1"],
        &[
            "try_to_wake_up",
            "b",
            "c",
            "bpf_prog_0123456789abcdef_other",
        ],
    );
}

#[test]
fn probe_frames_go() {
    assert_stripped(
        Origin::Tracepoint,
        &[
            "bpf_prog_6deef7357e7b4530_probe",
            "trace_call_bpf",
            "kprobe_perf_func",
            "kprobe_ftrace_handler",
            "ftrace_trampoline",
        ],
        &["vfs_read", "ksys_read", "do_syscall_64"],
    );
    assert_stripped(
        Origin::Tracepoint,
        &[
            "bpf_prog_6deef7357e7b4530_probe",
            "__uprobe_perf_func",
            "uprobe_perf_func",
            "uprobe_dispatcher",
            "handler_chain",
            "handle_swbp",
            "uprobe_notify_resume",
            "exit_to_user_mode_loop",
            "irqentry_exit_to_user_mode",
            "exc_int3",
            "asm_exc_int3",
        ],
        &[],
    );
}

#[test]
fn the_sampling_interrupt_goes_and_the_sampled_one_stays() {
    assert_stripped(Origin::Sample, &SAMPLER, &SWITCH);
    let interrupted = [
        "tcp_v4_rcv",
        "net_rx_action",
        "handle_softirqs",
        "common_interrupt",
        "asm_common_interrupt",
        "cpuidle_enter",
    ];
    assert_stripped(Origin::Sample, &SAMPLER, &interrupted);
    let own_kind = [
        "sysvec_apic_timer_interrupt",
        "asm_sysvec_apic_timer_interrupt",
        "do_idle",
    ];
    assert_stripped(Origin::Sample, &SAMPLER, &own_kind);
    // Taken from the interrupted registers, a stack does not have the sampler in it.
    assert_stripped(Origin::Sample, &[], &own_kind);
    let program = [
        "bpf_prog_0123456789abcdef_other",
        "bpf_trace_run2",
        "vfs_read",
    ];
    assert_stripped(Origin::Sample, &[], &program);
    assert_stripped(Origin::Sample, &SAMPLER, &program);
    let timer = ["hrtimer_interrupt", "sysvec_apic_timer_interrupt"];
    assert_stripped(Origin::Sample, &[], &timer);
}

#[test]
fn the_counters_nmi_goes() {
    let own = [
        "bpf_prog_b81ff5a0dbf4f4b1_sample",
        "bpf_overflow_handler",
        "__perf_event_overflow",
        "amd_pmu_v2_handle_irq",
        "perf_event_nmi_handler",
        "nmi_handle",
        "default_do_nmi",
        "exc_nmi",
        "end_repeat_nmi",
    ];
    assert_stripped(Origin::Sample, &own, &["sysvec_reschedule_ipi", "idle"]);
}

#[test]
fn an_interrupt_is_cut_from_what_it_interrupted() {
    let frames = stack(&[
        "try_to_wake_up",
        "hrtimer_wakeup",
        "__hrtimer_run_queues",
        "hrtimer_interrupt",
        "__sysvec_apic_timer_interrupt",
        "sysvec_apic_timer_interrupt",
        "asm_sysvec_apic_timer_interrupt",
        "copy_user_generic",
        "vfs_read",
    ]);
    let part = interrupt_part(&frames).unwrap();
    assert_eq!(&*part[0].name, "asm_sysvec_apic_timer_interrupt");
    assert_eq!(part.len(), 7);
    let nested = stack(&[
        "try_to_wake_up",
        "exc_nmi",
        "asm_exc_nmi",
        "handle_softirqs",
        "common_interrupt",
        "asm_common_interrupt",
        "vfs_read",
    ]);
    let part = interrupt_part(&nested).unwrap();
    assert_eq!(
        leaf_first(part),
        ["try_to_wake_up", "exc_nmi", "asm_exc_nmi"]
    );
    let without_stub = stack(&["try_to_wake_up", "common_interrupt", "vfs_read"]);
    assert_eq!(interrupt_part(&without_stub).unwrap().len(), 2);
    assert!(interrupt_part(&stack(&SWITCH)).is_none());
    let fault = stack(&["try_to_wake_up", "exc_page_fault", "asm_exc_page_fault"]);
    assert!(interrupt_part(&fault).is_none());
    assert!(interrupt_part(&[]).is_none());
}
