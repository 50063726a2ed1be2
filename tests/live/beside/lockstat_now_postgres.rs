//! `lockstat --now` on a PostgreSQL whose sessions wait for each other: who is in whose way, as the server itself says.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::beside::lockstat_now::{now, told};
use crate::kernel::until;
use crate::postgres::{Server, Session};
use crate::prelude::*;

/// Sessions that wait for a lock: the event, and the sessions in the way.
type Waits = BTreeMap<u64, (String, Vec<u64>)>;

fn server_says(onlooker: &mut Session) -> Waits {
    let answer = onlooker.ask(
        "SELECT pid, wait_event, array_to_string(pg_blocking_pids(pid), ' ') FROM pg_stat_activity \
         WHERE wait_event_type = 'Lock';",
    );
    let wait = |line: &str| {
        let mut words = line.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        let event = words.next()?.to_owned();
        let mut blockers: Vec<u64> = words.filter_map(|pid| pid.parse().ok()).collect();
        blockers.sort_unstable();
        blockers.dedup();
        Some((pid, (event, blockers)))
    };
    answer.lines().filter_map(wait).collect()
}

fn we_say(waits: &[&Value]) -> Waits {
    let of = |wait: &&Value| {
        let holder = std::iter::once(&wait["holder"]);
        let others = holder.chain(list(wait, "also"));
        let mut blockers: Vec<u64> = others.map(|other| number(other, "pid")).collect();
        blockers.sort_unstable();
        let event = text(wait, "lock").split(' ').next().expect("a word");
        (number(wait, "pid"), (event.to_owned(), blockers))
    };
    waits.iter().map(of).collect()
}

fn postgres_waits(report: &Value) -> Vec<&Value> {
    let waits = list(report, "waits").iter();
    waits
        .filter(|wait| wait["class"] == "PostgreSQL lock")
        .collect()
}

/// Tells a session, and waits until it waits for a lock.
fn blocked(onlooker: &mut Session, session: &mut Session, sql: &str) {
    session.tell(sql);
    let waits = format!(
        "SELECT count(*) FROM pg_locks WHERE pid = {} AND NOT granted AND waitstart IS NOT NULL;",
        session.backend
    );
    until("it waits", || onlooker.ask(&waits).trim() == "1");
}

const TABLES: &str = "CREATE TABLE hot AS SELECT id, 0 AS n FROM generate_series(1, 3) id; CREATE TABLE other (x int);";

/// A server with these tables, a session to ask, and others to wait.
fn started<const N: usize>() -> (Server, Session, [Session; N]) {
    let server = Server::start();
    let mut onlooker = Session::new(&server);
    onlooker.ask(TABLES);
    let sessions = [(); N].map(|()| Session::new(&server));
    (server, onlooker, sessions)
}

/// Four sessions for one row, of which one waits for its holder and the others for their turn; a table that two share, a third is to
/// have alone, and a fourth waits behind the third, though those who have it would not mind; and a number of nobody's.
#[test]
fn sessions_wait_behind_those_that_the_server_names() {
    let _machine = Machine::beside();
    let (_server, mut onlooker, mut sessions) = started::<10>();
    let began = Instant::now();
    let backends = sessions
        .each_ref()
        .map(|session| session.backend.to_string());
    let [a, b, c, d, e, f, g, h, i, j] = &mut sessions;
    let change = "BEGIN; UPDATE hot SET n = n + 1 WHERE id = 1;";
    a.ask(change);
    for session in [b, c, d] {
        blocked(&mut onlooker, session, change);
    }
    for session in [e, f] {
        session.ask("BEGIN; LOCK TABLE other IN SHARE MODE;");
    }
    blocked(&mut onlooker, g, "BEGIN; LOCK TABLE other;");
    blocked(&mut onlooker, h, "BEGIN; SELECT * FROM other;");
    i.ask("BEGIN; SELECT pg_advisory_xact_lock(7);");
    blocked(&mut onlooker, j, "BEGIN; SELECT pg_advisory_xact_lock(7);");

    let report = Tool::run("lockstat", format!("--now -j -p {}", backends.join(","))).report();
    let waits = postgres_waits(&report);
    let truth = server_says(&mut onlooker);
    assert_eq!(truth.len(), 6, "{truth:?}");
    assert_eq!(we_say(&waits), truth, "{report:#}");
    let most_ns = u64::try_from(began.elapsed().as_nanos()).expect("a time");
    for wait in &waits {
        assert_within("waited", number(wait, "waited_ns"), 1..=most_ns, wait);
    }
    let kind = |session: &Session| {
        let is_its = |wait: &&&Value| number(wait, "pid") == u64::from(session.backend);
        waits
            .iter()
            .find(is_its)
            .map(|wait| &wait["holder"]["kind"])
    };
    assert_eq!(kind(g), Some(&"thread".into()));
    assert_eq!(kind(h), Some(&"ahead".into()), "nobody who has it minds");
    // Of one process its chain is shown, though nobody asked for the others.
    let said = told(sessions[3].backend);
    let row = format!(
        "behind postgres (PID {}), asleep (client ClientRead)",
        sessions[0].backend
    );
    assert!(said.contains(&row), "{said}");
}

#[test]
fn sessions_that_wait_for_each_other_are_a_deadlock_until_the_server_looks() {
    let _machine = Machine::beside();
    let (_server, mut onlooker, mut sessions) = started::<2>();
    let [a, b] = &mut sessions;
    a.ask("BEGIN; UPDATE hot SET n = 1 WHERE id = 1;");
    b.ask("BEGIN; UPDATE hot SET n = 1 WHERE id = 2;");
    blocked(&mut onlooker, a, "UPDATE hot SET n = 2 WHERE id = 2;");
    blocked(&mut onlooker, b, "UPDATE hot SET n = 2 WHERE id = 1;");
    let report = now(a.backend);
    let deadlock = only(&report, "deadlocks");
    let mut members: Vec<u64> = list(deadlock, "threads")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    members.sort_unstable();
    assert_eq!(members, [u64::from(a.backend), u64::from(b.backend)]);
    assert_eq!(
        (&deadlock["kind"], &deadlock["timed"], &deadlock["certain"]),
        (&"circle".into(), &true.into(), &true.into())
    );
}

/// A session that a statement of its own keeps busy has a row that another one wants: both statements, without what is in them, and
/// only where they are asked for.
#[test]
fn statements_are_shown_without_their_data_and_only_when_asked_for() {
    let _machine = Machine::beside();
    let (_server, mut onlooker, mut sessions) = started::<2>();
    let [a, b] = &mut sessions;
    a.ask("BEGIN; UPDATE hot SET n = 1 WHERE id = 1;");
    a.tell("SELECT pg_sleep(60), 'of Ann''s';");
    until("it sleeps", || onlooker.event_of(a.backend) == "PgSleep");
    blocked(&mut onlooker, b, "UPDATE hot SET n = 4711 WHERE id = 1;");
    let backend = b.backend;
    let look = |options: &str| {
        let options = format!("--now -p {backend} {options}");
        Tool::run("lockstat", options).ok()
    };
    let report = look("--query -j").report();
    let wait = only(&report, "waits");
    assert_eq!(wait["statement"], "UPDATE hot SET n = ? WHERE id = ?;");
    assert_eq!(wait["holder"]["statement"], "SELECT pg_sleep(?), ?;");
    let said = look("--query").stdout;
    assert!(
        said.contains(&format!("PID {backend}: UPDATE hot SET n = ? WHERE")),
        "{said}"
    );
    let said = look("").stdout;
    assert!(!said.contains("UPDATE"), "{said}");
    let report = look("-j").report();
    assert_eq!(only(&report, "waits")["statement"], Value::Null);
}
