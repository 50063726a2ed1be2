//! Which kernel frames are the tracer's own doing, and which are an interrupt's.
//!
//! Told by name, never by count: how many there are differs by kernel, architecture and inlining.

use profile::frame::Frame;

/// How a kernel stack came to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// By a BPF program at a tracepoint or probe.
    Tracepoint,
    /// By a timer or counter interrupt.
    Sample,
}

/// Frames at the leaf among which the tracer's own are looked for.
const REGION: usize = 32;
/// Unlisted frames that may lie between two of the tracer's.
const GAP: usize = 2;

const TRACER: [&str; 16] = [
    "bpf_prog_",
    "bpf_trace_run",
    "bpf_trampoline_",
    "bpf_dispatcher_",
    "bpf_get_stack",
    "__bpf_get_stack",
    "bpf_get_task_stack",
    "__bpf_trace_",
    "__bpf_prog_",
    "__traceiter_",
    "trace_call_bpf",
    "perf_trace_",
    "perf_call_bpf_",
    "perf_syscall_",
    "__perf_tp_event",
    "perf_tp_event",
];

/// Leafward of these is a probe's program, rootward nothing but what the probe is in.
const LAST: [&str; 4] = [
    "bpf_trace_run",
    "bpf_trampoline_",
    "__bpf_trace_",
    "__traceiter_",
];

const PROBE: [&str; 20] = [
    "uprobe_",
    "uretprobe_",
    "__uprobe_",
    "handler_chain",
    "handle_swbp",
    "handle_trampoline",
    "handle_uretprobe",
    "kprobe_",
    "kretprobe_",
    "__kretprobe_",
    "aggr_pre_handler",
    "opt_pre_handler",
    "fprobe_",
    "ftrace_trampoline",
    "ftrace_ops_",
    "arch_ftrace_ops_",
    "exc_int3",
    "do_int3",
    "exc_debug_user",
    "asm_exc_int3",
];

/// A probe's only when a probe ran in them: a task is also preempted here.
const PROBE_RETURN: [&str; 2] = ["exit_to_user_mode", "irqentry_exit_to_user_mode"];

/// What a sampler has and sampled code has not, unlike BPF programs and timers, which may be what was sampled.
const OVERFLOW: [&str; 3] = [
    "bpf_overflow_handler",
    "perf_event_overflow",
    "__perf_event_overflow",
];

const SAMPLER: [&str; 33] = [
    "bpf_prog_",
    "bpf_get_stack",
    "__bpf_get_stack",
    "perf_swevent_",
    "perf_prepare_sample",
    "perf_event_nmi_handler",
    "amd_pmu_",
    "intel_pmu_",
    "x86_pmu_handle_irq",
    "handle_pmi_common",
    "armv8pmu_handle_irq",
    "nmi_handle",
    "default_do_nmi",
    "exc_nmi",
    "asm_exc_nmi",
    "end_repeat_nmi",
    "__run_hrtimer",
    "__hrtimer_run_queues",
    "hrtimer_interrupt",
    "local_apic_timer_interrupt",
    "__sysvec_apic_timer_interrupt",
    "instr_sysvec_apic_timer_interrupt",
    "sysvec_apic_timer_interrupt",
    "asm_sysvec_",
    "arch_timer_handler_",
    "handle_percpu_devid_irq",
    "generic_handle_domain_irq",
    "gic_handle_irq",
    "call_on_irq_stack",
    "do_interrupt_handler",
    "el1_interrupt",
    "el1h_64_irq",
    "el0t_64_irq",
];

/// Entries from hardware; leafward of them is the interrupt, rootward what it interrupted.
const ENTRY_STUBS: [&str; 12] = [
    "asm_sysvec_",
    "asm_common_interrupt",
    "asm_spurious_interrupt",
    "asm_exc_nmi",
    "asm_exc_int3",
    "asm_exc_debug",
    "end_repeat_nmi",
    "el1h_64_irq",
    "el0t_64_irq",
    "el1h_64_fiq",
    "el0t_64_fiq",
    "el1h_64_error",
];

const ENTRIES: [&str; 14] = [
    "asm_sysvec_",
    "sysvec_",
    "__sysvec_",
    "instr_sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
    "__common_interrupt",
    "asm_exc_nmi",
    "exc_nmi",
    "end_repeat_nmi",
    "el1h_64_irq",
    "el0t_64_irq",
    "el1_interrupt",
    "el0_interrupt",
];

/// Removes the tracer's own frames from the leaf end of a kernel stack, root → leaf.
pub(super) fn strip(frames: &mut Vec<Frame>, origin: Origin) {
    let own = own_frames(frames.iter().rev().map(|frame| &*frame.name), origin);
    frames.truncate(frames.len() - own);
    strip_scheduler(frames);
}

/// How a task left its CPU. Walks from outside (bpf_get_task_stack, /proc/PID/stack) leave these out: one wait must not
/// look like two, depending on how it was walked.
const SCHEDULER: [&str; 5] = [
    "__schedule",
    "schedule",
    "preempt_schedule",
    "io_schedule",
    "__cond_resched",
];

fn strip_scheduler(frames: &mut Vec<Frame>) {
    if frames.last().is_none_or(|leaf| &*leaf.name != "__schedule") {
        return;
    }
    while frames
        .last()
        .is_some_and(|leaf| starts_with(&leaf.name, &SCHEDULER))
    {
        frames.pop();
    }
}

/// The part of a kernel stack (root → leaf) that ran in the innermost interrupt; `None` outside of interrupts.
pub fn interrupt_part(kernel: &[Frame]) -> Option<&[Frame]> {
    let leafmost = kernel
        .iter()
        .rposition(|frame| starts_with(&frame.name, &ENTRIES))?;
    // The assembler stub and what it calls are one entry.
    let from = leafmost.saturating_sub(3);
    let stub = (from..=leafmost)
        .rev()
        .find(|index| starts_with(&kernel[*index].name, &ENTRY_STUBS));
    Some(&kernel[stub.unwrap_or(leafmost)..])
}

/// How many of the names, leaf first, are the tracer's.
fn own_frames<'name>(leaf_first: impl Iterator<Item = &'name str>, origin: Origin) -> usize {
    let mut own = 0;
    let mut gap = GAP;
    // Whether a frame was seen that only a probe or a sampler has: others are theirs only together with it.
    let mut seen = false;
    for (index, name) in leaf_first.take(REGION).enumerate() {
        // The leaf may be in a gap too: some walks begin in a helper.
        if index > own + gap || name.starts_with("__schedule") {
            break;
        }
        let (sure, with_it): (&[&str], &[&str]) = match origin {
            Origin::Tracepoint => (&PROBE, &PROBE_RETURN),
            Origin::Sample => (&OVERFLOW, &SAMPLER),
        };
        seen |= starts_with(name, sure);
        let tracer = origin == Origin::Tracepoint && starts_with(name, &TRACER);
        let sampler = origin == Origin::Sample;
        if tracer || starts_with(name, sure) || (seen || sampler) && starts_with(name, with_it) {
            own = index + 1;
            gap = if starts_with(name, &LAST) { 0 } else { GAP };
            if name.starts_with("__traceiter_") || starts_with(name, &ENTRY_STUBS) {
                break;
            }
        }
    }
    if origin == Origin::Sample && !seen {
        0
    } else {
        own
    }
}

fn starts_with(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}
