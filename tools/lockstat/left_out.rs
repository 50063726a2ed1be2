//! The line on waits for work, which stand in no row.

use std::io::{self, Write};

use profile::text::{WIDTH, sentence};
use profile::units;

use crate::lockstat::row::LeftOut;

/// Says how long threads waited for work, which was not asked for.
pub(crate) fn write(classes: &[LeftOut], out: &mut impl Write) -> io::Result<()> {
    if classes.is_empty() {
        return Ok(());
    }
    let of_class = |sum: &LeftOut| format!("{} {}", sum.class, units::duration(sum.total_ns));
    let parts: Vec<String> = classes.iter().map(of_class).collect();
    let all_ns = classes.iter().map(|sum| sum.total_ns).sum();
    let idle = format!("idle: {}, waiting for work", units::thread_time(all_ns));
    writeln!(out, "\n{idle} (--class all shows it):")?;
    for line in sentence(&parts, ",", WIDTH - 2) {
        writeln!(out, "  {line}")?;
    }
    let unended_ns = classes.iter().map(|sum| sum.unended_ns).sum();
    if unended_ns == 0 {
        return Ok(());
    }
    let parts = [
        format!("nobody ended {} of it:", units::duration(unended_ns)),
        "either no work came,".into(),
        "or a lock is made of such a futex and its holder keeps it".into(),
    ];
    for line in sentence(&parts, "", WIDTH - 2) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
