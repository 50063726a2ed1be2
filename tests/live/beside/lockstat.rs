//! lockstat's manners: intervals, targets, formats.

use crate::prelude::*;

/// Four threads that map and unmap. With an argument they do so from the start, for so many ms and until they have slept for the map
/// a hundred times; else from the word on until they are killed.
const MAPS: &str = r#"
#include <pthread.h>
static void *work(void *unused)
{
	for (;;) {
		char *pages = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int at = 0; at < 1 << 18; at += 4096)
			pages[at] = 1;
		munmap(pages, 1 << 18);
	}
	return unused;
}
/* All threads' but this one's. */
static long other_sleeps(void)
{
	struct rusage usage;
	long own = sleeps_so_far();

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw - own;
}
int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc == 1)
		ready();
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, work, NULL);
	if (argc == 1)
		_exit(finished());
	do
		usleep(atoi(argv[1]) * 1000);
	while (other_sleeps() < 100);
	_exit(0);
}
"#;

/// Runs lockstat around the program, with its own options and the program's milliseconds.
fn around(options: &str, millis: &str) -> Output {
    let program = Program::c("maps", MAPS, "-pthread");
    let args = format!("{options} -- {} {millis}", program.text());
    Tool::run("lockstat", args).ok()
}

fn is_the_map(lock: &&Value) -> bool {
    let name = lock["name"].as_str();
    name.is_some_and(|name| name.starts_with("mmap_lock of maps "))
}

#[test]
fn a_lock_adds_up_over_waiters_parts_and_buckets() {
    let _machine = Machine::beside();
    let report = around("-K -j", "1000").report();
    assert_eq!(number(&report, "losses.waiters_full"), 0, "{report}");
    let locks = list(&report, "locks");
    assert!(locks.iter().any(|lock| is_the_map(&lock)), "{report}");
    for lock in locks {
        let (waits, total_ns) = (number(lock, "contentions"), number(lock, "total_ns"));
        let waiters = list(lock, "waiters");
        assert_eq!(sum(waiters, "count"), waits, "{lock}");
        assert_eq!(sum(waiters, "total_ns"), total_ns, "{lock}");
        let parts_ns = number(lock, "spin_ns") + number(lock, "block_ns");
        assert_eq!(parts_ns, total_ns, "{lock}");
        assert_eq!(sum(list(lock, "waits.buckets"), "2"), waits, "{lock}");
    }
}

#[test]
fn intervals_add_up_to_no_more_than_threads_times_time() {
    let _machine = Machine::beside();
    let mut workload = Program::c("maps", MAPS, "-pthread").started("");
    let args = format!("-K -j -i 0.5 -p {}", workload.pid());
    let tool = Tool::attached("lockstat", args);
    workload.go();
    // However late the machine makes them.
    tool.wait_reports(3);
    let reports = tool.end().reports();
    workload.results();
    let mut end_ns = 0;
    for report in &reports {
        let (start_ns, duration_ns) = (number(report, "start_ns"), number(report, "duration_ns"));
        assert!(end_ns == 0 || end_ns == start_ns, "intervals adjoin");
        end_ns = start_ns + duration_ns;
        for lock in list(report, "locks").iter().filter(is_the_map) {
            // Four threads, and each waits once at a time.
            assert!(number(lock, "total_ns") <= 4 * duration_ns, "{lock}");
            assert!(number(lock, "open") <= 4, "{lock}");
        }
    }
}

#[test]
fn formats_have_the_same_time() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let [folded, pprof] = ["out.folded", "out.pb.gz"].map(|name| dir.path().join(name));
    let options = format!("-K -j -o {} -o {}", folded.display(), pprof.display());
    let report = around(&options, "1000").report();
    let total_ns = sum(list(&report, "locks"), "total_ns");
    let text = std::fs::read_to_string(&folded).expect("a file");
    let folded_ns = folded_sum(text.lines()) * 1_000;
    // Each stack is rounded to a microsecond.
    let most = 1_000 * list(&report, "stacks").len() as u64;
    assert_within("ns apart", folded_ns.abs_diff(total_ns), ..=most, total_ns);
    assert!(std::fs::metadata(&pprof).expect("a file").len() > 0);
}

#[test]
fn the_report_is_at_most_80_columns_wide_and_begins_with_the_answer() {
    let _machine = Machine::beside();
    let program = Program::c("maps", MAPS, "-pthread");
    let whole = program.dir().join("whole.json");
    let args = format!(
        "-s 2 --hist -o {} -- {} 1000",
        whole.display(),
        program.text()
    );
    let stdout = Tool::run("lockstat", args).ok().stdout;
    for part in ["mmap_lock of maps ", "held by ", "munmap"] {
        assert!(stdout.contains(part), "no {part}: {stdout}");
    }
    let first = stdout.lines().next().expect("an answer");
    // That is the map, unless the machine stood still while somebody had another lock.
    let whole = json(&std::fs::read_to_string(&whole).expect("a file"));
    let class = text(&list(&whole, "locks")[0], "class");
    assert!(
        first.contains(" waited ") && first.contains(&format!(" for {class}")),
        "{first}"
    );
    // A command has a path before it.
    let is_bound = |line: &&str| !line.starts_with("next: ");
    for line in stdout.lines().filter(is_bound) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(stdout.contains("\nnext: "), "{stdout}");
}
