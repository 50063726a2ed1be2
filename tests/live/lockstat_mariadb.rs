//! InnoDB's row locks, of a server without names of its own: lockstat's account against the server's.

use crate::mariadb::Server;
use crate::prelude::*;

const CLIENTS: usize = 8;
/// Each time the row is locked for 40 ms: the server counts whole milliseconds of each wait.
const CHANGE: &str = "BEGIN; UPDATE t.hot SET n = n + 1 WHERE id = 1; DO SLEEP(0.04); COMMIT;";
const TIMES: usize = 12;
/// Share that the two accounts may be apart.
const APART: f64 = 0.03;

#[test]
#[ignore = "statistical: make truth"]
fn row_locks_take_the_time_that_the_server_says() {
    let _machine = Machine::alone();
    let server = Server::start();
    server.ask(
        "CREATE DATABASE t; CREATE TABLE t.hot (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; \
         INSERT INTO t.hot VALUES (1, 0);",
    );
    let before = ["time", "waits"].map(|what| server.status(&format!("Innodb_row_lock_{what}")));
    let tool = Tool::attached("lockstat", format!("-U -j -p {}", server.pid()));
    server.all_at_once(CLIENTS, &CHANGE.repeat(TIMES));
    tool.interrupt();
    let report = tool.finish().report();
    let after = ["time", "waits"].map(|what| server.status(&format!("Innodb_row_lock_{what}")));

    let locks = list(&report, "locks");
    let rows: Vec<&Value> = locks
        .iter()
        .filter(|lock| lock["class"] == "row-lock")
        .collect();
    let sum = |field| rows.iter().map(|lock| number(lock, field)).sum::<u64>();
    let (ours_ms, server_ms) = (sum("total_ns") as f64 / 1e6, (after[0] - before[0]) as f64);
    eprintln!("row locks {ours_ms:.0} ms, Innodb_row_lock_time {server_ms:.0} ms");
    assert!(server_ms > 1000.0, "they hardly waited");
    assert_eq!(sum("contentions"), after[1] - before[1], "{rows:#?}");
    assert!((ours_ms / server_ms - 1.0).abs() <= APART, "{rows:#?}");
    assert_eq!(locks[0]["class"], "row-lock", "{locks:#?}");
}

/// Clients that change rows of their own wait for nothing but pages and the log, all of which has a class.
#[test]
#[ignore = "statistical: make truth"]
fn no_wait_of_innodbs_is_of_an_unknown_class() {
    let _machine = Machine::alone();
    let server = Server::start();
    server.ask(
        "CREATE DATABASE t; CREATE TABLE t.own (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; \
         INSERT INTO t.own SELECT seq, 0 FROM t.seq_1_to_64;",
    );
    let tool = Tool::attached("lockstat", format!("-U -j -p {}", server.pid()));
    let change = "UPDATE t.own SET n = n + 1 WHERE id = 1 + CONNECTION_ID() % 64;";
    server.all_at_once(CLIENTS, &change.repeat(400));
    let report = tool.end().report();
    let locks = list(&report, "locks");
    let of_class = |class: &str| {
        let rows = locks.iter().filter(|lock| lock["class"] == class);
        sum(rows, "contentions")
    };
    let [commits, latches, unknown] = ["commit", "latch", "unknown"].map(of_class);
    eprintln!("{commits} waits for the log, {latches} for latches, {unknown} unknown");
    assert!(commits > 100, "{locks:#?}");
    assert_eq!(unknown, 0, "{locks:#?}");
}
