//! Small C programs that print addresses of their own code and then wait.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use profile::frame::Frame;
use symbols::{Options, Symbolizer};

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

/// Runs a tool to its end; false when it is missing or fails.
pub(crate) fn tool(dir: &Path, command: &str, args: &[&str]) -> bool {
    let status = Command::new(command).args(args).current_dir(dir).status();
    status.is_ok_and(|s| s.success())
}

/// Compiles [`SOURCE`] to `dir/name`.
pub(crate) fn compile(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    compile_source(dir, name, "c", SOURCE, flags)
}

pub(crate) fn compile_source(
    dir: &Path,
    name: &str,
    language: &str,
    source: &str,
    flags: &[&str],
) -> PathBuf {
    let file = dir.join(format!("{name}.{language}"));
    fs::write(&file, source).unwrap();
    let compiler = if language == "c" { "gcc" } else { "g++" };
    let file = file.to_str().unwrap();
    let args = [&["-O1", "-o", name, file][..], flags].concat();
    assert!(tool(dir, compiler, &args), "{compiler} {args:?}");
    dir.join(name)
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
