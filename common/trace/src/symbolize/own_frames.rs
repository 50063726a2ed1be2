//! Frames that are there only because somebody is tracing, and frames of interrupts.

use profile::frame::Frame;

/// How a kernel stack was taken, hence whose frames lie at its leaf end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a tracepoint or uprobe: BPF's dispatcher.
    Tracepoint,
    /// In a clock's or counter's interrupt: the interrupt too.
    Sample,
}

/// Names that start like this are BPF's, the tracepoint's or the uprobe's own.
const TRACING: [&str; 24] = [
    "bpf_prog_",
    "bpf_trace_run",
    "bpf_trampoline_",
    "bpf_get_stack",
    "bpf_get_task_stack",
    "__bpf_get_stack",
    "__bpf_get_task_stack",
    "get_perf_callchain",
    "perf_callchain",
    "__bpf_trace_",
    "__traceiter_",
    "trace_call_bpf",
    "perf_trace_",
    "perf_call_bpf_enter",
    "perf_syscall_enter",
    "perf_syscall_exit",
    "syscall_trace_enter",
    "uprobe_perf_func",
    "__uprobe_perf_func",
    "uprobe_dispatcher",
    "handler_chain",
    "handle_swbp",
    "uprobe_notify_resume",
    "uprobe_prog_run",
];

/// Names of the sampling interrupt, from its handler outwards.
const SAMPLING: [&str; 14] = [
    "bpf_overflow_handler",
    "__perf_event_overflow",
    "perf_event_overflow",
    "perf_swevent_",
    "perf_event_nmi_handler",
    "nmi_handle",
    "default_do_nmi",
    "exc_nmi",
    "asm_exc_nmi",
    "end_repeat_nmi",
    "__hrtimer_run_queues",
    "hrtimer_interrupt",
    "__sysvec_apic_timer_interrupt",
    "local_apic_timer_interrupt",
];

/// Deepest frame, from the leaf, at which the tracer's own are looked for.
const REACH: usize = 20;

fn starts_with_any(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Cuts the tracer's own frames off the leaf end of a stack (root → leaf).
pub(super) fn strip(frames: &mut Vec<Frame>, origin: Origin) {
    let own = |frame: &Frame| match origin {
        Origin::Tracepoint => starts_with_any(&frame.name, &TRACING),
        Origin::Sample => {
            starts_with_any(&frame.name, &TRACING) || starts_with_any(&frame.name, &SAMPLING)
        }
    };
    let reach = frames.len().saturating_sub(REACH);
    let Some(first) = frames[reach..].iter().position(own) else {
        return;
    };
    let mut keep = reach + first;
    if origin == Origin::Sample {
        // The interrupt's entry code lies rootward of its handler.
        while keep > 0 && is_interrupt_entry(&frames[keep - 1].name) {
            keep -= 1;
        }
    }
    frames.truncate(keep);
}

fn is_interrupt_entry(name: &str) -> bool {
    starts_with_any(
        name,
        &[
            "asm_sysvec_",
            "sysvec_",
            "__sysvec_",
            "asm_common_interrupt",
            "common_interrupt",
        ],
    ) || name == "asm_exc_nmi"
        || name == "ret_from_intr"
}

/// The part of a kernel stack (root → leaf) that ran in an interrupt; `None` when none did.
///
/// What lies rootward of it is whatever happened to be interrupted.
pub fn interrupt_part(kernel: &[Frame]) -> Option<&[Frame]> {
    let entry = kernel
        .iter()
        .rposition(|frame| is_interrupt_entry(&frame.name))?;
    // asm entry and C entry are neighbours: keep both.
    let first = kernel[..entry]
        .iter()
        .rposition(|frame| !is_interrupt_entry(&frame.name))
        .map_or(0, |at| at + 1);
    Some(&kernel[first..])
}

#[cfg(test)]
mod tests {
    use profile::frame::FrameKind;

    use super::*;

    fn stack(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| Frame {
            name: (*name).into(),
            kind: FrameKind::Kernel,
            inlined: false,
            module: None,
            address: 0,
            line: None,
        };
        names.iter().map(frame).collect()
    }

    fn stripped(names: &[&str], origin: Origin) -> Vec<String> {
        let mut frames = stack(names);
        strip(&mut frames, origin);
        frames.iter().map(|frame| frame.name.to_string()).collect()
    }

    #[test]
    fn a_tracepoints_dispatcher_goes_and_the_kernel_stays() {
        let names = [
            "do_syscall_64",
            "schedule",
            "__schedule",
            "__traceiter_sched_exit_tp",
            "bpf_trace_run1",
            "bpf_prog_1f_sched_exit",
        ];
        assert_eq!(
            stripped(&names, Origin::Tracepoint),
            ["do_syscall_64", "schedule", "__schedule"]
        );
        assert_eq!(stripped(&names[..3], Origin::Tracepoint), names[..3]);
    }

    #[test]
    fn a_samples_interrupt_goes_but_not_the_one_it_interrupted() {
        let names = [
            "asm_common_interrupt",
            "common_interrupt",
            "handle_irq",
            "asm_sysvec_apic_timer_interrupt",
            "sysvec_apic_timer_interrupt",
            "__sysvec_apic_timer_interrupt",
            "hrtimer_interrupt",
            "__hrtimer_run_queues",
            "perf_swevent_hrtimer",
            "__perf_event_overflow",
            "bpf_overflow_handler",
        ];
        assert_eq!(stripped(&names, Origin::Sample), names[..3]);
    }

    #[test]
    fn a_wakeup_from_an_interrupt_is_told_from_the_interrupted_task() {
        let names = [
            "do_syscall_64",
            "vfs_write",
            "asm_sysvec_apic_timer_interrupt",
            "sysvec_apic_timer_interrupt",
            "hrtimer_wakeup",
        ];
        let frames = stack(&names);
        assert_eq!(interrupt_part(&frames).unwrap().len(), 3);
        assert!(interrupt_part(&frames[..2]).is_none());
    }
}
