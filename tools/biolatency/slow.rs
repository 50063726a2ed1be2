//! `--slower`: single requests, as they end.

use std::io::Write;

use anyhow::Result;
use bpf::biolatency::types::slow_io;
use host::clock::wall_clock;
use host::task::comm_text;
use profile::escape::terminal;
use profile::text::{self, WIDTH, columns, cut};
use profile::units;
use serde_json::json;

use crate::biolatency::args::Args;
use crate::biolatency::names::Names;

/// Columns of names.
const DISK: usize = 12;
const OPERATION: usize = 12;
const STATUS: usize = 40;

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
    let begin = format!(
        "{} {:<7} queued {:>7} device {:>7} {:>8} {:<5}",
        wall_clock(io.time_ns),
        cut(&terminal(disk), DISK),
        units::duration(io.queued_ns),
        units::duration(io.device_ns),
        units::bytes(io.bytes.into()),
        cut(&terminal(&names.op(io.opf)), OPERATION),
    );
    let comm = text::comm(&comm_text(&io.comm));
    let tid = format!(" {}", io.tid);
    let room = WIDTH.saturating_sub(columns(&begin) + 1 + columns(&tid));
    write!(out, "{begin}")?;
    match comm.as_str() {
        "" => write!(out, " -")?,
        // Less than this says nothing.
        name if columns(name).min(4) > room => write!(out, "\n  {name}{tid}")?,
        name => write!(out, " {}{tid}", cut(name, room))?,
    }
    if io.status != 0 {
        let status = names.status(io.status);
        write!(out, "\n  FAILED: {} error", cut(&terminal(&status), STATUS))?;
    }
    Ok(writeln!(out)?)
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
    use crate::narrow::{COMMS, LONG_NS, assert_narrow};

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
            text.contains("nvme0n1 queued 13.5 ms device  757 us  128 KiB"),
            "{text}"
        );
        assert!(text.ends_with("fio 4194304\n"), "{text}");
        (io.status, io.comm) = (7, *b"\x1b[31mevil\0\0\0\0\0\0\0");
        let text = line(&io);
        assert!(text.ends_with("FAILED: medium error\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn no_line_is_too_long_whatever_the_names_are() {
        for name in COMMS {
            let mut comm = [0; 16];
            let bytes = &name.as_bytes()[..name.len().min(15)];
            comm[..bytes.len()].copy_from_slice(bytes);
            for disk in ["vda", "nvme0n1", "nvme10n10p128", name] {
                let io = slow_io {
                    queued_ns: LONG_NS,
                    device_ns: LONG_NS,
                    bytes: u32::MAX,
                    tid: 4_194_304,
                    status: 7,
                    comm,
                    ..slow_io::default()
                };
                let mut out = Vec::new();
                write_line(&Names::none(), disk, &io, &mut out).unwrap();
                assert_narrow(&String::from_utf8(out).unwrap());
            }
        }
    }
}
