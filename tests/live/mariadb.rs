//! MariaDB of Debian's: a server of one's own.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::c_program::run;
use crate::kernel::until;

/// A server of one's own. Dropping it ends it.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    process: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let data = format!("--datadir={}", dir.path().join("data").display());
        let install = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--user=root",
                &data,
            ])
            .stdout(Stdio::null())
            .status();
        let is_made = install
            .expect("mariadb-server (setup/deps bench)")
            .success();
        assert!(is_made, "mariadb-install-db");
        let log = fs::File::create(dir.path().join("log")).expect("a file");
        let process = Command::new("mariadbd")
            .args(["--no-defaults", "--user=root", "--skip-networking", &data])
            .arg(format!("--socket={}", dir.path().join("socket").display()))
            .stderr(log.try_clone().expect("a file"))
            .stdout(log)
            .spawn()
            .expect("mariadbd");
        let server = Self { dir, process };
        until("the server answers", || {
            let ask = server
                .client()
                .args(["-e", "SELECT 1"])
                .stderr(Stdio::null())
                .output();
            ask.expect("mariadb").status.success()
        });
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A client, which answers in plain lines.
    pub(crate) fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-N", "-u", "root"]);
        client.arg(format!(
            "--socket={}",
            self.dir.path().join("socket").display()
        ));
        client
    }

    pub(crate) fn ask(&self, sql: &str) -> String {
        let answer = self.client().args(["-e", sql]).output().expect("mariadb");
        assert!(
            answer.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&answer.stderr)
        );
        String::from_utf8(answer.stdout).expect("text")
    }

    /// One of its counters.
    pub(crate) fn status(&self, name: &str) -> u64 {
        let answer = self.ask(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        let value = answer.split_whitespace().last().expect("a value");
        value.parse().expect("a number")
    }

    /// Clients that each do this, all at once.
    pub(crate) fn all_at_once(&self, clients: usize, sql: &str) {
        let one = || {
            let mut client = self.client();
            run(client.args(["-e", sql]).stdout(Stdio::null()));
        };
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(one);
            }
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
