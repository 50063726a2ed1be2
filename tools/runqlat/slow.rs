//! `--slower`: single waits, as they happen.

use std::io::Write;

use anyhow::Result;
use bpf::runqlat::types::slow_wait;
use host::clock::wall_clock;
use host::task::comm_text;
use loader::arrivals::Arrivals;
use profile::text::{self, WIDTH, columns, cut};
use profile::units;
use serde_json::json;

use crate::runqlat::args::Args;

/// `enum wait_cause` of the BPF side.
const PREEMPTED: u32 = 2;

/// Prints what has arrived since the last call.
pub(crate) fn print(
    args: &Args,
    arrivals: &Arrivals<slow_wait>,
    out: &mut impl Write,
) -> Result<()> {
    for wait in arrivals.take() {
        if args.common.json {
            write_json(&wait, out)?;
        } else {
            write_line(&wait, out)?;
        }
    }
    Ok(out.flush()?)
}

fn cause(wait: &slow_wait) -> &'static str {
    if wait.cause == PREEMPTED {
        "preempted"
    } else {
        "woken"
    }
}

/// The name and ID of the task that was on that CPU, if the wait was for the CPU. Nobody, as often as not: then the CPU took its time to
/// wake up.
fn behind(wait: &slow_wait) -> (String, String) {
    if wait.without_quota != 0 {
        return ("CPU quota".into(), String::new());
    }
    if wait.prev_idle != 0 {
        return ("idle".into(), String::new());
    }
    let comm = text::comm(&comm_text(&wait.prev_comm));
    (comm, format!(" {}", wait.prev_tid))
}

fn write_line(wait: &slow_wait, out: &mut impl Write) -> Result<()> {
    let begin = format!(
        "{} cpu {:<3} {:>7} {:<9}",
        wall_clock(wait.time_ns),
        wait.cpu,
        units::duration(wait.wait_ns),
        cause(wait),
    );
    let (comm, tid) = (text::comm(&comm_text(&wait.comm)), wait.tid);
    let (other, other_tid) = behind(wait);
    // Names share what the line has left: each may have what the other one does not need.
    let rest = format!("{begin}  {tid} behind {other_tid}");
    let room = WIDTH.saturating_sub(columns(&rest));
    let comm = cut(&comm, room.saturating_sub(columns(&other)).max(room / 2));
    let other = cut(&other, room.saturating_sub(columns(&comm)));
    Ok(writeln!(
        out,
        "{begin} {comm} {tid} behind {other}{other_tid}"
    )?)
}

fn write_json(wait: &slow_wait, out: &mut impl Write) -> Result<()> {
    let behind = match wait.prev_idle {
        0 => {
            json!({"comm": *comm_text(&wait.prev_comm), "pid": wait.prev_tgid, "tid": wait.prev_tid})
        }
        _ => json!({"comm": "idle", "pid": 0, "tid": 0}),
    };
    let line = json!({"slow_wait": {
        "time_ns": wait.time_ns,
        "cpu": wait.cpu,
        "comm": *comm_text(&wait.comm),
        "pid": wait.tgid,
        "tid": wait.tid,
        "cause": cause(wait),
        "wait_ns": wait.wait_ns,
        "behind": behind,
        "without_quota": wait.without_quota != 0,
    }});
    Ok(writeln!(out, "{line}")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narrow::{COMMS, LONG_NS, assert_narrow};

    fn line(wait: &slow_wait) -> String {
        let mut out = Vec::new();
        write_line(wait, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_idle_cpu_is_no_task() {
        let mut wait = slow_wait {
            wait_ns: 12_300_000,
            prev_comm: *b"swapper/1\0\0\0\0\0\0\0",
            prev_idle: 1,
            ..slow_wait::default()
        };
        let idle = line(&wait);
        assert!(
            idle.contains(" 12.3 ms woken ") && idle.ends_with(" behind idle\n"),
            "{idle}"
        );
        let mut out = Vec::new();
        write_json(&wait, &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["slow_wait"]["behind"]["comm"], "idle");

        (wait.prev_idle, wait.prev_tid, wait.prev_tgid) = (0, 7, 7);
        let task = line(&wait);
        assert!(task.ends_with(" behind swapper/1 7\n"), "{task}");
        wait.without_quota = 1;
        let quota = line(&wait);
        assert!(quota.ends_with(" behind CPU quota\n"), "{quota}");
    }

    #[test]
    fn a_line_fits_a_terminal() {
        for name in COMMS {
            let mut comm = [0; 16];
            let name = &name.as_bytes()[..name.len().min(15)];
            comm[..name.len()].copy_from_slice(name);
            for (prev_idle, without_quota) in [(0, 0), (1, 0), (0, 1)] {
                assert_narrow(&line(&slow_wait {
                    wait_ns: LONG_NS,
                    cpu: 8_191,
                    comm,
                    prev_comm: comm,
                    tid: 4_194_304,
                    prev_tid: 4_194_303,
                    cause: PREEMPTED,
                    prev_idle,
                    without_quota,
                    ..slow_wait::default()
                }));
            }
        }
    }
}
