//! A word that a program waits for though its stdin is a tool's.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c_program::run;
use crate::kernel::until;
use crate::prelude::*;

/// A program's way to the word that comes by a FIFO.
pub(crate) struct Word(PathBuf);

impl Word {
    pub(crate) fn of(program: &Program) -> Self {
        let path = program.dir().join("word");
        run(Command::new("mkfifo").arg(&path));
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Waits until the program does for the word, which it gets when the tool has looked at it.
    pub(crate) fn give(&self, tool: &Tool) {
        self.give_after(|| tool.await_rest());
    }

    pub(crate) fn give_after(&self, act: impl FnOnce()) {
        let mut open = File::options();
        // Refused as long as nobody has opened it for reading.
        let open = open.write(true).custom_flags(libc::O_NONBLOCK);
        let mut word = None;
        until("the program waits for the word", || {
            word = open.open(&self.0).ok();
            word.is_some()
        });
        act();
        let mut word = word.expect("it waits");
        word.write_all(b"x\n").expect("it reads");
    }
}
