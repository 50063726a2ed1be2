//! Latencies by kind of request, and of all of them.

use bpf::biolatency::types::group_id;
use hist::Histogram;
use hist::harvest::Group;

use crate::biolatency::args::{Args, Phase};
use crate::biolatency::disk_use::{CLASSES, DISCARD, FLUSH, PASSTHROUGH, READ, WRITE};

/// Bits of the operation in `cmd_flags`, and its numbers, which have never changed.
const OP_MASK: u32 = 0xff;
const OP_FLUSH: u32 = 2;
const OP_DISCARD: u32 = 3;
const FIRST_PASSTHROUGH: u32 = 34;

/// One kind of request in one phase.
pub(crate) struct OfClass {
    /// Index into [`CLASSES`].
    pub(crate) class: usize,
    pub(crate) phase: Phase,
    pub(crate) histogram: Histogram,
}

/// The kinds that there were, in the order of [`CLASSES`], each with its phases; none where groups do not tell operations.
pub(crate) fn by_class(args: &Args, groups: &[Group<group_id>]) -> Vec<OfClass> {
    if !args.tells_operations() {
        return Vec::new();
    }
    let of_class = |class| {
        args.measured().iter().map(move |&phase| OfClass {
            class,
            phase,
            histogram: merged(groups, |id| {
                class_of(id.opf) == class && Phase::of(id.phase) == phase
            }),
        })
    };
    let classes = (0..CLASSES.len()).flat_map(of_class);
    classes.filter(|of| of.histogram.count() > 0).collect()
}

/// All requests, a histogram a phase.
pub(crate) fn wholes(phases: &[Phase], groups: &[Group<group_id>]) -> Vec<Group<group_id>> {
    let whole = |&phase: &Phase| Group {
        id: group_id {
            phase: phase as u32,
            ..group_id::default()
        },
        comm: "".into(),
        histogram: in_phase(groups, phase),
    };
    phases.iter().map(whole).collect()
}

/// Sum of the groups' histograms in a phase.
pub(crate) fn in_phase(groups: &[Group<group_id>], phase: Phase) -> Histogram {
    merged(groups, |id| Phase::of(id.phase) == phase)
}

fn merged(groups: &[Group<group_id>], is_wanted: impl Fn(&group_id) -> bool) -> Histogram {
    let mut sum = Histogram::default();
    for group in groups.iter().filter(|group| is_wanted(&group.id)) {
        sum.merge(&group.histogram);
    }
    sum
}

/// Kinds of the BPF side's `request_class`.
fn class_of(opf: u32) -> usize {
    match opf & OP_MASK {
        FIRST_PASSTHROUGH.. => PASSTHROUGH,
        OP_FLUSH => FLUSH,
        OP_DISCARD => DISCARD,
        op if op & 1 == 1 => WRITE,
        _ => READ,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const SYNC: u32 = 1 << 11;

    fn group(opf: u32, phase: Phase, ns: u64) -> Group<group_id> {
        let mut histogram = Histogram::default();
        histogram.record(ns);
        Group {
            id: group_id {
                opf,
                phase: phase as u32,
                ..group_id::default()
            },
            comm: "".into(),
            histogram,
        }
    }

    #[test]
    fn kinds_add_up_whatever_their_flags_and_phases_stay_apart() {
        let groups = [
            group(1, Phase::Device, 1_000),
            group(1 | SYNC, Phase::Device, 3_000),
            group(0, Phase::Device, 5_000),
            group(0, Phase::Queued, 7_000),
            group(35, Phase::Queued, 11_000),
        ];
        let found = |line: &[&str]| -> Vec<(usize, Phase, u64, u64)> {
            let args = Args::parse_from(line);
            let found = by_class(&args, &groups);
            let sums = found.iter().map(|of| {
                let sum = &of.histogram;
                (of.class, of.phase, sum.count(), sum.sum())
            });
            sums.collect()
        };
        let device = [
            (READ, Phase::Device, 1, 5_000),
            (WRITE, Phase::Device, 2, 4_000),
        ];
        assert_eq!(found(&["biolatency"]), device);
        assert_eq!(found(&["biolatency", "-F"]), device);
        assert_eq!(found(&["biolatency", "-D"]), []);
        assert_eq!(
            found(&["biolatency", "--phases"]),
            [
                (READ, Phase::Queued, 1, 7_000),
                device[0],
                device[1],
                (PASSTHROUGH, Phase::Queued, 1, 11_000),
            ]
        );
        let all = wholes(&[Phase::Device, Phase::Queued], &groups);
        let sums = all.iter().map(|all| (all.id.opf, all.histogram.sum()));
        assert_eq!(sums.collect::<Vec<_>>(), [(0, 9_000), (0, 18_000)]);
    }

    #[test]
    fn every_operation_has_a_kind() {
        let kinds = [0, 1, 2, 3, 5, 9, 13, 34, 35].map(|op| CLASSES[class_of(op | SYNC)]);
        let expected = [
            "read",
            "write",
            "flush",
            "discard",
            "write",
            "write",
            "write",
            "passthrough",
            "passthrough",
        ];
        assert_eq!(kinds, expected);
    }
}
