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

const PROBE: [&str; 17] = [
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
    "exc_int3",
    "do_int3",
    "asm_exc_int3",
    "exc_debug_user",
    "irqentry_exit_to_user_mode",
    "exit_to_user_mode",
];

const OVERFLOW: [&str; 10] = [
    "bpf_prog_",
    "bpf_overflow_handler",
    "bpf_get_stack",
    "__bpf_get_stack",
    "perf_event_overflow",
    "__perf_event_overflow",
    "perf_swevent_",
    "perf_output_sample",
    "perf_event_output",
    "perf_prepare_sample",
];

const SAMPLER: [&str; 28] = [
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
pub fn strip(frames: &mut Vec<Frame>, origin: Origin) {
    let own = own_frames(frames.iter().rev().map(|frame| &*frame.name), origin);
    frames.truncate(frames.len() - own);
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
    let mut sampled = false;
    for (index, name) in leaf_first.take(REGION).enumerate() {
        // A gap at the very leaf too: the walk may begin in a helper.
        if index > own + GAP {
            break;
        }
        let listed = match origin {
            Origin::Tracepoint => starts_with(name, &TRACER) || starts_with(name, &PROBE),
            Origin::Sample => {
                let overflow = starts_with(name, &OVERFLOW);
                sampled |= overflow;
                // An interrupt at the leaf without a sampler in it is what was sampled.
                overflow || (sampled && starts_with(name, &SAMPLER))
            }
        };
        if listed {
            own = index + 1;
            if name.starts_with("__traceiter_") || starts_with(name, &ENTRY_STUBS) {
                break;
            }
        }
    }
    own
}

fn starts_with(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}
