//! Programs that run short of a disk or of memory, and time themselves.

use crate::prelude::*;

/// Writes 64 KiB and syncs, or reads as much past the page cache, for two seconds or as many as it is told; says how long that took, and how much
/// of it was spent on a CPU or waiting for one.
pub(crate) const DISK: &str = r#"
#include <sys/stat.h>
int main(int argc, char **argv)
{
	static char buffer[1 << 16] __attribute__((aligned(4096)));
	int sync = argv[2][0] == 's', seconds = argc > 3 ? atoi(argv[3]) : 2, n = 0, stat, fd = open(argv[1], O_RDWR | O_CREAT | (sync ? 0 : O_DIRECT), 0600);
	long long start, end, cpu, cpu_end, delay, delay_end;
	char text[64] = "";

	for (int i = 0; i < 64; i++)
		if (write(fd, buffer, sizeof(buffer)) != sizeof(buffer))
			_exit(3);
	if (fsync(fd))
		_exit(4);
	stat = open("/proc/thread-self/schedstat", O_RDONLY);
	ready();
	pread(stat, text, sizeof(text) - 1, 0);
	sscanf(text, "%*d %lld", &delay);
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	start = end = clock_ns(CLOCK_MONOTONIC);
	for (; end < start + seconds * 1000000000LL; end = clock_ns(CLOCK_MONOTONIC), n++)
		if (sync ? pwrite(fd, buffer, sizeof(buffer), 0) != sizeof(buffer) || fsync(fd) :
			   pread(fd, buffer, sizeof(buffer), (n % 64) * sizeof(buffer)) != sizeof(buffer))
			_exit(5);
	cpu_end = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	pread(stat, text, sizeof(text) - 1, 0);
	sscanf(text, "%*d %lld", &delay_end);
	say("{\"n\": %d, \"start_ns\": %lld, \"end_ns\": %lld, \"wall_ns\": %lld, \"cpu_ns\": %lld, \"delay_ns\": %lld}\n", n,
	    start, end, end - start, cpu_end - cpu, delay_end - delay);
	finished();
	unlink(argv[1]);
	return 0;
}
"#;

/// Touches all pages of a file of 64 MiB again and again, for two seconds; says how many faults that took. Reads ahead itself: pages
/// that a slow disk is still to fill cannot be reclaimed, and a disk that has 8 MiB read ahead twice would leave the limit nothing else.
pub(crate) const WORKING_SET: &str = r#"
#include <sys/resource.h>
int main(int argc, char **argv)
{
	static char buffer[1 << 20];
	long length = 64 << 20, sum = 0, n = 0;
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	struct rusage before, after;
	long long start;
	char *file;

	memset(buffer, 1, sizeof(buffer));
	for (int i = 0; i < 64; i++)
		if (write(fd, buffer, sizeof(buffer)) != sizeof(buffer))
			_exit(3);
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	file = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	madvise(file, length, MADV_RANDOM);
	ready();
	getrusage(RUSAGE_SELF, &before);
	start = clock_ns(CLOCK_MONOTONIC);
	while (clock_ns(CLOCK_MONOTONIC) < start + 2000000000LL)
		for (int i = 0; i < 256; i++, n++) {
			if (i == 0)
				readahead(fd, n * 4096 % length, sizeof(buffer));
			sum += file[n * 4096 % length];
		}
	getrusage(RUSAGE_SELF, &after);
	say("{\"pages\": %ld, \"sum\": %ld, \"faults\": %ld}\n", n, sum,
	    after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt);
	finished();
	unlink(argv[1]);
	return 0;
}
"#;

/// Starts one of them with a file of its own, beside the build: /tmp may be memory.
pub(crate) fn program(source: &str, name: &str, args: &str) -> (Workload, Program) {
    let program = Program::c_on_disk(name, source, "");
    let file = program.dir().join("file");
    let workload = program.start(format!("{} {args}", file.display()));
    (workload, program)
}
