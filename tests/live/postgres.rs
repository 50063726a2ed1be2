//! PostgreSQL of Debian's: a server of one's own, and sessions.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::c_program::run;
use crate::kernel::until;

/// Clients of [`Server::one_hot_row`].
pub(crate) const CLIENTS: u64 = 8;

/// A server of one's own, as the user that its package makes: it refuses to be root's. Dropping it ends it.
pub(crate) struct Server {
    programs: PathBuf,
    pub(crate) dir: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
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

    /// Process that has made all others.
    pub(crate) fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).expect("a server");
        let pid = text.lines().next().expect("a line");
        pid.parse().expect("a PID")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// One of its programs, as its user.
    pub(crate) fn command(&self, name: &str) -> Command {
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
    pub(crate) fn one_hot_row(&self) {
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
    pub(crate) fn await_no_clients(&self) {
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
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
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

/// A client's session: `psql`, which is told what to do.
pub(crate) struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Process that serves it.
    pub(crate) backend: u32,
}

impl Session {
    pub(crate) fn new(server: &Server) -> Self {
        let mut psql = server.command("psql");
        let psql = psql.args(["-XqAt", "-F", " ", "postgres"]);
        let psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn().expect("psql");
        let mut session = Self {
            input: child.stdin.take().expect("a pipe"),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            backend: 0,
        };
        let backend = session.ask("SELECT pg_backend_pid();");
        session.backend = backend.trim().parse().expect("a PID");
        session
    }

    pub(crate) fn tell(&mut self, sql: &str) {
        writeln!(self.input, "{sql}\n\\echo .").expect("psql listens");
    }

    /// Lines of the answer to what was told.
    pub(crate) fn hear(&mut self) -> String {
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("psql speaks");
            assert!(read > 0, "psql has ended: {answer}");
            if line == ".\n" {
                return answer;
            }
            answer += &line;
        }
    }

    pub(crate) fn ask(&mut self, sql: &str) -> String {
        self.tell(sql);
        self.hear()
    }

    /// Event that the process of that ID waits for, as the server says.
    pub(crate) fn event_of(&mut self, backend: u32) -> String {
        let of = format!("FROM pg_stat_activity WHERE pid = {backend};");
        let event = self.ask(&format!("SELECT wait_event {of}"));
        event.trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
