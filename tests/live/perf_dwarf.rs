//! perf's stacks of the same seconds: it copies 16 KiB of the stack with every sample and unwinds them afterwards.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
    pid: u32,
    data: PathBuf,
    errors: PathBuf,
    control: File,
    replies: File,
}

/// Far beyond what perf needs for anything.
const PATIENCE: Duration = Duration::from_secs(300);

fn fifo(path: &Path) -> File {
    let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL in it");
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // For reading and writing: neither end has to wait for perf to open its own. Nor for its replies, should it be gone.
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .expect("our own fifo")
}

impl Recording {
    /// Attaches to a process; nothing is recorded yet.
    ///
    /// Its rings hold half a second: of the 30 samples that fit by default, those are missing that came while perf itself
    /// waited for a CPU, and they are no random part. The clocks are those of CPUs: that of a task stands while it is off its CPU,
    /// and what is left of its period is often over just after it is back (33 % of redis's samples lay in epoll_wait then; where
    /// CPUs are sampled, 10 %).
    pub(crate) fn prepare(dir: &Path, pid: u32) -> Self {
        // Not as often as profile: two clocks of a CPU in step would see one another.
        let samples = "-a -F 887 -e cpu-clock --call-graph dwarf,16384 -m 8M";
        Self::prepare_with(dir, pid, samples)
    }

    /// The same of what `perf record OPTIONS` records.
    pub(crate) fn prepare_with(dir: &Path, pid: u32, options: &str) -> Self {
        let [data, errors, control, replies] =
            ["perf.data", "errors", "control", "replies"].map(|name| dir.join(name));
        let fifos = format!("fifo:{},{}", control.display(), replies.display());
        let (control, replies) = (fifo(&control), fifo(&replies));
        let perf = Command::new("perf")
            .args(["record", "-q"])
            .args(options.split(' '))
            .args(["-D", "-1", "--control", &fifos, "-o"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(File::create(&errors).expect("a file"))
            .spawn()
            .expect("perf: setup/deps test");
        let mut recording = Self {
            perf,
            pid,
            data,
            errors,
            control,
            replies,
        };
        recording.order("ping");
        recording
    }

    /// Has perf do something, and waits until it has.
    pub(crate) fn order(&mut self, what: &str) {
        writeln!(self.control, "{what}").expect("perf listens");
        let (mut reply, give_up) = (Vec::new(), Instant::now() + PATIENCE);
        // It ends every reply with a newline and a NUL.
        while reply.last() != Some(&0) {
            let _ = self.replies.read_to_end(&mut reply);
            let ended = self.perf.try_wait().expect("our own child");
            if ended.is_some() || Instant::now() > give_up {
                let errors = fs::read_to_string(&self.errors).unwrap_or_default();
                panic!("perf does not {what}: {ended:?} {errors}");
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(reply, b"ack\n\0", "{what}");
    }

    /// From now on it records.
    pub(crate) fn begin(&mut self) {
        self.order("enable");
    }

    /// User stacks of all samples, root first; none of samples without one.
    pub(crate) fn stacks(self) -> Vec<Vec<PerfFrame>> {
        let pid = self.pid.to_string();
        let text = self.script(&["--pid", &pid, "--no-inline", "-F", "ip,sym,symoff,dso"]);
        let samples = text.split("\n\n").map(|sample| {
            let mut frames: Vec<PerfFrame> = sample.lines().filter_map(parse).collect();
            frames.reverse();
            frames
        });
        samples.filter(|frames| !frames.is_empty()).collect()
    }

    /// Ends it; what `perf script` says of it.
    pub(crate) fn script(mut self, options: &[&str]) -> String {
        writeln!(self.control, "stop").expect("perf listens");
        let give_up = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.perf.try_wait().expect("our own child") {
                break status;
            }
            assert!(Instant::now() < give_up, "perf does not stop");
            thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "perf record: {status}");
        let mut perf = Command::new("perf");
        run(perf.arg("script").args(options).arg("-i").arg(&self.data))
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
