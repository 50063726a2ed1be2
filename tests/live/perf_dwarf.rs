//! perf's stacks of the same seconds: it copies 16 KiB of the stack with every sample and unwinds them afterwards.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

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

/// A recording, not begun yet. Dropping it ends it.
pub(crate) struct Recording {
    perf: Child,
    data: PathBuf,
    control: File,
    replies: BufReader<File>,
}

fn fifo(path: &Path) -> File {
    let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL in it");
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // For reading and writing: neither end has to wait for perf to open its own.
    let open = OpenOptions::new().read(true).write(true).open(path);
    open.expect("our own fifo")
}

impl Recording {
    /// Attaches to a process; nothing is recorded yet.
    ///
    /// Its rings hold half a second: of the 30 samples that fit by default, those are missing that came while perf itself
    /// waited for a CPU, and they are no random part.
    pub(crate) fn prepare(dir: &Path, pid: u32) -> Self {
        let [data, control, replies] =
            ["perf.data", "control", "replies"].map(|name| dir.join(name));
        let fifos = format!("fifo:{},{}", control.display(), replies.display());
        let (control, replies) = (fifo(&control), BufReader::new(fifo(&replies)));
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
            .args([
                "-m",
                "8M",
                "-D",
                "-1",
                "--control",
                &fifos,
                "-p",
                &pid.to_string(),
                "-o",
            ])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("perf: setup/deps test");
        let mut recording = Self {
            perf,
            data,
            control,
            replies,
        };
        recording.order("ping");
        recording
    }

    /// Has perf do something, and waits until it has.
    fn order(&mut self, what: &str) {
        writeln!(self.control, "{what}").expect("perf listens");
        let mut reply = String::new();
        self.replies.read_line(&mut reply).expect("perf answers");
        assert_eq!(reply.trim_matches(['\n', '\0']), "ack", "{what}");
    }

    /// Records for as long.
    pub(crate) fn record(&mut self, time: Duration) {
        self.order("enable");
        thread::sleep(time);
        self.order("disable");
    }

    /// User stacks of all samples, root first; none of samples without one.
    pub(crate) fn stacks(mut self) -> Vec<Vec<PerfFrame>> {
        self.order("stop");
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
