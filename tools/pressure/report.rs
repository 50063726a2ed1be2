//! What pressure says about an interval.

use std::io::{self, Write};

use profile::units;

use crate::psi::{Resource, Share, Snapshot};
use crate::utilisation::Use;

/// The USE table: a row per resource.
pub(crate) fn write_table(
    usage: &Use,
    before: &Snapshot,
    now: &Snapshot,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{:<8} {:<28} {:>7} {:>7} {:>7}  ERRORS",
        "", "UTILISATION", "SOME", "FULL", "AVG10"
    )?;
    for resource in Resource::ALL {
        let lost = now.since(before, resource);
        let percent = |share: Option<Share>| {
            share.map_or("-".into(), |share| format!("{:.1}%", share.percent()))
        };
        let some = lost.and_then(|lost| lost.some);
        let full = lost.and_then(|lost| lost.full);
        writeln!(
            out,
            "{:<8} {:<28} {:>7} {:>7} {:>7}  {}",
            resource.word(),
            utilisation(usage, resource),
            percent(some),
            percent(full),
            some.or(full)
                .map_or("-".into(), |share| format!("{:.1}%", share.avg10)),
            errors(usage, resource),
        )?;
    }
    writeln!(out)
}

fn utilisation(usage: &Use, resource: Resource) -> String {
    match resource {
        Resource::Cpu => format!("{:.0}% of {} CPUs", usage.busy_percent, usage.cpus),
        Resource::Memory => format!(
            "{:.0}% of {}",
            usage.memory_used_percent,
            units::bytes(usage.memory_total_bytes)
        ),
        Resource::Io => match usage.disks.first() {
            Some(disk) => format!("{:.0}% {}", disk.busy_percent, disk.name),
            None => "idle".into(),
        },
        Resource::Irq => format!("{:.1}%", usage.irq_percent),
    }
}

fn errors(usage: &Use, resource: Resource) -> String {
    match (resource, usage.oom_kills) {
        (Resource::Memory, Some(kills)) => units::counted(kills, "OOM kills"),
        _ => "-".into(),
    }
}
