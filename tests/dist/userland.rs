//! Root file systems for the tests, and what `make dist` left to put there.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Computes in `hot`, which the C library's qsort calls, then naps, then allocates; says how long by its own clocks. With an
/// argument it does so again and again.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long clock_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

__attribute__((noinline)) int hot(const void *a, const void *b)
{
	for (volatile int i = 0; i < 20000; i++)
		;
	return *(const char *)a - *(const char *)b;
}

__attribute__((noinline)) long long burns(void)
{
	long long start = clock_ns(CLOCK_PROCESS_CPUTIME_ID), now;
	char letters[] = "dcba";

	do {
		qsort(letters, 4, 1, hot);
		now = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	} while (now < start + 500000000);
	return now - start;
}

__attribute__((noinline)) long long naps(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	long long start = clock_ns(CLOCK_MONOTONIC);

	for (int i = 0; i < 307; i++)
		nanosleep(&pause, NULL);
	return clock_ns(CLOCK_MONOTONIC) - start;
}

__attribute__((noinline)) void allocates(void)
{
	static void *volatile last;

	for (int i = 0; i < 211; i++)
		last = malloc(100 + i);
}

int main(int argc, char **argv)
{
	do {
		long long burn_ns = burns(), nap_ns = naps();

		allocates();
		printf("{\"burn_ns\": %lld, \"nap_ns\": %lld}\n", burn_ns, nap_ns);
	} while (argc > 1);
	return 0;
}
"#;

/// A file that `make dist` left, by its name.
pub(crate) fn dist(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("dist");
    let path = dir.join(name);
    assert!(path.exists(), "{}: run `make dist` first", path.display());
    path
}

/// The tree that it packed for this machine.
pub(crate) fn staged() -> PathBuf {
    staged_for(ARCH)
}

pub(crate) fn staged_for(machine: &str) -> PathBuf {
    let version = env!("CARGO_PKG_VERSION");
    dist(&format!("usekit-{version}-{machine}-linux"))
}

/// The two packages for a machine.
pub(crate) fn deb(machine: &str) -> PathBuf {
    let architecture = match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        _ => panic!("{machine}: `make dist` makes nothing for it"),
    };
    let version = env!("CARGO_PKG_VERSION");
    dist(&format!("usekit_{version}-1_{architecture}.deb"))
}

pub(crate) fn rpm(machine: &str) -> PathBuf {
    let version = env!("CARGO_PKG_VERSION");
    dist(&format!("usekit-{version}-1.{machine}.rpm"))
}

/// The tree of sources that it packed.
pub(crate) fn sources() -> PathBuf {
    dist(&format!("usekit-{}", env!("CARGO_PKG_VERSION")))
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Unpacks the archive of one of these trees.
pub(crate) fn unpack(tree: &Path, into: &Path) {
    fs::create_dir(into).expect("a new directory");
    let mut archive = tree.as_os_str().to_owned();
    archive.push(".tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(into);
    run(tar.arg("--strip-components=1"));
}

/// A directory that is to be somebody's `/`.
pub(crate) struct Userland {
    dir: tempfile::TempDir,
    /// Directories of this machine, and where they are inside.
    lent: Vec<(PathBuf, &'static str)>,
}

impl Userland {
    /// Nothing but the places of the kernel's own filesystems.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for place in ["proc", "sys"] {
            fs::create_dir(dir.path().join(place)).expect("a new directory");
        }
        let lent = Vec::new();
        Self { dir, lent }
    }

    /// Nothing but usekit in /usekit.
    pub(crate) fn empty() -> Self {
        let userland = Self::new();
        unpack(&staged(), &userland.path("usekit"));
        userland
    }

    /// Debian's smallest, and these packages.
    pub(crate) fn debian(suite: &str, packages: &[&str]) -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("userlands");
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../setup/userland");
        let name = [&[suite], packages].concat().join("+");
        let made = target.join(name);
        run(Command::new(setup).arg(&made).arg(suite).args(packages));
        let userland = Self::new();
        run(Command::new("cp")
            .arg("-a")
            .arg(made.join("."))
            .arg(userland.path("/")));
        userland
    }

    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside.trim_start_matches('/'))
    }

    /// Copies a file of this machine, or of a test, to a place inside.
    pub(crate) fn give(&self, file: &Path, inside: &str) {
        let to = self.path(inside);
        fs::create_dir_all(to.parent().expect("below the root")).expect("a directory");
        fs::copy(file, &to).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Lets it have a directory of this machine.
    pub(crate) fn lend(&mut self, directory: PathBuf, inside: &'static str) {
        fs::create_dir_all(self.path(inside)).expect("a directory");
        self.lent.push((directory, inside));
    }

    /// Compiles the program to /program inside.
    pub(crate) fn compile(&self, compiler: &str, flags: &[&str]) {
        let source = self.path("program.c");
        fs::write(&source, PROGRAM).expect("a file");
        let mut command = Command::new(compiler);
        command.args(["-O1", "-fno-omit-frame-pointer", "-o"]);
        run(command.arg(self.path("program")).arg(&source).args(flags));
        fs::remove_file(source).expect("our own file");
    }

    /// A command in it. The mounts go with it.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let script = "for place in proc sys; do mount --rbind /$place \"$0/$place\" || exit; done; \
                      while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$0/$2\" || exit; shift 2; done; shift; \
                      exec env -i LC_ALL=de_DE.UTF-8 TZ=Europe/Berlin PATH=/usekit/bin:/usr/sbin:/usr/bin:/sbin:/bin \
                      /usr/sbin/chroot \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]);
        command.arg(self.dir.path());
        for (directory, inside) in &self.lent {
            command.arg(directory).arg(inside);
        }
        command.args(["--", program]).args(args);
        command
    }
}
