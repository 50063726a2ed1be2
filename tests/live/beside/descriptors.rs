//! Open files: the tool takes as many as it may, keeps within that, and leaves its command what the caller had.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use crate::prelude::*;

/// Mapped files; more than the limit below has room for.
const FILES: u16 = 250;
/// A library whose unwind table takes a while; the four bytes that `patch` looks for are in it once.
const LIBRARY: &str = r#"
	.text
	.globl f
f:
	.cfi_startproc
	nop
	.cfi_def_cfa_offset 16384
	nop
	.cfi_endproc
	.rept 20000
	.cfi_startproc
	nop
	.cfi_def_cfa_offset 64
	nop
	.cfi_endproc
	.endr
"#;

fn bash(tool: &str, script: &str) -> Tool {
    let mut command = Command::new("bash");
    command.args(["-c", script]);
    Tool::spawn(tool, command)
}

/// Makes it another library: in `def_cfa_offset 16384` the offset becomes one of `at`'s own.
fn patch(library: &[u8], at: u16) -> Vec<u8> {
    let mut patched = library.to_vec();
    let marker = [0x0e, 0x80, 0x80, 0x01];
    let found = library.windows(4).position(|bytes| bytes == marker);
    let found = found.expect("the offset is in it");
    let [low, high] = ((at * 8 % 128) | ((at * 8 / 128) << 8)).to_le_bytes();
    patched[found + 1] |= low;
    patched[found + 2] |= high;
    patched
}

/// A file that is mapped as code. All tools that look at the whole machine read it, so that it may not outlast its test.
struct Code(*mut libc::c_void, usize);

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which nothing is used.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

fn map(path: &Path) -> Code {
    let file = File::open(path).expect("just written");
    let length = usize::try_from(file.metadata().expect("open").len()).expect("small");
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a fresh mapping of a file that is open; nothing in it is used.
    let at = unsafe {
        let none = std::ptr::null_mut();
        libc::mmap(
            none,
            length,
            protection,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    Code(at, length)
}

#[test]
fn a_command_has_its_callers_limit_and_the_tool_what_is_allowed() {
    let _machine = Machine::beside();
    let tool = crate::built("profile");
    let script = format!(
        "ulimit -Sn 300; ulimit -Hn 3000; exec {} -q -- \
         bash -c 'ulimit -Sn >&2; grep \"open files\" /proc/$PPID/limits >&2'",
        tool.display()
    );
    let output = bash("profile", &script).finish().ok();

    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(lines[0], "300", "{lines:?}");
    let limits: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(limits[..5], ["Max", "open", "files", "3000", "3000"]);
}

#[test]
fn more_files_than_may_be_open_get_their_tables_all_the_same() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = |name: &str| dir.path().join(name);
    fs::write(path("library.s"), LIBRARY).expect("written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-o"]);
    cc.args([path("library.so"), path("library.s")]);
    assert!(cc.status().expect("cc runs").success());
    let library = fs::read(path("library.so")).expect("just made");
    let copy = |at| {
        let copy = path(&format!("{at}.so"));
        fs::write(&copy, patch(&library, at)).expect("written");
        map(&copy)
    };
    let _mapped: Vec<Code> = (0..FILES).map(copy).collect();
    let results = path("results.json");
    let script = format!(
        "ulimit -n 256; exec {} -v -p {} -o {} 1",
        crate::built("profile").display(),
        std::process::id(),
        results.display()
    );
    let output = bash("profile", &script).finish().ok();

    assert!(fs::metadata(&results).is_ok_and(|file| file.len() > 0));
    let said = output.stderr.split_once(" unwind tables of ");
    let made = said.and_then(|(before, _)| before.rsplit(' ').next()?.parse::<u16>().ok());
    assert!(made.is_some_and(|made| made >= FILES), "{}", output.stderr);
}
