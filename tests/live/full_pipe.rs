//! A file of a tool's that takes nothing: the tool waits in the midst of its report, however short that is.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::kernel::until;

/// A FIFO, and how full it is.
pub(crate) struct FullPipe {
    path: PathBuf,
    reader: Option<File>,
    filled: usize,
}

impl FullPipe {
    /// Empty, and nobody reads it: a tool that tries at its start whether it can write there goes on.
    pub(crate) fn new(path: PathBuf) -> Self {
        let name = CString::new(path.to_str().expect("plain")).expect("no zeros");
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        Self {
            path,
            reader: None,
            filled: 0,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on it has a reader, and no room.
    pub(crate) fn fill(&mut self) {
        let mut options = File::options();
        let options = options.custom_flags(libc::O_NONBLOCK);
        let reader = options.clone().read(true).open(&self.path);
        self.reader = Some(reader.expect("a FIFO"));
        let writer = options.write(true).open(&self.path);
        let mut writer = writer.expect("a FIFO with a reader");
        while writer.write_all(b".").is_ok() {
            self.filled += 1;
        }
    }

    /// Waits until a thread of the process waits for room in a pipe.
    pub(crate) fn await_writer(&self, pid: u32) {
        let path = format!("/proc/{pid}/task");
        until("it waits in the midst of its report", || {
            let tasks = fs::read_dir(&path).expect("its threads");
            tasks.flatten().any(|task| {
                let at = fs::read_to_string(task.path().join("wchan"));
                at.is_ok_and(|at| at.ends_with("pipe_write"))
            })
        });
    }

    /// Bytes that writers have written and write until the last of them has gone.
    pub(crate) fn drain(self) -> Vec<u8> {
        let mut reader = self.reader.expect("it is filled");
        // SAFETY: sets flags of a file that is ours.
        let set = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, 0) };
        assert_eq!(set, 0);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("a FIFO");
        bytes.split_off(self.filled)
    }
}
