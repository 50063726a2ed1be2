//! Killed in every phase, stopped and continued, short of descriptors, many at once: nothing is left behind, and what is
//! told is true.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cpu_times::{assert_cpu_time, stolen_samples};
use crate::held::Held;
use crate::kernel::{alone, beside};
use crate::tool::{COMMANDED, TRACERS, Tool};
use crate::workload::{Workload, number};

/// Far beyond what starting takes, so that only a hang runs into it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Stops it to see what it holds.
fn stop(tool: &Tool) -> Held {
    tool.signal(libc::SIGSTOP);
    Held::by(tool.pid())
}

/// Stops it to see what it holds, and kills it.
fn kill(tool: Tool) -> Held {
    let held = stop(&tool);
    assert!(held.is_there(), "{held:?}");
    finish(tool);
    held
}

/// Kills it.
fn finish(tool: Tool) {
    tool.signal(libc::SIGKILL);
    assert_eq!(tool.finish().code, 128 + libc::SIGKILL);
}

#[test]
fn killed_while_loading_nothing_stays() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in TRACERS {
        let running = Tool::start(tool, &[]);
        // As soon as it has a program and maps; it is not attached then, or not with all. Those that only try what the kernel
        // can do come and go before.
        let give_up = Instant::now() + PATIENCE;
        let held = loop {
            assert!(Instant::now() < give_up, "{tool} loads nothing");
            if Held::by(running.pid()).programs.is_empty() {
                continue;
            }
            // A stop interrupts the verifier, which then begins anew.
            let held = stop(&running);
            if !held.programs.is_empty() && !held.maps.is_empty() {
                break held;
            }
            running.signal(libc::SIGCONT);
        };
        finish(running);
        held.assert_gone(tool);
    }
}

#[test]
fn killed_while_tracing_nothing_stays() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in TRACERS {
        let running = Tool::start(tool, &[]);
        running.wait_attached();
        let held = kill(running);
        assert!(
            !held.programs.is_empty() && !held.maps.is_empty(),
            "{tool}: {held:?}"
        );
        assert!(
            !held.links.is_empty() || held.perf_events > 0,
            "{tool}: {held:?}"
        );
        held.assert_gone(tool);
    }
}

#[test]
fn killed_while_reporting_nothing_stays() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    for tool in ["profile", "offcputime", "lockstat"] {
        let path = dir.path().join(format!("{tool}.json"));
        let name = std::ffi::CString::new(path.to_str().expect("plain")).expect("no zeros");
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut args = vec!["-o", path.to_str().expect("plain")];
        args.extend(if tool == "profile" {
            &["-I", "-F", "999"][..]
        } else {
            &[]
        });
        let running = Tool::start(tool, &args);
        running.wait_attached();
        // Not before: it tries at its start whether the file can be written.
        let mut reader = fs::File::options();
        let reader = reader.read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let mut reader = reader.expect("a FIFO");
        running.interrupt();
        // The first bytes of the report; more follow than a pipe holds, or it is done and waits for nothing.
        let mut polled = libc::pollfd {
            fd: reader.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        let ready = unsafe { libc::poll(&raw mut polled, 1, 60_000) };
        assert_eq!(ready, 1, "{tool} reports");
        running.signal(libc::SIGSTOP);
        let held = Held::by(running.pid());
        running.signal(libc::SIGKILL);
        running.finish();
        held.assert_gone(tool);
        let mut bytes = [0; 1];
        assert_eq!(reader.read(&mut bytes).expect("a FIFO"), 1);
    }
}

/// SIGXFSZ comes in the middle of writing and ends it as SIGKILL would.
#[test]
fn killed_while_writing_a_file_leaves_none() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for (tool, before) in [
        ("profile", None),
        ("offcputime", None),
        ("lockstat", None),
        ("profile", Some("old")),
    ] {
        let path = dir.path().join("out.json");
        if let Some(text) = before {
            fs::write(&path, text).expect("a file");
        }
        let mut command = Command::new(crate::built(tool));
        command.args(["-q", "-o"]).arg(&path).args(["300ms"]);
        if tool == "profile" {
            command.args(["-I", "-F", "999"]);
        }
        // SAFETY: one system call.
        unsafe {
            command.pre_exec(|| {
                let none = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                let little = libc::rlimit {
                    rlim_cur: 100,
                    rlim_max: 100,
                };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const little);
                Ok(())
            });
        }
        let output = Tool::spawn(tool, command).finish();
        assert_eq!(
            output.code,
            128 + libc::SIGXFSZ,
            "{tool}: {}",
            output.stderr
        );
        let left: Vec<_> = fs::read_dir(dir.path())
            .expect("a directory")
            .flatten()
            .collect();
        assert_eq!(left.len(), usize::from(before.is_some()), "{left:?}");
        if let Some(text) = before {
            assert_eq!(fs::read_to_string(&path).expect("a file"), text);
        }
    }
}

#[test]
fn a_command_that_has_not_begun_goes_with_a_killed_tool() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in COMMANDED {
        // We may be too late ourselves.
        let killed = (0..5).any(|_| killed_before_its_command(tool));
        assert!(killed, "{tool}: stopped too late to show it");
    }
}

/// Whether it was, and had a child.
fn killed_before_its_command(tool: &str) -> bool {
    let running = Tool::start(tool, &["--", "sleep", "60"]);
    let give_up = Instant::now() + PATIENCE;
    loop {
        let held = Held::by(running.pid());
        // The child is there, and no program is attached yet.
        if !held.children.is_empty() && !held.maps.is_empty() {
            break;
        }
        assert!(Instant::now() < give_up, "{tool} starts nothing");
    }
    running.signal(libc::SIGSTOP);
    let held = Held::by(running.pid());
    let begun = held.children.iter().any(|id| {
        let comm = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        comm == "sleep\n"
    });
    running.signal(libc::SIGKILL);
    if begun {
        // It would sleep on with the tool's stdout.
        for id in &held.children {
            // SAFETY: sends a signal.
            unsafe { libc::kill(*id as i32, libc::SIGKILL) };
        }
    }
    running.finish();
    if !begun {
        held.assert_gone(tool);
    }
    !begun
}

#[test]
fn too_few_descriptors_are_one_line_with_the_remedy() {
    let Some(_machine) = beside() else {
        return;
    };
    for tool in TRACERS {
        for limit in [4, 12, 16, 20, 24, 32, 64, 127] {
            // Descriptors that the tests were started with are not the tool's.
            let script = format!(
                "exec 3>&- 4>&-; ulimit -n {limit}; exec {} 200ms 2>&1",
                crate::built(tool).display()
            );
            let mut command = Command::new("bash");
            command.args(["-c", &script]);
            let output = Tool::spawn(tool, command).finish();
            assert_eq!(output.code, 1, "{tool} {limit}: {}", output.stdout);
            let lines: Vec<&str> = output.stdout.lines().collect();
            assert_eq!(lines.len(), 1, "{tool} {limit}: {lines:#?}");
            assert!(
                lines[0].starts_with(&format!("{tool}: ")) && lines[0].contains("ulimit -n"),
                "{tool} {limit}: {lines:?}"
            );
        }
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Samples at 997 Hz of so much CPU time; their number is random by its root.
fn assert_sampled(found: u64, cpu_ns: u64) {
    let expected = cpu_ns as f64 / 1e9 * 997.0;
    let off = expected * 0.02 + 4.0 * expected.sqrt();
    let most = expected + off + stolen_samples(997.0);
    assert!(
        (expected - off..=most).contains(&(found as f64)),
        "{found} samples, {expected} to {most} expected"
    );
}

/// CPU time by the threads' own clocks, samples by ten tools at once.
#[test]
fn ten_at_once_all_tell_the_truth() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::start("spinner", &["--threads", "2", "--seconds", "2"]);
    let pid = workload.pid().to_string();
    let profiles: Vec<Tool> = (0..10)
        .map(|_| Tool::start("profile", &["-j", "-F", "997", "-p", &pid]))
        .collect();
    let waits: Vec<Tool> = (0..10)
        .map(|_| Tool::start("offcputime", &["-j", "-p", &pid]))
        .collect();
    profiles.iter().chain(&waits).for_each(Tool::wait_attached);
    workload.go();
    let cpu_ns: u64 = workload
        .results()
        .iter()
        .map(|thread| number(thread, "oncpu_ns"))
        .sum();
    for tool in profiles {
        tool.interrupt();
        let output = tool.finish();
        assert_eq!(output.code, 0, "{}", output.stderr);
        let report = json(&output.stdout);
        let stacks = report["stacks"].as_array().expect("stacks");
        let samples: u64 = stacks.iter().map(|stack| number(stack, "count")).sum();
        assert_sampled(samples, cpu_ns);
    }
    for tool in waits {
        tool.interrupt();
        let report = json(&tool.finish().stdout);
        let sum = ["oncpu_ns", "runqueue_ns", "blocked_ns"]
            .map(|phase| number(&report["accounting"], phase))
            .iter()
            .sum::<u64>();
        let lifetime = number(&report, "accounting.lifetime_ns");
        assert!(sum.abs_diff(lifetime) <= lifetime / 100, "{report:#}");
        let oncpu_ns = number(&report, "accounting.oncpu_ns");
        assert_cpu_time(oncpu_ns, cpu_ns, 0.05);
    }
    workload.finish();
}

/// Stopped for as long as a workload of two seconds takes: BPF goes on, and what it could not tell is counted.
#[test]
fn a_stopped_tool_goes_on_where_it_was() {
    let Some(_machine) = alone() else {
        return;
    };
    let mut workload = Workload::start("spinner", &["--threads", "2", "--seconds", "2"]);
    let pid = workload.pid().to_string();
    let profile = Tool::start("profile", &["-j", "-F", "997", "-p", &pid]);
    let offcputime = Tool::start("offcputime", &["-j", "-p", &pid]);
    let runqlat = Tool::start("runqlat", &["-j", "-p", &pid, "200ms"]);
    let tools = [&profile, &offcputime, &runqlat];
    tools.iter().for_each(|tool| tool.wait_attached());
    tools.iter().for_each(|tool| tool.signal(libc::SIGSTOP));
    workload.go();
    let results = workload.results();
    tools.iter().for_each(|tool| tool.signal(libc::SIGCONT));
    tools.iter().for_each(|tool| tool.interrupt());
    let cpu_ns: u64 = results
        .iter()
        .map(|thread| number(thread, "oncpu_ns"))
        .sum();
    let report = json(&profile.finish().stdout);
    let stacks = report["stacks"].as_array().expect("stacks");
    let samples: u64 = stacks.iter().map(|stack| number(stack, "count")).sum();
    assert_sampled(samples, cpu_ns);
    let report = json(&offcputime.finish().stdout);
    let oncpu_ns = number(&report, "accounting.oncpu_ns");
    assert_cpu_time(oncpu_ns, cpu_ns, 0.05);

    // One interval is as long as the stop, and says so; none overlaps another.
    let output = runqlat.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let reports: Vec<Value> = output.stdout.lines().map(json).collect();
    let lengths: Vec<u64> = reports
        .iter()
        .map(|report| number(report, "end_ns") - number(report, "start_ns"))
        .collect();
    assert!(lengths.iter().any(|ns| *ns >= 1_900_000_000), "{lengths:?}");
}
