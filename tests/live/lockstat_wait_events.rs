//! PostgreSQL's waits by their events: lockstat's account against the server's, its sessions' and the log of the kernel's events.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use host::clock::monotonic_ns;
use oracle::offcpu::absences;
use oracle::{Below, Bracket, Engine};

use crate::c_program::run;
use crate::kernel::until;
use crate::postgres::{Server, Session};
use crate::prelude::*;

/// Changes the row, and says how long that took, ns.
const CHANGE: &str = "CREATE TABLE hot AS SELECT 1 AS id, 0 AS n; \
    CREATE FUNCTION change() RETURNS bigint LANGUAGE plpgsql AS $$ \
    DECLARE began timestamptz := clock_timestamp(); \
    BEGIN UPDATE hot SET n = n + 1 WHERE id = 1; \
    RETURN extract(epoch FROM clock_timestamp() - began) * 1e9; END $$;";

/// Three sessions: one that has changed the row and not ended, one that is to do so, and one that looks on.
fn sessions(server: &Server) -> [Session; 3] {
    let mut sessions = [(); 3].map(|()| Session::new(server));
    sessions[0].ask(CHANGE);
    sessions[0].ask("BEGIN; SELECT change();");
    sessions
}

/// Until the one waits for the row, as the other says, and has left its CPU: the kernel tells the call of no thread that has not.
fn await_row(onlooker: &mut Session, waiter: &Session) {
    let call = format!("/proc/{}/syscall", waiter.backend);
    until("it waits", || {
        onlooker.event_of(waiter.backend) == "transactionid"
            && fs::read_to_string(&call).is_ok_and(|call| !call.starts_with("running"))
    });
}

/// The only row of a class and name.
fn row<'a>(report: &'a Value, class: &str, name: &str) -> &'a Value {
    let locks = list(report, "locks");
    // Beside another server it says whose.
    let is_named =
        |lock: &Value| crate::found::text(lock, "name").split(" of server ").next() == Some(name);
    let is_it = |lock: &&Value| lock["class"] == class && is_named(lock);
    let found: Vec<&Value> = locks.iter().filter(is_it).collect();
    let [lock] = found[..] else {
        panic!("not one {class} {name} in {locks:#?}")
    };
    lock
}

#[test]
fn a_row_lock_is_waited_for_as_long_as_its_waiter_says() {
    let _machine = Machine::alone();
    let server = Server::start();
    let [mut holder, mut waiter, mut onlooker] = sessions(&server);
    let below = Below::attach(&[Engine::Scheduler]).expect("the oracle");
    let tool = Tool::attached("lockstat", "-U -j --comm postgres");
    let around = below.around().expect("the oracle");
    let told_ns = monotonic_ns();
    waiter.tell("SELECT change();");
    await_row(&mut onlooker, &waiter);
    let asleep_ns = monotonic_ns();
    sleep(Duration::from_millis(300));
    holder.ask("COMMIT;");
    let measured_ns: u64 = waiter.hear().trim().parse().expect("a time");
    tool.interrupt();
    let report = tool.finish().report();
    let logs = around.take().expect("whole logs");

    let lock = row(&report, "lock", "transactionid");
    assert_eq!(
        (&lock["side"], &lock["for"]),
        (&"user".into(), &"others".into())
    );
    assert_eq!(number(lock, "pid"), u64::from(server.pid()));
    // It is the sleep since then that it was seen in.
    let edges = number(&report, "start_ns")..number(&report, "end_ns");
    let absences = absences(&logs, waiter.backend, &edges).expect("agreement");
    let before = absences
        .iter()
        .filter(|absence| absence.begins_in(&(told_ns..asleep_ns)));
    let pairs = before.map(|absence| absence.pair);
    let truth: Bracket = pairs.filter(|pair| pair.early.end_ns > asleep_ns).collect();
    let total_ns = number(lock, "total_ns");
    assert_bracketed(
        "the row",
        (number(lock, "contentions"), total_ns),
        &truth,
        lock,
    );
    assert!(total_ns <= measured_ns, "{measured_ns} ns: {lock:#}");
    let of_waiter = only(lock, "waiters");
    assert_eq!(number(of_waiter, "tid"), u64::from(waiter.backend));
    let releaser = only(lock, "holders");
    assert_eq!(number(releaser, "tid"), u64::from(holder.backend));
    assert_eq!(releaser["known_as"], "waker");
}

#[test]
fn a_row_lock_that_was_waited_for_before_is_there() {
    let _machine = Machine::alone();
    let server = Server::start();
    let [_holder, mut waiter, mut onlooker] = sessions(&server);
    waiter.tell("SELECT change();");
    await_row(&mut onlooker, &waiter);
    let folded = server.dir.path().join("waits.folded");
    let args = format!("-U -j --comm postgres -o {} 1", folded.display());
    let report = Tool::run("lockstat", args).report();
    let locks = list(&report, "locks");
    let lock = row(&report, "lock", "transactionid");
    assert_eq!(locks.len(), 1, "{locks:#?}");
    let window_ns = number(&report, "end_ns") - number(&report, "start_ns");
    assert_eq!(number(lock, "total_ns"), window_ns);
    assert_eq!((number(lock, "contentions"), number(lock, "open")), (1, 1));
    let stacks = std::fs::read_to_string(folded).expect("folded stacks");
    assert!(stacks.contains(";XactLockTableWait;"), "{stacks}");
    // Those who look on and who have the row wait for their clients, the server's own processes for work.
    let left_out = list(&report, "left_out");
    for class in ["client", "activity"] {
        assert!(
            left_out.iter().any(|sum| sum["class"] == class),
            "{left_out:#?}"
        );
    }
}

#[test]
fn an_idle_server_has_no_locks() {
    let _machine = Machine::alone();
    let server = Server::start();
    let _session = Session::new(&server);
    let report = Tool::run("lockstat", "-U -j --comm postgres 2").report();
    assert!(list(&report, "locks").is_empty(), "{report:#}");
    // Asked for, they are there, with time that adds up to more than one thread's.
    let args = "-U -j --class client,activity --comm postgres 1";
    let report = Tool::run("lockstat", args).report();
    let of_class = |class: &str| {
        let locks = list(&report, "locks").iter();
        let ns = locks.filter(|lock| lock["class"] == class);
        ns.map(|lock| number(lock, "total_ns")).sum::<u64>()
    };
    assert!(of_class("client") >= 900_000_000, "{report:#}");
    assert!(of_class("activity") >= 900_000_000, "{report:#}");
}

/// Clients of the load, and how often the server is asked what they wait for.
const CLIENTS: u64 = 24;
const LOOKS: usize = 800;
const APART: Duration = Duration::from_millis(10);
/// Share of all clients' time that an event takes on a CPU and not asleep, which only the server counts, at most.
const RUNNING: f64 = 0.03;

/// Clients that wait for each event, at each look.
fn look(session: &mut Session) -> BTreeMap<String, f64> {
    let mut seen = BTreeMap::new();
    let asked = session.ask(
        "SELECT lower(wait_event_type), wait_event, count(*) FROM pg_stat_activity \
         WHERE application_name = 'pgbench' AND wait_event IS NOT NULL GROUP BY 1, 2;",
    );
    for line in asked.lines() {
        let (event, count) = line.rsplit_once(' ').expect("an event");
        seen.insert(event.to_owned(), count.parse().expect("a count"));
    }
    seen
}

#[test]
#[ignore = "statistical: make truth"]
fn shares_of_wait_events_are_those_of_pg_stat_activity() {
    let _machine = Machine::alone();
    let server = Server::start();
    run(server
        .command("pgbench")
        .args(["-i", "-q", "-s", "5", "postgres"]));
    let mut session = Session::new(&server);
    let mut load = server.command("pgbench");
    let clients = CLIENTS.to_string();
    let load = load.args(["-n", "-c", &clients, "-j", "2", "-T", "60", "postgres"]);
    let mut load = load
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("pgbench");
    until("all clients are there", || {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench';";
        session.ask(count).trim() == clients
    });
    let tool = Tool::attached("lockstat", "-U -j --class all --comm postgres");
    let mut looks = Vec::with_capacity(LOOKS);
    let began = Instant::now();
    for at in 1..=LOOKS as u32 {
        looks.push(look(&mut session));
        sleep((APART * at).saturating_sub(began.elapsed()));
    }
    tool.interrupt();
    let report = tool.finish().report();
    let clients_there =
        session.ask("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench';");
    let clients_there: Vec<u64> = clients_there
        .lines()
        .filter_map(|pid| pid.parse().ok())
        .collect();
    let _ = load.kill();
    let _ = load.wait();
    assert_eq!(clients_there.len() as u64, CLIENTS);

    let shares = shares(&report, &clients_there);
    let first = compare(&shares, &looks);
    let locks = list(&report, "locks").iter();
    let mut others = locks.filter(|lock| lock["for"] == "others");
    let others = others.next().expect("a lock");
    let most = format!("{} {}", text(others, "class"), text(others, "name"));
    assert_eq!(most, first);
}

/// Shares of these clients' time in which they waited for each event.
fn shares(report: &Value, clients: &[u64]) -> BTreeMap<String, f64> {
    let window_ns = number(report, "end_ns") - number(report, "start_ns");
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for lock in list(report, "locks") {
        let waiters = list(lock, "waiters").iter();
        let ours = waiters.filter(|waiter| clients.contains(&number(waiter, "pid")));
        let ns: u64 = ours.map(|waiter| number(waiter, "total_ns")).sum();
        let event = format!("{} {}", text(lock, "class"), text(lock, "name"));
        *shares.entry(event).or_default() += ns as f64 / (window_ns * CLIENTS) as f64;
    }
    shares
}

/// Holds shares to what was looked at. Gives the event that was waited for most, clients left aside.
fn compare(shares: &BTreeMap<String, f64>, looks: &[BTreeMap<String, f64>]) -> String {
    let mut events: Vec<&String> = looks.iter().flat_map(BTreeMap::keys).collect();
    events.extend(shares.keys());
    events.sort_unstable();
    events.dedup();
    let mut largest = (0.0, "");
    for event in events {
        let of_looks: Vec<f64> = looks
            .iter()
            .map(|look| look.get(event).copied().unwrap_or(0.0) / CLIENTS as f64)
            .collect();
        let (mean, error) = mean_and_error(&of_looks);
        let ours = shares.get(event).copied().unwrap_or(0.0);
        eprintln!("{event}: {ours:.4}, sampled {mean:.4} +-{error:.4}");
        assert!((ours - mean).abs() <= 4.0 * error + RUNNING, "{event}");
        if mean > largest.0 && !event.starts_with("client") {
            largest = (mean, event);
        }
    }
    largest.1.into()
}

/// Mean of what follows each other, and its standard error, by means of batches: looks close in time are alike.
fn mean_and_error(of_looks: &[f64]) -> (f64, f64) {
    const BATCH: usize = 20;
    let mean = |some: &[f64]| some.iter().sum::<f64>() / some.len() as f64;
    let batches: Vec<f64> = of_looks.chunks_exact(BATCH).map(mean).collect();
    let all = mean(of_looks);
    let squares = batches.iter().map(|batch| (batch - all).powi(2));
    let n = batches.len() as f64;
    (all, (squares.sum::<f64>() / (n - 1.0) / n).sqrt())
}
