//! perf's stacks of the same seconds: it copies 16 KiB of the stack with every sample and unwinds them afterwards.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::c_program::run;

/// One user frame.
#[derive(Clone, Debug)]
pub(crate) struct PerfFrame {
    /// Path of the file.
    pub(crate) module: String,
    /// Place in the file.
    pub(crate) offset: u64,
    /// `None`: perf knows no function there.
    pub(crate) name: Option<String>,
}

/// A recording that is under way. Dropping it ends it.
pub(crate) struct Recording {
    perf: Child,
    data: PathBuf,
}

impl Recording {
    /// Records a process for as long.
    pub(crate) fn start(dir: &Path, pid: u32, seconds: &str) -> Self {
        let data = dir.join("perf.data");
        let perf = Command::new("perf")
            .args([
                "record",
                "-q",
                "-F",
                "999",
                "-e",
                "cpu-clock",
                "--call-graph",
                "dwarf,16384",
            ])
            .args(["-p", &pid.to_string(), "-o"])
            .arg(&data)
            .args(["--", "sleep", seconds])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("perf: setup/deps test");
        Self { perf, data }
    }

    /// User stacks of all samples, root first; none of samples without one.
    pub(crate) fn stacks(mut self) -> Vec<Vec<PerfFrame>> {
        let status = self.perf.wait().expect("our own child");
        assert!(status.success(), "perf record: {status}");
        let mut perf = Command::new("perf");
        perf.args(["script", "--no-inline", "-F", "ip,sym,symoff,dso", "-i"]);
        let text = run(perf.arg(&self.data));
        let samples = text.split("\n\n").map(|sample| {
            let mut frames: Vec<PerfFrame> = sample.lines().filter_map(parse).collect();
            frames.reverse();
            frames
        });
        samples.filter(|frames| !frames.is_empty()).collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// `  659ec aeMain+0x1c (/usr/bin/redis-server)`; `None` for the kernel's.
fn parse(line: &str) -> Option<PerfFrame> {
    let (address, rest) = line.trim_start().split_once(' ')?;
    let (symbol, module) = rest.rsplit_once(" (")?;
    let module = module.strip_suffix(')')?;
    if module.starts_with("[kernel") {
        return None;
    }
    let name = symbol.rsplit_once("+0x").map(|(name, _)| name.to_owned());
    Some(PerfFrame {
        module: module.to_owned(),
        offset: u64::from_str_radix(address, 16).ok()?,
        name,
    })
}
