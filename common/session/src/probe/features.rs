//! What kernels differ in, each with the release that brought it.

use std::fmt;

use super::Kernel;

/// Something that only some kernels offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// State kept with tasks by tracing programs.
    TaskStorage,
    /// Locks in maps, taken by tracing programs.
    SpinLock,
    /// User registers of any task.
    TaskRegisters,
    /// The state of the task that leaves a CPU, as an argument of `sched_switch`.
    SwitchState,
    /// A tracepoint at the end of a switch, in the resumed thread.
    SwitchEnd,
    /// Mappings of a process in a tree that can be read without its lock.
    MappingTree,
    /// Tasks by their IDs in the initial PID namespace.
    TaskOfPid,
    /// Tasks by their IDs in the current task's PID namespace.
    TaskOfVpid,
    /// The slab cache that an address was allocated from.
    SlabCache,
    /// Tracepoints around each request that is accounted.
    BlockAccounting,
    /// A tracepoint for requests that fail.
    BlockErrors,
    /// Tracepoints around waits for kernel locks.
    Contention,
    /// Programs at the entry of kernel functions.
    Fentry,
    /// Breakpoints in kernel code.
    Kprobes,
    /// Counters of the CPU: cycles, cache misses.
    HardwareEvents,
    /// The kernel's own account of pressure.
    Psi,
}

impl Feature {
    /// In the order in which kernels got them.
    pub const ALL: [Self; 16] = [
        Self::Kprobes,
        Self::HardwareEvents,
        Self::Psi,
        Self::Fentry,
        Self::TaskStorage,
        Self::SpinLock,
        Self::TaskRegisters,
        Self::SwitchState,
        Self::BlockErrors,
        Self::Contention,
        Self::MappingTree,
        Self::TaskOfPid,
        Self::BlockAccounting,
        Self::TaskOfVpid,
        Self::SlabCache,
        Self::SwitchEnd,
    ];

    /// Where it comes from: a release, or what else it takes.
    pub fn since(self) -> &'static str {
        match self {
            Self::TaskStorage => "Linux 5.12",
            Self::SpinLock => "after Linux 5.10",
            Self::TaskRegisters => "Linux 5.15",
            Self::SwitchState | Self::BlockErrors => "Linux 5.18",
            Self::Contention => "Linux 5.19",
            Self::MappingTree => "Linux 6.1",
            Self::TaskOfPid => "Linux 6.2",
            Self::BlockAccounting => "Linux 6.5",
            Self::TaskOfVpid | Self::SlabCache => "Linux 6.14",
            Self::SwitchEnd => "Linux 6.18",
            Self::Fentry => "Linux 5.5, on arm64 6.4, and not forbidden",
            Self::Kprobes => "CONFIG_KPROBE_EVENTS",
            Self::HardwareEvents => "a PMU; virtual machines may have none",
            Self::Psi => "CONFIG_PSI, not psi=0",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TaskStorage => "task storage for tracing programs",
            Self::SpinLock => "locks in maps for tracing programs",
            Self::TaskRegisters => "user registers of any task (bpf_task_pt_regs)",
            Self::SwitchState => "sched_switch with the state of who leaves",
            Self::SwitchEnd => "sched_exit_tp, the end of a switch",
            Self::MappingTree => "mappings in a maple tree",
            Self::TaskOfPid => "tasks by ID (bpf_task_from_pid)",
            Self::TaskOfVpid => "tasks by ID in a container (bpf_task_from_vpid)",
            Self::SlabCache => "slab caches by address (bpf_get_kmem_cache)",
            Self::BlockAccounting => "block_io_start and block_io_done",
            Self::BlockErrors => "block_rq_error",
            Self::Contention => "contention_begin and contention_end",
            Self::Fentry => "fentry",
            Self::Kprobes => "kprobes",
            Self::HardwareEvents => "hardware events",
            Self::Psi => "pressure stall information (PSI)",
        })
    }
}

impl Kernel {
    /// Whether it is there, found by trying.
    pub fn has(&self, feature: Feature) -> bool {
        match feature {
            Feature::TaskStorage => self.has_task_storage(),
            Feature::SpinLock => self.has_spin_lock(),
            Feature::TaskRegisters => self.may_call(libbpf_sys::BPF_FUNC_task_pt_regs),
            Feature::SwitchState => self.tracepoint_arguments("sched_switch") == Some(4),
            Feature::SwitchEnd => self.has_tracepoint("sched_exit_tp"),
            Feature::BlockAccounting => {
                self.has_tracepoint("block_io_start") && self.has_tracepoint("block_io_done")
            }
            Feature::BlockErrors => self.has_tracepoint("block_rq_error"),
            Feature::Contention => self.has_tracepoint("contention_begin"),
            Feature::MappingTree => self.has_structure("maple_tree"),
            Feature::TaskOfPid => self.has_function("bpf_task_from_pid"),
            Feature::TaskOfVpid => self.has_function("bpf_task_from_vpid"),
            Feature::SlabCache => self.has_function("bpf_get_kmem_cache"),
            Feature::Fentry => self.can_trace_functions(),
            Feature::Kprobes => super::trial::has_kprobes(),
            Feature::HardwareEvents => super::trial::has_hardware_events(),
            // Opening succeeds where PSI is switched off.
            Feature::Psi => std::fs::read_to_string("/proc/pressure/cpu").is_ok(),
        }
    }
}

/// A feature that a tool uses, and what it does where that is missing.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// What is used.
    pub feature: Feature,
    /// What happens without: `user stacks are walked at every switch`.
    pub without: &'static str,
}

/// What a tool does without on this kernel, a line each.
pub fn degradations(kernel: &Kernel, needs: &[Need]) -> Vec<String> {
    needs
        .iter()
        .filter(|need| !kernel.has(need.feature))
        .map(|need| format!("{}: {}", need.feature, need.without))
        .collect()
}
