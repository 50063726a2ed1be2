//! Disks for tests: loop devices over memory, the kernel's accounts of disks, and fio's own.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::c_program;

/// A loop device over a file. Dropping it detaches it.
pub(crate) struct LoopDisk {
    /// `/dev/loopN`
    pub(crate) path: String,
    /// `loopN`
    pub(crate) name: String,
    /// The file behind it.
    pub(crate) file: PathBuf,
    /// Udev, where there is one, reads nothing from it while it is locked: nobody but the test does.
    locked: Option<fs::File>,
    _dir: tempfile::TempDir,
}

impl LoopDisk {
    /// Of so many MiB of memory.
    pub(crate) fn new(mib: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let dir = dir.expect("a directory");
        let file = dir.path().join("disk");
        let blank = fs::File::create(&file).expect("a file");
        blank.set_len(mib << 20).expect("a size");
        Self::over(dir, file, "--direct-io=off")
    }

    /// Of so many MiB on the machine's own disk, past its cache.
    pub(crate) fn on_disk(mib: usize) -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let file = dir.path().join("disk");
        fs::write(&file, vec![1; mib << 20]).expect("a file");
        run("sync", &["-f", file.to_str().expect("UTF-8")]);
        Self::over(dir, file, "--direct-io=on")
    }

    fn over(dir: tempfile::TempDir, file: PathBuf, direct: &str) -> Self {
        let backing = file.to_str().expect("UTF-8");
        let path = run("losetup", &["-f", "--show", direct, backing]);
        let path = path.trim().to_owned();
        let name = path.trim_start_matches("/dev/").to_owned();
        let mut disk = Self {
            path,
            name,
            file,
            locked: None,
            _dir: dir,
        };
        disk.lock();
        disk.set_defaults();
        disk
    }

    /// Has udev end its looks at the new disk, and begin no other.
    fn lock(&mut self) {
        // There may be none.
        let settle = ["settle", "--timeout=10"];
        let _ = Command::new("udevadm").args(settle).status();
        let file = fs::File::open(&self.path).expect("a disk");
        // SAFETY: takes a descriptor that is open.
        let rc = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(rc, 0, "it is nobody else's");
        self.locked = Some(file);
    }

    /// Writes one of the files in `/sys/block/loopN/queue`.
    pub(crate) fn set(&self, setting: &str, value: &str) {
        let path = format!("/sys/block/{}/queue/{setting}", self.name);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Settings outlive what is attached.
    fn set_defaults(&self) {
        let settings = [
            ("iostats", "1"),
            ("scheduler", "none"),
            ("wbt_lat_usec", "-1"),
            ("nomerges", "0"),
        ];
        for (setting, value) in settings {
            self.set(setting, value);
        }
    }

    /// As [`disk_number`].
    pub(crate) fn number(&self) -> u32 {
        disk_number(&self.name)
    }

    /// Its counters.
    pub(crate) fn stat(&self) -> Stat {
        Stat::of(&self.name)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.set_defaults();
        }
        drop(self.locked.take());
        let _ = Command::new("losetup").args(["-d", &self.path]).status();
    }
}

/// A disk's number as the log has it: the major one from bit 20 on, and the minor one.
pub(crate) fn disk_number(name: &str) -> u32 {
    let path = format!("/sys/block/{name}/dev");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (major, minor) = text.trim().split_once(':').expect("MAJOR:MINOR");
    let parse = |number: &str| number.parse::<u32>().expect("a number");
    parse(major) << 20 | parse(minor)
}

/// The output of a command that succeeds.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    c_program::run(Command::new(program).args(args))
}

/// Requests, 512-byte sectors and ms of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) sectors: u64,
    pub(crate) ms: u64,
}

/// `/sys/block/DEV/stat`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) read: Counts,
    pub(crate) write: Counts,
    pub(crate) discard: Counts,
    pub(crate) flush: Counts,
    pub(crate) merged: u64,
}

impl Stat {
    /// Of a disk.
    pub(crate) fn of(name: &str) -> Self {
        let path = format!("/sys/block/{name}/stat");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let numbers: Vec<u64> = text
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let counts = |requests: usize, sectors: Option<usize>, ms: usize| Counts {
            requests: numbers[requests],
            sectors: sectors.map_or(0, |at| numbers[at]),
            ms: numbers[ms],
        };
        Self {
            read: counts(0, Some(2), 3),
            write: counts(4, Some(6), 7),
            discard: counts(11, Some(13), 14),
            flush: counts(15, None, 16),
            merged: numbers[1] + numbers[5],
        }
    }

    /// The classes by the tool's words, since `before`.
    pub(crate) fn since(&self, before: &Self) -> [(&'static str, Counts); 4] {
        let difference = |now: Counts, then: Counts| Counts {
            requests: now.requests - then.requests,
            sectors: now.sectors - then.sectors,
            ms: now.ms - then.ms,
        };
        [
            ("read", difference(self.read, before.read)),
            ("write", difference(self.write, before.write)),
            ("discard", difference(self.discard, before.discard)),
            ("flush", difference(self.flush, before.flush)),
        ]
    }
}

/// Runs fio on a file or device with further options; its report of the job.
pub(crate) fn fio(target: &str, options: &str) -> Value {
    let filename = format!("--filename={target}");
    let mut args = vec![
        "--name=test",
        "--output-format=json+",
        "--direct=1",
        // It measures when it runs: that must not be late.
        "--nice=-20",
        &filename,
    ];
    args.extend(options.split_whitespace());
    let output = run("fio", &args);
    let report: Value =
        serde_json::from_str(&output[output.find('{').expect("JSON")..]).expect("JSON");
    report["jobs"][0].clone()
}

/// What a script says on stdout and stderr with a file system of one page at `dir`.
pub(crate) fn on_full_disk(dir: &str, script: &str) -> (String, String) {
    let script = format!("mount -t tmpfs -o size=4k none {dir} && {script}");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output();
    let output = output.expect("unshare runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
