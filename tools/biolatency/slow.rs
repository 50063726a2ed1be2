//! `--slower`: single requests, as they end.

use std::io::Write;

use anyhow::Result;
use bpf::biolatency::types::slow_io;
use profile::escape::terminal;
use profile::units;
use serde_json::json;
use trace::task::comm_text;
use trace::window::wall_clock;

use crate::args::Args;
use crate::labels;
use crate::names::Names;

/// Writes one request.
pub(crate) fn write(
    args: &Args,
    names: &Names,
    disk: &str,
    io: &slow_io,
    out: &mut impl Write,
) -> Result<()> {
    if args.common.json {
        write_json(names, disk, io, out)?;
    } else {
        write_line(names, disk, io, out)?;
    }
    Ok(out.flush()?)
}

fn write_line(names: &Names, disk: &str, io: &slow_io, out: &mut impl Write) -> Result<()> {
    let comm = comm_text(&io.comm);
    let submitter = if comm.is_empty() {
        "-".into()
    } else {
        format!("{} {}", terminal(&comm), io.tid)
    };
    let status = match io.status {
        0 => String::new(),
        status => format!(" FAILED: {}", terminal(&names.status(status))),
    };
    writeln!(
        out,
        "{} {:<8} queued {:>8} device {:>8} {:>8}  {submitter}  {}{status}",
        wall_clock(io.time_ns),
        terminal(disk),
        units::duration(io.queued_ns),
        units::duration(io.device_ns),
        units::bytes(io.bytes.into()),
        labels::operation(names, io.opf),
    )?;
    Ok(())
}

fn write_json(names: &Names, disk: &str, io: &slow_io, out: &mut impl Write) -> Result<()> {
    let status = (io.status != 0).then(|| names.status(io.status));
    let line = json!({"slow_io": {
        "time_ns": io.time_ns,
        "disk": disk,
        "op": names.op(io.opf),
        "flags": names.flags(io.opf),
        "sector": io.sector,
        "bytes": io.bytes,
        "before_ns": io.before_ns,
        "queued_ns": io.queued_ns,
        "device_ns": io.device_ns,
        "total_ns": io.total_ns,
        "comm": *comm_text(&io.comm),
        "pid": io.tgid,
        "tid": io.tid,
        "error": status,
    }});
    Ok(writeln!(out, "{line}")?)
}
