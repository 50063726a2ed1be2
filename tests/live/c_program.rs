//! Small C programs, compiled when a test runs, that speak the workloads' protocol.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::args::Args;
use crate::workload::Workload;

/// What every program begins with. No stdio: it allocates, and a test counts that.
const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* gcc gives leaves no frame unless they ask for it, and without one their callers are not in the stack. */
#define WITH_FRAME __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

static long long clock_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* This thread's schedstat: time on CPUs (0) and time that it waited for one (1), ns; how often it was put on one (2). */
static long long schedstat(int field)
{
	long long fields[3];
	char text[96] = "";
	int fd = open("/proc/thread-self/schedstat", O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		_exit(6);
	close(fd);
	if (sscanf(text, "%lld %lld %lld", &fields[0], &fields[1], &fields[2]) != 3)
		_exit(6);
	return fields[field];
}

static void say(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	int length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (write(1, line, length) != length)
		_exit(9);
}

/* Whether a line came, as opposed to the end of stdin. */
static int await_go(void)
{
	char c;

	while (read(0, &c, 1) == 1)
		if (c == '\n')
			return 1;
	return 0;
}

static void ready(void)
{
	say("ready %d\n", getpid());
	if (!await_go())
		_exit(0);
}

/* Work and results are over; everything stays as it is until stdin ends. */
static int finished(void)
{
	say("done\n");
	await_go();
	return 0;
}

static void pause_ns(long ns)
{
	struct timespec pause = { .tv_nsec = ns };

	nanosleep(&pause, NULL);
}

/* Computes until this clock has gone so far. */
static void busy_ns(clockid_t id, long long ns)
{
	long long end = clock_ns(id) + ns;

	while (clock_ns(id) < end)
		;
}

/* Inlined, as the next one: a thread waits in the function that says so. */
static inline __attribute__((always_inline)) void put_byte(int to, char byte)
{
	if (write(to, &byte, 1) != 1)
		_exit(7);
}

static inline __attribute__((always_inline)) char take_byte(int from)
{
	char byte;

	if (read(from, &byte, 1) != 1)
		_exit(7);
	return byte;
}

/* A file to read and write, which is there from now on. */
static int opened(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);

	if (file < 0)
		_exit(7);
	return file;
}

/* Times that this thread has gone to sleep. */
static long sleeps_so_far(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void run_on(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		_exit(8);
}

/* This thread, and those it makes, have a CPU whenever they want one. A nice value would count among the programs of one session
 * only. */
static void run_first(void)
{
	struct sched_param lowest = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };

	if (sched_setscheduler(0, SCHED_FIFO, &lowest))
		_exit(8);
}

/* Until the thread, which has its number once it has begun, is in this state: S asleep, D for something of the kernel's. */
static void await_state(volatile int *tid, char wanted)
{
	char path[64], text[256], *state;

	do {
		usleep(1000);
		snprintf(path, sizeof(path), "/proc/%d/stat", __atomic_load_n(tid, __ATOMIC_SEQ_CST));
		int stat = open(path, O_RDONLY);
		int length = read(stat, text, sizeof(text) - 1);

		close(stat);
		text[length > 0 ? length : 0] = 0;
		state = strrchr(text, ')');
	} while (!state || state[2] != wanted);
}

/* Until the thread, which has its number once it has begun, sleeps in this system call. The kernel names the call of none that has
 * a CPU or wants one: not of one either that was driven off its CPU on its way to sleep. */
static void await_call(volatile int *tid, long number)
{
	char path[64], text[256];

	for (;;) {
		snprintf(path, sizeof(path), "/proc/%d/syscall", __atomic_load_n(tid, __ATOMIC_SEQ_CST));
		int file = open(path, O_RDONLY);
		int length = read(file, text, sizeof(text) - 1);

		close(file);
		text[length > 0 ? length : 0] = 0;
		if (text[0] >= '0' && text[0] <= '9' && atol(text) == number)
			return;
		usleep(200);
	}
}
"#;

/// Burns in `hot`, into which `inner` is inlined, for as many ms of CPU time as its first argument says, and for as much work as a fast
/// CPU does in it: what a hypervisor stole may count as CPU time, in which nothing is sampled.
pub(crate) const BURN: &str = r#"
static inline __attribute__((always_inline)) unsigned long inner(unsigned long x)
{
	for (int i = 0; i < 100000; i++)
		__asm__ volatile("" : "+r"(x));
	return x;
}
__attribute__((noinline)) unsigned long hot(unsigned long x)
{
	WITH_FRAME;
	/* With -O2 in a part of the function that lies elsewhere. */
	if (!x)
		abort();
	return inner(x) + 1;
}
int main(int argc, char **argv)
{
	long long start, now, ns = atoll(argv[1]) * 1000000;

	if (argc == 2)
		ready();
	start = now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	/* A turn takes 25 us at 4 GHz. */
	for (long long x = 1; now < start + ns || x <= ns / 25000; now = clock_ns(CLOCK_THREAD_CPUTIME_ID))
		x = hot(x);
	say("{\"burn_ns\": %lld}\ndone\n", now - start);
	if (argc == 2)
		await_go();
	return 0;
}
"#;

/// A program of a test's own, in a directory that goes with it.
pub(crate) struct Program {
    dir: TempDir,
    path: PathBuf,
}

impl Program {
    /// The same as [`compile`].
    pub(crate) fn c(name: &str, source: &str, flags: impl Args) -> Self {
        Self::c_in(tempfile::tempdir(), name, source, flags)
    }

    /// Beside the build, where files are on a disk that programs may run from: /tmp may be neither.
    pub(crate) fn c_on_disk(name: &str, source: &str, flags: impl Args) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        Self::c_in(dir, name, source, flags)
    }

    /// The same in a directory of one's own choosing.
    pub(crate) fn c_in(
        dir: std::io::Result<TempDir>,
        name: &str,
        source: &str,
        flags: impl Args,
    ) -> Self {
        let dir = dir.expect("a directory");
        let path = compile(dir.path(), name, source, flags);
        Self { dir, path }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its path.
    pub(crate) fn text(&self) -> &str {
        self.path.to_str().expect("plain")
    }

    pub(crate) fn command(&self, args: impl Args) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args.words());
        command
    }

    /// It waits for the word to begin, and its directory goes with it.
    pub(crate) fn started(self, args: impl Args) -> Workload {
        let mut workload = self.start(args);
        workload.dir = Some(self.dir);
        workload
    }

    /// It waits for the word to begin.
    pub(crate) fn start(&self, args: impl Args) -> Workload {
        let name = self.path.file_name().expect("a name").to_string_lossy();
        Workload::spawn(&name, self.command(args))
    }
}

/// Compiles to `dir/name`, with frame pointers; gives the program's path.
pub(crate) fn compile(dir: &Path, name: &str, source: &str, flags: impl Args) -> PathBuf {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&file, format!("{PRELUDE}{source}")).expect("a file");
    run(Command::new("gcc")
        .args(["-O1", "-fno-omit-frame-pointer", "-o"])
        .arg(&program)
        .arg(&file)
        .args(flags.words()));
    program
}

/// Copies a program that is to run. The file of a copy made here is open for writing in whatever another test starts meanwhile, until that
/// has begun, and such a file does not run; nor can one be written that runs.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    run(Command::new("cp")
        .arg("--remove-destination")
        .args([from, to]));
}

/// Runs a command to its end and returns what it said.
///
/// # Panics
/// When it is missing or fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stderr}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
