//! Finds where an interrupt begins in a kernel stack.

use profile::frame::Frame;

/// First frame of any interrupt.
const ENTRY: &[&str] = &[
    "asm_sysvec_",
    "asm_common_interrupt",
    "asm_exc_nmi",
    "end_repeat_nmi",
    "apic_timer_interrupt",
    "ret_from_intr",
    "common_interrupt",
    "el1h_64_irq",
    "el1_irq",
    "el0t_64_irq",
    "el0t_64_irq_handler",
];

/// Back from an interrupt, in the interrupted task again.
const LEAVING: &[&str] = &[
    "irqentry_exit",
    "exit_to_user_mode",
    "prepare_exit_to_usermode",
    "preempt_schedule_irq",
    "arm64_preempt_schedule_irq",
    "do_notify_resume",
];

/// Where only these are left of an entry (an unwinder that lost the assembly frame).
const INSIDE: &[&str] = &[
    "sysvec_",
    "__sysvec_",
    "__common_interrupt",
    "irq_exit_rcu",
    "__irq_exit_rcu",
    "irq_exit",
    "el1_interrupt",
];

/// The part of a waker's kernel stack (root → leaf) that ran in an interrupt, entry included; `None` when the waker's own
/// code did it. What lies rootward of the entry was merely interrupted and woke nobody.
pub fn interrupt_part(frames: &[Frame]) -> Option<&[Frame]> {
    // On the way out of an interrupt the kernel is back in the task: it switches tasks and runs the task's pending work.
    let left = frames
        .iter()
        .rposition(|f| starts(&f.name, LEAVING))
        .map_or(0, |at| at + 1);
    let entry = frames[left..]
        .iter()
        .position(|f| is_entry(&f.name) || starts(&f.name, INSIDE))?;
    Some(&frames[left + entry..])
}

/// Whether a function is the first of an interrupt.
pub(super) fn is_entry(name: &str) -> bool {
    starts(name, ENTRY) && !name.contains("return")
}

/// Whether a name begins with one of `prefixes`.
pub(super) fn starts(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|p| name.starts_with(p))
}

#[cfg(test)]
mod tests {
    use profile::frame::FrameKind;

    use super::*;

    #[test]
    fn wakers_in_interrupts() {
        let frames = |names: &[&str]| -> Vec<Frame> {
            let frame = |n: &&str| Frame {
                name: (*n).into(),
                kind: FrameKind::Kernel,
                inlined: false,
                module: None,
                address: 0,
                line: None,
            };
            names.iter().map(frame).collect()
        };
        let stack = frames(&[
            "ret_from_fork",
            "vfs_read",
            "asm_common_interrupt",
            "common_interrupt",
            "handle_softirqs",
            "try_to_wake_up",
        ]);
        assert_eq!(interrupt_part(&stack).unwrap().len(), 4);
        let stack = frames(&[
            "do_syscall_64",
            "tcp_sendmsg",
            "do_softirq",
            "handle_softirqs",
            "try_to_wake_up",
        ]);
        assert_eq!(
            interrupt_part(&stack),
            None,
            "softirq work that the sender does for itself"
        );
        let stack = frames(&["asm_exc_page_fault", "exc_page_fault", "try_to_wake_up"]);
        assert_eq!(interrupt_part(&stack), None);
        let stack = frames(&[
            "asm_sysvec_apic_timer_interrupt",
            "irqentry_exit_to_user_mode",
            "task_work_run",
            "try_to_wake_up",
        ]);
        assert_eq!(
            interrupt_part(&stack),
            None,
            "the task's own work on its way back to user mode"
        );
        let stack = frames(&[
            "asm_sysvec_apic_timer_interrupt",
            "irqentry_exit",
            "preempt_schedule_irq",
            "asm_common_interrupt",
            "try_to_wake_up",
        ]);
        assert_eq!(interrupt_part(&stack).unwrap().len(), 2);
        let stack = frames(&["x", "__irq_exit_rcu", "handle_softirqs"]);
        assert_eq!(interrupt_part(&stack).unwrap().len(), 2);
    }
}
