//! What lockstat says, in each format.

use std::io::Write;

use anyhow::{Context, Result};
use profile::units;
use trace::stacks::StackTable;

use crate::args::Args;
use crate::harvest::Harvest;

/// Writes an interval's report.
pub(crate) fn write(
    args: &Args,
    harvest: &Harvest,
    _stacks: &mut StackTable,
    out: &mut impl Write,
) -> Result<()> {
    for row in harvest.rows.iter().take(args.top) {
        writeln!(
            out,
            "{:>10} {:>8} {:>9} {:>9} {:<12} {}",
            units::duration(row.total_ns),
            units::count(row.contentions),
            units::duration(row.waits.mean()),
            units::duration(row.max_ns),
            row.class,
            row.name.own,
        )
        .context("write to stdout")?;
    }
    Ok(out.flush()?)
}
