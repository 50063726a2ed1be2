//! A database under a load that wants one row: lockstat's account of its semaphores against the log of the kernel's events.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use oracle::{Below, Bracket, Engine, Logs, futex};

use crate::c_program::run;
use crate::kernel::until;
use crate::lockstat_played::waited;
use crate::prelude::*;

const CLIENTS: u64 = 8;

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
            "-k {} -c listen_addresses= -c fsync=off -c autovacuum=off -c deadlock_timeout=1h \
             -c log_connections=on -c log_line_prefix=%p:",
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
        let clients = CLIENTS.to_string();
        let load = ["-n", "-c", &clients, "-j", "2", "-t", "4000", "-f"];
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
        until("clients go", || {
            !fs::read_dir("/proc").expect("/proc").any(is_client)
        });
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Those that are there, and those that have served clients, each of which the log names.
    fn processes(&self) -> BTreeSet<u32> {
        let text = fs::read_to_string(self.log()).expect("the server's log");
        let logged = text
            .lines()
            .filter_map(|line| line.split_once(':')?.0.parse().ok());
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let is_ours = |path: &PathBuf| {
            fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == "postgres\n")
        };
        let there = entries.map(|entry| entry.path()).filter(is_ours);
        let there = there.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
        logged.chain(there).collect()
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

#[test]
fn processes_that_wait_for_one_row_are_shown_where_they_do() {
    let _machine = Machine::alone();
    let server = Server::start();
    let table = "CREATE TABLE hot AS SELECT 1 AS id, 0 AS n";
    run(server.command("psql").args(["-q", "-c", table, "postgres"]));
    let folded = server.dir.path().join("waits.folded");
    let options = "-U -j --class sem --comm postgres -o";
    let below = Below::attach(&[Engine::Scheduler, Engine::Calls]).expect("the oracle");
    let tool = Tool::attached("lockstat", format!("{options} {}", folded.display()));
    let around = below.around().expect("the oracle");
    server.one_hot_row();
    server.await_no_clients();
    tool.interrupt();
    let report = tool.finish().report();
    let logs = around.take().expect("whole logs");
    let total_ns = assert_semaphores(&report, &logs, &server.processes());

    // The folded stacks have the same sum, and name the culprit: who changes a row waits in the lock manager for who has changed it.
    let text = fs::read_to_string(&folded).expect("folded stacks");
    let through = |function: &str| folded_sum(text.lines().filter(|line| line.contains(function)));
    let (all, update) = (through(";"), through(";heap_update;"));
    eprintln!("{update} of {all} us in heap_update");
    assert!(all.abs_diff(total_ns / 1000) <= 1 + text.lines().count() as u64);
    assert!(update * 2 > all && through(";LWLockAcquire;") * 10 > all * 9);
    // Every process sleeps on a semaphore of its own: a row is of all who ask in one place.
    let locks = list(&report, "locks");
    assert_eq!(
        (&locks[0]["class"], &locks[0]["pid"]),
        (&"lwlock".into(), &0.into())
    );
    let names: BTreeSet<&str> = locks
        .iter()
        .filter_map(|lock| lock["name"].as_str())
        .collect();
    assert_eq!(names.len(), locks.len(), "{names:?}");
}

/// Each process waited as often as the log says, for a time inside its bracket. Gives the sum, ns.
fn assert_semaphores(report: &Value, logs: &Logs, processes: &BTreeSet<u32>) -> u64 {
    let locks = list(report, "locks");
    let (mut total, mut raced, mut waiters) = ((0, 0), 0, 0);
    for process in processes {
        let waits = futex::waits(logs, *process, number(report, "end_ns")).expect("agreement");
        let truth: Bracket = waits.iter().map(|wait| wait.pair).collect();
        let (count, ns) = waited(locks, (*process).into());
        assert_bracketed(process, (count, ns), &truth, &report["losses"]);
        total = (total.0 + count, total.1 + ns);
        raced += futex::raced(logs, *process, u64::MAX).expect("agreement");
        waiters += u64::from(count > 0);
    }
    eprintln!("{total:?} of {waiters} processes, {raced} raced");
    let sums = ["contentions", "total_ns", "raced"].map(|field| sum(locks, field));
    assert_eq!(sums, [total.0, total.1, raced]);
    assert!(waiters >= CLIENTS, "{waiters} processes waited");
    total.1
}
