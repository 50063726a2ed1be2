//! Parts of made-up reports, for tests of all tools.

use profile::frame::{Frame, FrameKind};
use profile::model::{Profile, Sample, Task, ValueType};

pub(crate) fn task(comm: &str, tgid: u32, tid: u32) -> Task {
    Task {
        comm: comm.into(),
        tgid,
        tid,
    }
}

/// A function of a program.
pub(crate) fn frame(name: &str) -> Frame {
    Frame {
        name: name.into(),
        kind: FrameKind::User,
        inlined: false,
        module: None,
        address: 0,
        line: None,
    }
}

/// One wait of a thread, without stacks: for that, and for so long, ns.
pub(crate) fn wait(task: Task, reason: &'static str, values: &[u64]) -> Sample {
    Sample {
        task,
        reason: Some(reason),
        count: 1,
        values: values.into(),
        ..Sample::default()
    }
}

/// Time off CPUs.
pub(crate) fn off_cpu(samples: Vec<Sample>, duration_ns: u64) -> Profile {
    let values = ["blocked", "runqueue"].map(|name| ValueType { name, unit: "ns" });
    Profile {
        tool: "offcputime",
        values: values.into(),
        samples,
        duration_ns,
    }
}
