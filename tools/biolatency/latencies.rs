//! Latencies by kind of request, of all of them and of each group's.

use std::collections::HashMap;

use bpf::biolatency::types::group_id;
use hist::Histogram;
use hist::harvest::Group;
use profile::rank::Rank;

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

/// A group in one phase.
pub(crate) struct OfGroup {
    pub(crate) whole: Group<group_id>,
    /// Its kinds of requests, in the order of [`CLASSES`]; none where all requests are one group, or a group is of one operation.
    pub(crate) by_class: Vec<OfClass>,
}

impl OfGroup {
    fn new(id: group_id) -> Self {
        Self {
            whole: Group {
                id,
                comm: "".into(),
                histogram: Histogram::default(),
            },
            by_class: Vec::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.whole.id.phase)
    }
}

/// The kinds that there were, in the order of [`CLASSES`], each with its phases.
pub(crate) fn by_class(phases: &[Phase], found: &[Group<group_id>]) -> Vec<OfClass> {
    let of_class = |class| {
        phases.iter().map(move |&phase| OfClass {
            class,
            phase,
            histogram: merged(found.iter().filter(|group| {
                class_of(group.id.opf) == class && Phase::of(group.id.phase) == phase
            })),
        })
    };
    let classes = (0..CLASSES.len()).flat_map(of_class);
    classes.filter(|of| of.histogram.count() > 0).collect()
}

/// Groups as they were asked for, in no order, out of those that the BPF side splits by operation.
pub(crate) fn groups(args: &Args, mut found: Vec<Group<group_id>>) -> Vec<OfGroup> {
    let mut groups = HashMap::new();
    if !args.is_grouped() {
        // There is one, even of nothing.
        groups.extend(args.measured().iter().map(|&phase| {
            let id = group_id {
                phase: phase as u32,
                ..group_id::default()
            };
            (key(&id), OfGroup::new(id))
        }));
    }
    // A reader's name goes before a writer's.
    found.rank_by_key(|group| (class_of(group.id.opf), group.id.opf));
    for part in found {
        let class = class_of(part.id.opf);
        let id = group_id {
            opf: if args.by_flags { part.id.opf } else { 0 },
            ..part.id
        };
        let group = groups.entry(key(&id)).or_insert_with(|| OfGroup::new(id));
        group.whole.histogram.merge(&part.histogram);
        if group.whole.comm.is_empty() {
            group.whole.comm = part.comm;
        }
        match group.by_class.last_mut() {
            _ if !args.splits_groups() => {}
            Some(last) if last.class == class => last.histogram.merge(&part.histogram),
            _ => group.by_class.push(OfClass {
                class,
                phase: group.phase(),
                histogram: part.histogram,
            }),
        }
    }
    groups.into_values().collect()
}

fn key(id: &group_id) -> (u64, u64, [u32; 4]) {
    (id.disk, id.cgroup, [id.dev, id.opf, id.tgid, id.phase])
}

/// Sum of the groups' histograms in a phase.
pub(crate) fn in_phase(groups: &[OfGroup], phase: Phase) -> Histogram {
    let wanted = groups.iter().filter(|group| group.phase() == phase);
    merged(wanted.map(|group| &group.whole))
}

fn merged<'a>(groups: impl Iterator<Item = &'a Group<group_id>>) -> Histogram {
    let mut sum = Histogram::default();
    groups.for_each(|group| sum.merge(&group.histogram));
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
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    const SYNC: u32 = 1 << 11;

    /// A group of everything.
    pub(crate) fn of_group(phase: Phase, histogram: Histogram) -> OfGroup {
        let mut group = OfGroup::new(group_id {
            phase: phase as u32,
            ..group_id::default()
        });
        group.whole.histogram = histogram;
        group
    }

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
        let found = |phases: &[Phase]| -> Vec<(usize, Phase, u64, u64)> {
            let found = by_class(phases, &groups);
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
        assert_eq!(found(&[Phase::Device]), device);
        assert_eq!(
            found(&[Phase::Queued, Phase::Device]),
            [
                (READ, Phase::Queued, 1, 7_000),
                device[0],
                device[1],
                (PASSTHROUGH, Phase::Queued, 1, 11_000),
            ]
        );
    }

    /// Each group's process, flags, phase, name and sum, then each kind with its sum.
    fn told(line: &str, groups: Vec<Group<group_id>>) -> Vec<String> {
        let args = Args::parse_from(line.split_whitespace());
        let told = super::groups(&args, groups).into_iter().map(|group| {
            let (id, comm) = (group.whole.id, &group.whole.comm);
            let sum = group.whole.histogram.sum();
            let kinds = group.by_class.iter().map(|of| {
                assert_eq!(of.phase, group.phase());
                format!("; {} {}", CLASSES[of.class], of.histogram.sum())
            });
            let (tgid, opf, phase) = (id.tgid, id.opf, group.phase().key());
            format!(
                "{tgid} {opf} {phase} {comm} {sum}{}",
                kinds.collect::<String>()
            )
        });
        let mut told: Vec<String> = told.collect();
        told.sort();
        told
    }

    #[test]
    fn a_group_has_its_reads_and_its_writes_apart() {
        let groups = || {
            let parts = [
                (7, 1, Phase::Device, 1_000),
                (7, 0, Phase::Device, 2_000),
                (7, 9, Phase::Device, 4_000),
                (7, 2, Phase::Device, 8_000),
                (7, 0, Phase::Queued, 16_000),
                (9, 1, Phase::Device, 32_000),
            ];
            let parts = parts.map(|(tgid, opf, phase, ns)| {
                let mut part = group(opf, phase, ns);
                part.id.tgid = tgid;
                part.comm = format!("op{opf}").into();
                part
            });
            Vec::from(parts)
        };
        assert_eq!(
            told("biolatency -P --phases", groups()),
            [
                "7 0 device op0 15000; read 2000; write 5000; flush 8000",
                "7 0 queued op0 16000; read 16000",
                "9 0 device op1 32000; write 32000",
            ]
        );
        // A group of one operation has nothing to tell apart.
        let by_flags = told("biolatency -P -F", groups());
        assert!(
            by_flags.contains(&"7 9 device op9 4000".into()),
            "{by_flags:?}"
        );
        assert_eq!(by_flags.len(), 6);
    }

    #[test]
    fn all_requests_are_a_group_even_of_nothing() {
        let nothing = ["0 0 before  0", "0 0 device  0", "0 0 queued  0"];
        assert_eq!(told("biolatency --phases", Vec::new()), nothing);
        assert_eq!(told("biolatency -D", Vec::new()), [""; 0]);
        let parts = vec![
            group(0, Phase::Device, 3_000),
            group(1, Phase::Device, 4_000),
        ];
        assert_eq!(told("biolatency", parts), ["0 0 device  7000"]);
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
