//! A database under a load that wants one row: lockstat's account of its semaphores against perf's of its system calls.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::c_program::run;
use crate::cpu_times::stolen_ns;
use crate::kernel::alone;
use crate::perf_dwarf::Recording;
use crate::tool::Tool;
use crate::workload::number;

const EAGAIN: &str = "0xfffffffffffffff5";

/// A server of one's own, as the user that its package makes: it refuses to be root's. Dropping it ends it.
struct Server {
    programs: PathBuf,
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let versions = fs::read_dir("/usr/lib/postgresql").expect("postgresql (setup/deps test)");
        let versions = versions.map(|entry| entry.expect("an entry").path().join("bin"));
        let programs = versions.max().expect("a version");
        let dir = tempfile::tempdir().expect("a directory");
        run(Command::new("chown").arg("postgres").arg(dir.path()));
        let server = Self { programs, dir };
        run(server
            .command("initdb")
            .args(["-A", "trust", "-N", "-D"])
            .arg(server.data()));
        let options = format!(
            "-k {} -c listen_addresses= -c fsync=off -c autovacuum=off -c deadlock_timeout=1h",
            server.dir.path().display()
        );
        run(server
            .command("pg_ctl")
            .args(["start", "-w", "-s", "-o", &options, "-l"])
            .arg(server.log())
            .arg("-D")
            .arg(server.data()));
        server
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// One of its programs, as its user.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
            .arg(self.programs.join(name))
            .env("PGHOST", self.dir.path())
            .env("LC_ALL", "C")
            .current_dir(self.dir.path());
        command
    }

    /// Eight clients change the same row.
    fn one_hot_row(&self) {
        let script = self.dir.path().join("hot.sql");
        fs::write(&script, "UPDATE hot SET n = n + 1 WHERE id = 1;\n").expect("a file");
        let load = ["-n", "-c", "8", "-j", "2", "-t", "4000", "-f"];
        run(self
            .command("pgbench")
            .args(load)
            .arg(&script)
            .arg("postgres"));
    }

    /// Until the processes that served clients have gone, locks and all.
    fn await_no_clients(&self) {
        let is_client = |entry: std::io::Result<fs::DirEntry>| {
            let command = entry.and_then(|entry| fs::read(entry.path().join("cmdline")));
            command.is_ok_and(|command| {
                let command = String::from_utf8_lossy(&command);
                command.starts_with("postgres: ") && command.contains("[local]")
            })
        };
        let give_up = Instant::now() + Duration::from_secs(10);
        while fs::read_dir("/proc").expect("/proc").any(is_client) {
            assert!(Instant::now() < give_up, "clients stay");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = self.command("pg_ctl");
        let stop = stop
            .args(["stop", "-s", "-m", "immediate", "-D"])
            .arg(self.data());
        let _ = stop.status();
    }
}

/// Futex waits of some threads: those that slept, those that need not have, and ns of the former.
#[derive(Debug, Default)]
struct Waits {
    slept: u64,
    raced: u64,
    ns: u64,
}

fn perfs(script: &str) -> Waits {
    let mut begun: HashMap<&str, u64> = HashMap::new();
    let mut waits = Waits::default();
    for line in script.lines() {
        assert!(
            !line.contains("PERF_RECORD_LOST"),
            "perf's rings are too small"
        );
        // `TID SECONDS.NANOSECONDS: syscalls:sys_enter_futex: uaddr: 0x…, op: 0x00000189, …`, `…sys_exit_futex: 0x0`.
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("{line:?}"));
        let (tid, time, event, result) = (word(), word(), word(), word());
        let (seconds, ns) = time.trim_end_matches(':').split_once('.').expect("a time");
        let parse = |digits: &str| digits.parse::<u64>().expect("digits");
        let time_ns = parse(seconds) * 1_000_000_000 + parse(ns);
        if event.contains("enter") {
            let (_, operation) = line.split_once("op: 0x").expect("an operation");
            let operation = u32::from_str_radix(&operation[..8], 16).expect("hexadecimal");
            if matches!(operation & 0x7f, 0 | 9) {
                begun.insert(tid, time_ns);
            }
        } else if let Some(from_ns) = begun.remove(tid) {
            match result {
                "0x0" => (waits.slept, waits.ns) = (waits.slept + 1, waits.ns + time_ns - from_ns),
                EAGAIN => waits.raced += 1,
                _ => panic!("{line:?}"),
            }
        }
    }
    waits
}

#[test]
fn processes_that_wait_for_one_row_are_shown_where_they_do() {
    let Some(_machine) = alone() else {
        return;
    };
    let server = Server::start();
    run(server.command("psql").args([
        "-q",
        "-c",
        "CREATE TABLE hot AS SELECT 1 AS id, 0 AS n",
        "postgres",
    ]));
    let events = [
        "-e",
        "syscalls:sys_enter_futex",
        "-e",
        "syscalls:sys_exit_futex",
    ];
    let mut recording = Recording::of(server.dir.path(), 0, &events);
    let folded = server.dir.path().join("waits.folded");
    let options = ["-U", "-j", "--class", "sem", "--comm", "postgres", "-o"];
    let file = folded.to_str().expect("plain");
    let tool = Tool::start("lockstat", &[&options[..], &[file]].concat());
    tool.wait_attached();
    recording.begin();
    server.one_hot_row();
    server.await_no_clients();
    tool.interrupt();
    let output = tool.finish();
    let fields = ["-F", "tid,time,event,trace", "--ns", "--show-lost-events"];
    let script = recording.script(&[&["--comm", "postgres"], &fields[..]].concat());
    let perf = perfs(&script);

    let report = output.report();
    let locks = report["locks"].as_array().expect("locks");
    let sum = |field: &str| locks.iter().map(|lock| number(lock, field)).sum::<u64>();
    let (waits, raced, total_ns) = (sum("contentions"), sum("raced"), sum("total_ns"));
    eprintln!("{waits} waits, {raced} raced, {total_ns} ns; perf {perf:?}");
    // A wait whose end comes before the thread is off its CPU is none.
    assert_eq!(waits + raced, perf.slept + perf.raced);
    assert!(waits <= perf.slept && waits + 1 + perf.slept / 50 >= perf.slept);
    // perf's has the ways into the kernel and out of it, and what its own events take there.
    let ways_ns = 20_000 * perf.slept + perf.ns / 50 + stolen_ns();
    assert!(total_ns <= perf.ns && total_ns + ways_ns >= perf.ns);

    // The folded stacks have the same sum, and name the culprit: who changes a row waits in the lock manager for who has changed it.
    let text = fs::read_to_string(&folded).expect("folded stacks");
    let through = |function: &str| -> u64 {
        let lines = text.lines().filter(|line| line.contains(function));
        let values = lines.map(|line| {
            line.rsplit(' ')
                .next()
                .and_then(|us| us.parse::<u64>().ok())
        });
        values.map(|us| us.expect("a number")).sum()
    };
    let (all, update) = (through(";"), through(";heap_update;"));
    eprintln!("{update} of {all} us in heap_update");
    assert!(all.abs_diff(total_ns / 1000) <= 1 + text.lines().count() as u64);
    assert!(update * 2 > all && through(";LWLockAcquire;") * 10 > all * 9);
    assert!(locks.iter().all(|lock| lock["caller"] == "PGSemaphoreLock"));
}
