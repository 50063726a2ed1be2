//! Tells frames of the tracer's own hooks from those of the traced code, by what they are.

use crate::interrupt::{is_entry, starts};

/// Where a kernel stack was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a tracepoint's BPF program, in the context of the code that hit it.
    Tracepoint,
    /// In a perf event's program: the interrupt that took the sample is the tracer's too.
    Sample,
}

/// How a task left its CPU. Walks from outside (bpf_get_task_stack, /proc/PID/stack) leave these out: one wait must not
/// look like two, depending on how it was walked.
const SCHEDULER: &[&str] = &[
    "__schedule",
    "schedule",
    "preempt_schedule",
    "io_schedule",
    "__cond_resched",
];

/// How many frames at the leaf end (names leaf first) are the scheduler's own.
pub(super) fn scheduler_frames<'a>(mut leaf_first: impl Iterator<Item = &'a str>) -> usize {
    match leaf_first.next() {
        Some("__schedule") => {
            1 + leaf_first
                .take_while(|name| starts(name, SCHEDULER))
                .count()
        }
        _ => 0,
    }
}

/// Frames between two known ones of the tracer (helpers that a kernel version adds) that are taken along.
const MAX_GAP: usize = 2;

/// Helpers and programs, nearest the leaf.
const PROGRAM: &[&str] = &[
    "bpf_prog_",
    "bpf_trampoline_",
    "bpf_get_stack",
    "__bpf_get_stack",
    "___bpf_get_stack",
    "bpf_get_task_stack",
    "__bpf_get_task_stack",
    "get_perf_callchain",
    "perf_callchain",
    "__bpf_prog_",
    "bpf_iter_run_prog",
    "bpf_dispatcher_",
    "stack_map_",
];

/// What calls programs.
const DISPATCH: &[&str] = &[
    "bpf_trace_run",
    "__bpf_trace_run",
    "trace_call_bpf",
    "perf_trace_run_bpf_submit",
    "perf_trace_",
    "__bpf_trace_",
    "bpf_overflow_handler",
    "__perf_event_overflow",
    "perf_event_overflow",
    "perf_swevent_",
    "perf_tp_event",
    "__perf_sw_event",
    "___perf_sw_event",
    "perf_event_output",
];

/// The tracepoint itself; the code that hit it comes next.
const TRACEPOINT: &[&str] = &["__traceiter_"];

/// From the interrupt that takes samples up to the perf core.
const SAMPLING: &[&str] = &[
    "__hrtimer_run_queues",
    "hrtimer_interrupt",
    "hrtimer_run_queues",
    "local_apic_timer_interrupt",
    "__sysvec_",
    "sysvec_",
    "instr_sysvec_",
    "run_sysvec_on_irqstack",
    "perf_event_nmi_handler",
    "nmi_handle",
    "default_do_nmi",
    "exc_nmi",
    "x86_pmu_handle_irq",
    "intel_pmu_",
    "amd_pmu_",
    "handle_pmi_common",
    "perf_event_task_tick",
    "arch_timer_handler_",
    "handle_percpu_devid_irq",
    "generic_handle_domain_irq",
    "generic_handle_irq",
    "handle_irq_desc",
    "gic_handle_irq",
    "call_on_irq_stack",
    "do_interrupt_handler",
    "el1_interrupt",
    "el1h_64_irq_handler",
    "el0_interrupt",
    "armv8pmu_handle_irq",
];

/// How many frames at the leaf end of a stack (given leaf first) are the tracer's own.
pub(super) fn own_frames<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    origin: Origin,
) -> usize {
    let mut own = 0;
    let mut dispatched = false;
    for (at, name) in names.clone().enumerate() {
        if starts(name, TRACEPOINT) {
            own = at + 1;
            break;
        }
        let dispatch = starts(name, DISPATCH);
        if dispatch || (!dispatched && starts(name, PROGRAM)) {
            own = at + 1;
            dispatched |= dispatch;
        } else if dispatched || at - own >= MAX_GAP {
            break;
        }
    }
    if origin == Origin::Sample && own > 0 {
        own += sampling_frames(names.skip(own));
    }
    own
}

fn sampling_frames<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    let mut own = 0;
    for name in names {
        let entry = is_entry(name);
        if !entry && !starts(name, SAMPLING) {
            break;
        }
        own += 1;
        if entry {
            break;
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(origin: Origin, stack: &str) -> usize {
        own_frames(stack.split(' '), origin)
    }

    #[test]
    fn a_tracepoint_ends_with_its_iterator() {
        use Origin::Tracepoint;
        let stack = "bpf_get_stack bpf_prog_ab_sched_switch bpf_trace_run4 __traceiter_sched_switch __schedule schedule";
        assert_eq!(own(Tracepoint, stack), 4);
        let (_, callers) = stack.split_once(' ').expect("several");
        assert_eq!(own(Tracepoint, callers), 3);
        let by_perf = "bpf_prog_ab_x trace_call_bpf perf_trace_run_bpf_submit perf_trace_sched_switch \
                       __traceiter_sched_switch __schedule";
        assert_eq!(own(Tracepoint, by_perf), 5);
        let odd = "bpf_prog_ab_x __bpf_prog_exit odd_helper bpf_trace_run4 __schedule";
        assert_eq!(own(Tracepoint, odd), 4);
        assert_eq!(own(Tracepoint, "__schedule schedule"), 0);
        assert_eq!(own_frames(std::iter::empty(), Tracepoint), 0);
    }

    #[test]
    fn other_peoples_programs_stay() {
        let stack = "bpf_prog_ab_x bpf_trace_run2 __traceiter_kmalloc kmalloc bpf_prog_cd_theirs bpf_trace_run4 __schedule";
        assert_eq!(own(Origin::Tracepoint, stack), 3);
        let below = "bpf_prog_ab_x bpf_trace_run2 bpf_prog_cd_theirs tcp_v4_rcv";
        assert_eq!(own(Origin::Tracepoint, below), 2);
    }

    #[test]
    fn the_sampling_interrupt_is_ours_and_others_are_not() {
        let stack = "bpf_prog_ab_sample bpf_overflow_handler __perf_event_overflow perf_swevent_hrtimer \
                     __hrtimer_run_queues hrtimer_interrupt __sysvec_apic_timer_interrupt \
                     sysvec_apic_timer_interrupt asm_sysvec_apic_timer_interrupt copy_page \
                     asm_sysvec_reschedule_ipi do_idle";
        assert_eq!(own(Origin::Sample, stack), 9);
        assert_eq!(own(Origin::Tracepoint, stack), 4);
        let others = "__hrtimer_run_queues hrtimer_interrupt";
        assert_eq!(own(Origin::Sample, others), 0, "time spent there by others");
    }
}
