//! why's account closes over programs as users have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use oracle::{Engine, Kind, Logs};

use crate::c_program::run;
use crate::postgres::Server;
use crate::prelude::*;
use crate::real_program::nginx;
use crate::traced::logged;
use crate::why::{ALL, assert_explained, kind_ns, lines};

#[test]
fn a_web_servers_time_is_explained() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let server = nginx(dir.path());
    let report = Tool::run("why", format!("-j --max-overhead 100 -p {} 1", server.pid)).report();
    assert_explained(&report);
    assert_eq!(number(&report, "threads"), 1, "{report:#}");
    // It computes, has no CPU, or waits for its clients.
    let own: u64 = ["on-cpu", "run-queue", "idle"]
        .iter()
        .map(|kind| kind_ns(&report, kind))
        .sum();
    assert!(
        kind_ns(&report, "on-cpu") > 0 && own > number(&report, "lifetime_ns") / 2,
        "{report:#}"
    );
}

#[test]
fn a_database_under_load_is_explained() {
    let _machine = Machine::alone();
    let server = Server::start();
    let table = "CREATE TABLE hot (id int PRIMARY KEY, n int); INSERT INTO hot VALUES (1, 0);";
    run(server.command("psql").args(["-q", "-c", table, "postgres"]));
    let tool = Tool::attached("why", format!("-j {ALL} --comm postgres"));
    server.one_hot_row();
    let report = tool.report();
    assert_explained(&report);
    // Its clients are many, and one of them has the row at a time.
    let rows = list(&report, "lines").iter();
    let mut locks = rows.filter(|line| line["lock"]["class"] == "lock");
    assert!(locks.next().is_some(), "{report:#}");
}

const UNIT: &str = r#"
#include <stdio.h>
#define ONE(n) int f##n(int x) { for (int i = 0; i < x; i++) x ^= i * n + (x >> (n & 7)); return printf("%d", x); }
#define TEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) ONE(n##8) ONE(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
HUNDRED(1) HUNDRED(2)
"#;

#[test]
fn a_compilers_time_is_explained_and_the_driver_waits_for_its_children() {
    let _machine = Machine::alone();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("unit.c");
    fs::write(&path, UNIT).expect("a file");
    let source = path.to_str().expect("plain");
    let object = path.with_extension("o");
    let object = object.to_str().expect("plain");
    let command = [
        "-j",
        "--max-overhead",
        "100",
        "--",
        "cc",
        "-O2",
        "-c",
        source,
        "-o",
        object,
    ];
    let report = Tool::run("why", &command[..]).last_report();
    assert_explained(&report);
    assert!(
        number(&report, "threads") >= 3,
        "cc, cc1 and as: {report:#}"
    );
    assert!(!lines(&report, "wait").is_empty(), "{report:#}");
}

/// Eight threads make a thousand others each, one after another, that nap and end.
const TURNOVER: &str = r#"
#include <pthread.h>
static __attribute__((noinline)) void nap(void)
{
	pause_ns(200000);
	WITH_FRAME;
}
static void *one(void *unused)
{
	nap();
	return unused;
}
static void *makes(void *unused)
{
	for (int i = 0; i < 1000; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, one, NULL))
			_exit(3);
		pthread_join(thread, NULL);
	}
	return unused;
}
int main(void)
{
	pthread_t threads[8];

	ready();
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, makes, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	say("{\"threads\": %d}\n", 8 * 1001);
	return finished();
}
"#;

/// Threads that the log has seen begin, and those of them that it has seen leave their last CPU by then.
fn begun_and_left(logs: &Logs, by_ns: u64) -> (u64, u64) {
    let (mut begun, mut last_left) = (BTreeSet::new(), BTreeMap::new());
    for event in &logs.after {
        match event.kind {
            Kind::Wakeup {
                tid, is_new: true, ..
            } => {
                begun.insert(tid);
            }
            Kind::Switch { prev, .. } => {
                last_left.insert(prev, event.ns);
            }
            _ => {}
        }
    }
    let left = |tid: &&u32| last_left.get(tid).is_some_and(|ns| *ns < by_ns);
    (begun.len() as u64, begun.iter().filter(left).count() as u64)
}

/// A thread is joined before its last switch, and in no list by then: who is on its way out when the window ends is in no account.
#[test]
fn threads_that_come_and_go_are_explained() {
    let _machine = Machine::alone();
    let mut workload = Program::c("turnover", TURNOVER, "-pthread").started("");
    let args = format!("-j {ALL} -p {}", workload.pid());
    let start = || Tool::start("why", args);
    let (output, results, logs) = logged(&[Engine::Scheduler], start, &mut workload);
    workload.finish();
    let report = output.report();
    assert_explained(&report);
    let (begun, left) = begun_and_left(&logs, number(&report, "end_ns"));
    eprintln!(
        "{begun} begun, {left} left by the end, {} missed",
        logs.missed
    );
    assert_eq!(begun, number(&results[0], "threads"));
    // The one that waits for us, too.
    assert_within(
        "threads",
        number(&report, "threads"),
        left + 1..=begun + 1,
        &report,
    );
}
