//! All time of the threads by stack: of waits and on CPUs, below a frame for its kind.

use std::sync::Arc;

use profile::frame::{Frame, FrameKind};
use profile::model::{Profile, Sample, ValueType};
use profile::reasons;

use crate::why::line::{ON_CPU, RUN_QUEUE};

/// The profile of it, ns. Samples on CPUs have all of `oncpu_ns` by their number.
pub(crate) fn profile(off: &Profile, on: &Profile, oncpu_ns: u64) -> Profile {
    let mut samples = Vec::new();
    for sample in &off.samples {
        let [ns, queue_ns] = reasons::parts(off, sample.reason, &sample.values);
        let reason = sample.reason.unwrap_or("other");
        samples.extend(part(sample, reason, ns));
        // A thread that had nothing to do has something when it is woken.
        let ready = Sample {
            idle: false,
            ..sample.clone()
        };
        samples.extend(part(&ready, RUN_QUEUE, queue_ns));
    }
    samples.extend(on_cpu(on, oncpu_ns));
    Profile {
        tool: "why",
        values: vec![ValueType::new("time", "ns")],
        samples,
        duration_ns: off.duration_ns,
    }
}

fn on_cpu(on: &Profile, oncpu_ns: u64) -> impl Iterator<Item = Sample> {
    // Time too short for samples is nobody's in particular.
    let nobody = on.samples.is_empty();
    let unseen = nobody.then(|| part(&Sample::default(), ON_CPU, oncpu_ns));
    let all: u64 = on.samples.iter().map(Sample::total).sum();
    let upto = move |count: u64| {
        let ns = u128::from(oncpu_ns) * u128::from(count) / u128::from(all.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    let mut before = 0;
    let seen = on.samples.iter().filter_map(move |sample| {
        let ns = upto(before + sample.total()) - upto(before);
        before += sample.total();
        part(sample, ON_CPU, ns)
    });
    seen.chain(unseen.flatten())
}

/// Its time of one kind, if it has any.
fn part(sample: &Sample, kind: &str, ns: u64) -> Option<Sample> {
    // Idle waits are marked, and readers of profiles put them under a frame of their own.
    let root = (!sample.idle).then(|| Frame {
        name: format!("[{kind}]").into(),
        kind: FrameKind::User,
        inlined: false,
        module: None,
        address: 0,
        line: None,
    });
    let user: Arc<[Frame]> = root
        .into_iter()
        .chain(sample.user.iter().cloned())
        .collect();
    (ns > 0).then(|| Sample {
        user,
        // Lines of the account have them.
        waker: None,
        values: vec![ns],
        ..sample.clone()
    })
}
