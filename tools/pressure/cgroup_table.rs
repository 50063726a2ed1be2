//! `--cgroups`: a row per cgroup under pressure.

use std::io::{self, Write};

use profile::escape::terminal;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::cut_start;

use crate::pressure::cgroups::CgroupPressure;
use crate::pressure::psi::Resource;

/// Rows shown.
const TOP: usize = 10;
/// Below this, in percent, a cgroup is not shown.
const LEAST_PERCENT: f64 = 0.1;
/// Columns of a path; its end says more than its beginning.
const PATH: usize = 48;

/// Writes the most pressed ones, if there are any.
pub(crate) fn write(
    cgroups: &[CgroupPressure],
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    if cgroups.is_empty() {
        return Ok(());
    }
    let pressed: Vec<&CgroupPressure> = cgroups
        .iter()
        .filter(|cgroup| cgroup.worst_percent() >= LEAST_PERCENT)
        .collect();
    let mut table = Table::new([
        Column::right("CPU", 8),
        Column::right("MEMORY", 8),
        Column::right("DISK", 8),
        Column::left("CGROUP (SOME)", 0),
    ]);
    for cgroup in pressed.iter().take(TOP) {
        let path = cgroup.path.display().to_string();
        table.row([
            some(cgroup, Resource::Cpu),
            some(cgroup, Resource::Memory),
            some(cgroup, Resource::Io),
            cut_start(&terminal(&path), PATH),
        ]);
    }
    let rest = cgroups.len() - pressed.len().min(TOP);
    match (pressed.is_empty(), rest) {
        (true, all) => table.fitted([], move |_| format!("none of {all}")),
        (false, 0) => {}
        (false, rest) => table.fitted([], move |_| format!("{rest} more")),
    }
    writeln!(out)?;
    table.write(usize::MAX, style, out)
}

fn some(cgroup: &CgroupPressure, resource: Resource) -> String {
    let some = cgroup.lost[resource as usize].and_then(|lost| lost.some);
    some.map_or("-".into(), |share| format!("{:.1}%", share.percent()))
}
