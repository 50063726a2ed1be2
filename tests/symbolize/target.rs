//! Small C programs that print addresses of their own code and then wait.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use profile::frame::Frame;
use symbols::{Location, Options, Symbolizer};
use tempfile::TempDir;

/// `hot` is reached by nobody: only its address matters. `chain` tells the address inside two inlined functions.
pub(crate) const SOURCE: &str = r#"
#include <stdio.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>
static __attribute__((noinline, used)) int hot(int x) { for (volatile int i = 0; i < x; i++) ; return x; }
static inline __attribute__((always_inline)) unsigned long inner(void) {
    unsigned long pc;
    __asm__ volatile("lea 0(%%rip), %0\n\tnop" : "=r"(pc));
    return pc;
}
static inline __attribute__((always_inline)) unsigned long middle(void) { return inner() + 0; }
__attribute__((noinline, used)) unsigned long chain(void) { unsigned long pc = middle(); hot(1); return pc; }
int main(int argc, char **argv) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%lx %lx %ld %d %lx\n", (unsigned long)hot + 4, chain(), now.tv_sec * 1000000000L + now.tv_nsec, getpid(), getauxval(33));
    fflush(stdout);
    if (argc == 1) pause();
    return 0;
}
"#;

/// Says why a test cannot run here; with `REQUIRE_LIVE=1` that is a failure.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("REQUIRE_LIVE").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

/// The functions at the second address of [`SOURCE`], where there is debug information.
pub(crate) const INLINED: [&str; 3] = ["chain", "middle", "inner"];

/// A directory in which programs are made.
pub(crate) struct Dir(TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs words there, split at blanks.
    #[track_caller]
    pub(crate) fn run(&self, words: &str) {
        self.run_all(&words.split(' ').collect::<Vec<_>>());
    }

    #[track_caller]
    pub(crate) fn run_all(&self, words: &[&str]) {
        let mut command = Command::new(words[0]);
        let status = command.args(&words[1..]).current_dir(self.path()).status();
        assert!(status.is_ok_and(|s| s.success()), "{words:?}");
    }

    /// Makes a program of its bytes. One command copies it: a file that we write ourselves is open for writing in whatever another test
    /// starts meanwhile, and cannot be run until that has come to its exec.
    pub(crate) fn program(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.file("bytes"), bytes).unwrap();
        self.run(&format!("cp bytes {name}"));
        self.run(&format!("chmod +x {name}"));
        self.file(name)
    }

    /// Compiles [`SOURCE`] to `name`.
    pub(crate) fn compile(&self, name: &str, flags: &str) -> PathBuf {
        self.compile_source(name, "c", SOURCE, flags)
    }

    pub(crate) fn compile_source(
        &self,
        name: &str,
        language: &str,
        source: &str,
        flags: &str,
    ) -> PathBuf {
        fs::write(self.file(&format!("{name}.{language}")), source).unwrap();
        let compiler = if language == "c" { "gcc" } else { "g++" };
        self.run(format!("{compiler} -O1 -o {name} {name}.{language} {flags}").trim_end());
        self.file(name)
    }

    /// Compiles to `name`, stripped, and `debug`, which has what that lost.
    pub(crate) fn split(&self, name: &str, flags: &str) -> PathBuf {
        let program = self.compile(name, &format!("-g {flags}"));
        self.run(&format!("objcopy --only-keep-debug {name} debug"));
        self.run(&format!("strip {name}"));
        program
    }
}

/// A running program and what it said.
pub(crate) struct Target {
    child: Child,
    pub(crate) tgid: u32,
    pub(crate) words: Vec<String>,
}

impl Target {
    pub(crate) fn start(program: &Path) -> Self {
        Self::run(Command::new(program).arg0("target"))
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let tgid = child.id();
        Self {
            child,
            tgid,
            words: line.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// The n-th printed address.
    pub(crate) fn address(&self, n: usize) -> u64 {
        u64::from_str_radix(&self.words[n], 16).unwrap()
    }

    /// CLOCK_MONOTONIC when it printed.
    pub(crate) fn time(&self) -> u64 {
        self.words[2].parse().unwrap()
    }

    /// Names the n-th printed address while it lives, as a leaf.
    pub(crate) fn frames(&self, symbolizer: &mut Symbolizer, n: usize) -> Vec<Frame> {
        frames(symbolizer, self.tgid, self.address(n))
    }

    /// What these addresses are in now.
    pub(crate) fn locate(&self, symbolizer: &mut Symbolizer, ips: &[u64]) -> Arc<[Location]> {
        symbolizer.locate(self.tgid, now(), ips)
    }

    /// What the n-th printed address was in when it printed.
    pub(crate) fn located(&self, symbolizer: &mut Symbolizer, n: usize) -> Arc<[Location]> {
        symbolizer.locate(self.tgid, self.time(), &[self.address(n)])
    }

    pub(crate) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn symbolizer() -> Symbolizer {
    Symbolizer::new(Options::default()).unwrap()
}

/// The same with debug files in a directory of the test's own.
pub(crate) fn symbolizer_with(debug_dir: PathBuf) -> Symbolizer {
    let debug_dirs = vec![debug_dir];
    let options = Options {
        debug_dirs,
        ..Options::default()
    };
    Symbolizer::new(options).unwrap()
}

/// Names one address of a live process, as a leaf.
pub(crate) fn frames(symbolizer: &mut Symbolizer, tgid: u32, address: u64) -> Vec<Frame> {
    let locations = symbolizer.locate(tgid, now(), &[address]);
    symbolizer.user(&locations).to_vec()
}

pub(crate) fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|f| &*f.name).collect()
}

/// ELF address of a symbol, as nm sees it.
pub(crate) fn nm(binary: &Path, symbol: &str) -> u64 {
    let output = Command::new("nm").arg(binary).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find(|l| l.ends_with(&format!(" {symbol}")))
        .unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

/// CLOCK_MONOTONIC in ns.
pub(crate) fn now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

pub(crate) fn make_fifo(path: &Path) {
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}
