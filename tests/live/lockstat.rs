//! lockstat's manners: intervals, targets, formats.

use serde_json::Value;

use crate::c_program::compile;
use crate::kernel::beside;
use crate::tool::Tool;
use crate::workload::number;

/// Four threads that map and unmap until they are killed.
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
int main(int argc, char **argv)
{
	pthread_t thread;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, work, NULL);
	usleep(atoi(argv[1]) * 1000);
	_exit(0);
}
"#;

/// Runs lockstat around the program; gives its reports and what it said besides.
fn around(args: &[&str], millis: &str) -> (String, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let program = compile(dir.path(), "maps", MAPS, &["-pthread"]);
    let program = program.to_str().expect("text");
    let output = Tool::start("lockstat", &[args, &["--", program, millis]].concat()).finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    (output.stdout, output.stderr)
}

fn is_the_map(lock: &&Value) -> bool {
    lock["name"]
        .as_str()
        .is_some_and(|name| name.starts_with("mmap_lock of maps "))
}

#[test]
fn a_lock_adds_up_over_waiters_parts_and_buckets() {
    let Some(_machine) = beside() else {
        return;
    };
    let (stdout, stderr) = around(&["-K", "-j"], "1000");
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(number(&report, "losses.waiters_full"), 0, "{stderr}");
    let locks = report["locks"].as_array().expect("a list");
    assert!(locks.iter().any(|lock| is_the_map(&lock)), "{stdout}");
    for lock in locks {
        let waiters = lock["waiters"].as_array().expect("a list");
        let sum = |field| waiters.iter().map(|one| number(one, field)).sum::<u64>();
        assert_eq!(sum("count"), number(lock, "contentions"), "{lock}");
        assert_eq!(sum("total_ns"), number(lock, "total_ns"), "{lock}");
        let parts_ns = number(lock, "spin_ns") + number(lock, "block_ns");
        assert_eq!(parts_ns, number(lock, "total_ns"), "{lock}");
        let buckets = lock["waits"]["buckets"].as_array().expect("a list");
        let in_buckets: u64 = buckets
            .iter()
            .map(|bucket| bucket[2].as_u64().expect("a count"))
            .sum();
        assert_eq!(in_buckets, number(lock, "contentions"), "{lock}");
    }
}

#[test]
fn intervals_add_up_to_no_more_than_threads_times_time() {
    let Some(_machine) = beside() else {
        return;
    };
    let (stdout, _) = around(&["-K", "-j", "-i", "0.5"], "4000");
    let reports: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(reports.len() >= 2, "{} reports", reports.len());
    let mut end_ns = 0;
    for report in &reports {
        let (start_ns, duration_ns) = (number(report, "start_ns"), number(report, "duration_ns"));
        assert!(end_ns == 0 || end_ns == start_ns, "intervals adjoin");
        end_ns = start_ns + duration_ns;
        let locks = report["locks"].as_array().expect("a list");
        for lock in locks.iter().filter(is_the_map) {
            // Four threads, and each waits once at a time.
            assert!(number(lock, "total_ns") <= 4 * duration_ns, "{lock}");
            assert!(number(lock, "open") <= 4, "{lock}");
        }
    }
}

#[test]
fn formats_have_the_same_time() {
    let Some(_machine) = beside() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (folded, pprof) = (path("out.folded"), path("out.pb.gz"));
    let (stdout, _) = around(&["-K", "-j", "-o", &folded, "-o", &pprof], "1000");
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    let locks = report["locks"].as_array().expect("a list");
    let total_ns: u64 = locks.iter().map(|lock| number(lock, "total_ns")).sum();
    let text = std::fs::read_to_string(&folded).expect("a file");
    let value = |line: &str| {
        line.rsplit_once(' ')
            .and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let folded_us: u64 = text
        .lines()
        .map(|line| value(line).expect("a number"))
        .sum();
    // Each stack is rounded to a microsecond.
    assert!(
        (folded_us * 1_000).abs_diff(total_ns)
            <= 1_000 * report["stacks"].as_array().expect("a list").len() as u64,
        "{folded_us} us, {total_ns} ns"
    );
    assert!(std::fs::metadata(&pprof).expect("a file").len() > 0);
}

#[test]
fn the_table_is_at_most_100_columns_wide() {
    let Some(_machine) = beside() else {
        return;
    };
    let (stdout, stderr) = around(&["-s", "2", "--hist"], "1000");
    assert!(stdout.contains("mmap_lock of maps "), "{stdout}{stderr}");
    assert!(stdout.contains("HOLDER"), "{stdout}");
    assert!(
        stdout.contains("__vm_munmap") || stdout.contains("munmap"),
        "{stdout}"
    );
    for line in stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}
