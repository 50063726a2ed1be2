//! The waiters as a profile, for flame graphs and other tools' formats.

use profile::model::{Profile, Sample, Task, ValueType};
use stacks::StackTable;
use symbols::interrupt_part;

use crate::lockstat::harvest::Harvest;
use crate::lockstat::row::{INTERRUPT, LockRow, Waiter};

/// Index of the time waited among the values of [`profile`].
pub(crate) const DELAY: usize = 0;

const DELAYS: ValueType = ValueType::new("delay", "ns");
const CONTENTIONS: ValueType = ValueType::new("contentions", "count");

/// Every waiter's stack, by ns. Names take time: without them, it tells how complete the stacks are.
pub(crate) fn profile(
    harvest: &Harvest,
    stacks: &mut StackTable,
    named: bool,
    releasers: bool,
) -> Profile {
    let mut samples = Vec::new();
    for row in &harvest.rows {
        for waiter in &row.waiters {
            let mut sample = sample(row, waiter, stacks);
            if named {
                name(&mut sample, waiter, stacks);
                sample.waker = stacks.waker(waiter.waker).filter(|_| releasers);
            }
            samples.push(sample);
        }
    }
    Profile {
        tool: "lockstat",
        values: vec![DELAYS],
        samples,
        duration_ns: harvest.window_ns.end - harvest.window_ns.start,
    }
}

/// The same with the values of Go's mutex profiles: `contentions/count` and `delay/nanoseconds`.
pub(crate) fn contentions(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.values = vec![CONTENTIONS, DELAYS];
    for sample in &mut profile.samples {
        sample.values.insert(0, sample.count);
    }
    profile
}

fn sample(row: &LockRow, waiter: &Waiter, stacks: &StackTable) -> Sample {
    Sample {
        task: waiter.task.clone(),
        reason: Some(row.class),
        user: [].into(),
        user_end: stacks.user_end(waiter.user),
        kernel: [].into(),
        waker: None,
        idle: false,
        count: waiter.count,
        values: vec![waiter.total_ns],
    }
}

/// What an interrupt waits for has nothing to do with the thread that it interrupted.
fn name(sample: &mut Sample, waiter: &Waiter, stacks: &mut StackTable) {
    sample.kernel = stacks.kernel_names(waiter.kernel);
    if !waiter.in_interrupt {
        sample.user = stacks.user_names(waiter.user);
        return;
    }
    sample.task = Task::new(INTERRUPT, 0, 0);
    sample.user_end = None;
    if let Some(part) = interrupt_part(&sample.kernel) {
        sample.kernel = part.into();
    }
}
