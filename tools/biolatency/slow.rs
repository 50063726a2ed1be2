//! `--slower`: single requests, as they end.

use std::io::Write;

use anyhow::Result;
use bpf::biolatency::types::slow_io;
use host::clock::wall_clock;
use host::task::comm_text;
use profile::escape::terminal;
use profile::units;
use serde_json::json;

use crate::biolatency::args::Args;
use crate::biolatency::names::Names;

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
        status => format!("  FAILED: {} error", terminal(&names.status(status))),
    };
    writeln!(
        out,
        "{} {:<8} queued {:>8} device {:>8} {:>8} {:<5} {submitter}{status}",
        wall_clock(io.time_ns),
        terminal(disk),
        units::duration(io.queued_ns),
        units::duration(io.device_ns),
        units::bytes(io.bytes.into()),
        terminal(&names.op(io.opf)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_terminal_and_a_failure_shows() {
        let mut io = slow_io {
            queued_ns: 13_500_000,
            device_ns: 757_000,
            bytes: 128 << 10,
            tid: 4_194_304,
            comm: *b"fio\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ..slow_io::default()
        };
        let line = |io: &slow_io| {
            let mut out = Vec::new();
            write_line(&Names::none(), "nvme0n1", io, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = line(&io);
        assert!(
            text.contains("nvme0n1  queued  13.5 ms device   757 us  128 KiB"),
            "{text}"
        );
        assert!(text.ends_with("fio 4194304\n"), "{text}");
        (io.status, io.comm) = (7, *b"\x1b[31mevil\0\0\0\0\0\0\0");
        let text = line(&io);
        assert!(text.ends_with("FAILED: medium error\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
