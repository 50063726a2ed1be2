//! Features that several tools use, and what all of them do without.

use crate::probe::{Feature, Need};

/// The state of threads in task storage.
pub const TASK_STORAGE: Need = Need {
    feature: Feature::TaskStorage,
    without: "the state of threads is in a hash table: slower, and room for 65,536 threads",
};

/// The state of a thread that leaves its CPU, as the switch had it.
pub const SWITCH_STATE: Need = Need {
    feature: Feature::SwitchState,
    without: "the state of a thread is read at the switch, where a waker may have changed it",
};

/// User registers, for stacks.
pub const TASK_REGISTERS: Need = Need {
    feature: Feature::TaskRegisters,
    without: "user registers are taken from the top of the kernel stack",
};

/// Mappings of processes, for stacks.
pub const MAPPING_TREE: Need = Need {
    feature: Feature::MappingTree,
    without: "user stacks of processes that are not listed yet are walked by frame pointers",
};
