//! Test programs: built by cargo, run one by one, with a limit of time.

use std::collections::HashMap;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tree::Tree;

/// What a test may take, times what it took of the unchanged tree, and at least.
const PATIENCE: u32 = 10;
const LEAST: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    path: PathBuf,
    /// Its package's directory, where cargo runs it.
    package: PathBuf,
}

pub(crate) struct Programs {
    pub(crate) target: PathBuf,
    /// Limits of time, by arguments of cargo and filter.
    limits: HashMap<(String, String), Duration>,
}

impl Programs {
    pub(crate) fn new(target: PathBuf) -> Self {
        Self {
            target,
            limits: HashMap::new(),
        }
    }

    /// `cargo test ARGUMENTS --no-run`; none if it does not compile.
    pub(crate) fn build(&self, tree: &Tree, arguments: &str) -> Result<Option<Vec<Program>>> {
        let built = self
            .cargo(tree, "test")
            .args(["--no-run", "--message-format", "json"])
            .args(arguments.split(' '))
            .output()
            .context("cargo")?;
        if !built.status.success() {
            return Ok(None);
        }
        let messages = String::from_utf8_lossy(&built.stdout).into_owned();
        let programs = messages.lines().filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let is_test = message["profile"]["test"].as_bool()?;
            let package = Path::new(message["manifest_path"].as_str()?).parent()?;
            is_test.then_some(Program {
                name: message["target"]["name"].as_str()?.to_owned(),
                path: message["executable"].as_str()?.into(),
                package: package.to_owned(),
            })
        });
        Ok(Some(programs.collect()))
    }

    fn cargo(&self, tree: &Tree, command: &str) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut cargo = Command::new(cargo);
        cargo
            .args([command, "--locked"])
            .current_dir(tree.path(""))
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null());
        cargo
    }

    /// Makes the programs that live tests trace, which are none of their own package's.
    pub(crate) fn make_workloads(&self, tree: &Tree) -> Result<()> {
        let built = self
            .cargo(tree, "build")
            .args(["-q", "-p", "usekit-workloads", "--bins"])
            .status()
            .context("cargo")?;
        ensure!(built.success(), "workloads do not compile");
        Ok(())
    }

    /// Runs the unchanged tree's programs once: they must pass, and it takes as long as it takes.
    pub(crate) fn learn(&mut self, tree: &Tree, arguments: &str, filter: &str) -> Result<()> {
        let key = (arguments.to_owned(), filter.to_owned());
        if self.limits.contains_key(&key) {
            return Ok(());
        }
        let programs = self.build(tree, arguments)?;
        let programs = programs.with_context(|| format!("{arguments} does not compile"))?;
        ensure!(!programs.is_empty(), "{arguments} has no tests");
        let began = Instant::now();
        for program in &programs {
            let failed = self.run(program, filter, Duration::MAX)?;
            ensure!(
                failed.is_none(),
                "unchanged, {} fails: {failed:?}",
                program.name
            );
        }
        let limit = LEAST.max(began.elapsed() * PATIENCE);
        self.limits.insert(key, limit);
        Ok(())
    }

    /// What fails first of programs that are built.
    pub(crate) fn first_failure(
        &self,
        programs: &[Program],
        arguments: &str,
        filter: &str,
    ) -> Result<Option<String>> {
        let limit = self.limits[&(arguments.to_owned(), filter.to_owned())];
        for program in programs {
            if let Some(failed) = self.run(program, filter, limit)? {
                return Ok(Some(failed));
            }
        }
        Ok(None)
    }

    fn run(&self, program: &Program, filter: &str, limit: Duration) -> Result<Option<String>> {
        // A pipe that nobody reads would stop it, and what it leaves running would keep one open.
        let mut output = tempfile::tempfile()?;
        let child = Command::new(&program.path)
            .arg(filter)
            .current_dir(&program.package)
            .env("CARGO_MANIFEST_DIR", &program.package)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("REQUIRE_LIVE", "1")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("run {}", program.path.display()))?;
        let Some(status) = wait(child, limit)? else {
            return Ok(Some(format!("{}: out of time", program.name)));
        };
        if status.success() {
            return Ok(None);
        }
        output.rewind()?;
        let mut said = Vec::new();
        output.read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said);
        let test = said.lines().find_map(|line| {
            let rest = line.strip_prefix("test ")?;
            rest.strip_suffix(" ... FAILED")
        });
        // A crash takes the report with it.
        let what = test.map_or_else(|| status.to_string(), ToOwned::to_owned);
        Ok(Some(format!("{}: {what}", program.name)))
    }
}

/// None if it took too long: it and what it started are ended.
fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > limit {
            let group = i32::try_from(child.id())?;
            // SAFETY: takes plain numbers; the child is not waited for yet, so that the group is its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
