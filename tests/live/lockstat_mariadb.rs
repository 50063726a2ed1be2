//! Waits in a MariaDB without names of its own: lockstat's account against the server's and its clients'.

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

/// Done again and again by a client: it has the table locked, and adds up how long it waited for that, by the server's clock.
const LOCK: &str = "SET @a = SYSDATE(6); LOCK TABLES t.hot WRITE; \
     SET @w = @w + TIMESTAMPDIFF(MICROSECOND, @a, SYSDATE(6)); DO SLEEP(0.04); UNLOCK TABLES;";

#[test]
#[ignore = "statistical: make truth"]
fn metadata_locks_take_the_time_that_clients_wait() {
    let _machine = Machine::alone();
    let server = Server::start();
    server
        .ask("CREATE DATABASE t; CREATE TABLE t.hot (id INT); CREATE TABLE t.waited (us BIGINT);");
    let tool = Tool::attached("lockstat", format!("-U -j -p {}", server.pid()));
    let each = LOCK.repeat(TIMES);
    server.all_at_once(
        CLIENTS,
        &format!("SET @w = 0; {each} INSERT INTO t.waited VALUES (@w);"),
    );
    let report = tool.end().report();
    let waited = server.ask("SELECT SUM(us) FROM t.waited");
    let clients_ms = waited.trim().parse::<f64>().expect("a sum") / 1e3;
    let locks = list(&report, "locks");
    let rows = locks.iter().filter(|lock| lock["class"] == "metadata-lock");
    let ours_ms = sum(rows, "total_ns") as f64 / 1e6;
    eprintln!("metadata locks {ours_ms:.0} ms, clients {clients_ms:.0} ms");
    assert!(clients_ms > 1000.0, "they hardly waited");
    assert!((ours_ms / clients_ms - 1.0).abs() <= APART, "{report:#}");
    assert_eq!(locks[0]["class"], "metadata-lock");
}
