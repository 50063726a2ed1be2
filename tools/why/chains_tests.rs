//! Tests of chains to the root.

use super::*;

fn spot(kind: &'static str, place: &str, lock: Option<usize>) -> Spot {
    ((kind, Some(place.into())), lock)
}

const WINDOW_NS: u64 = 1_000;

/// The holders of every lock, and what they did meanwhile.
struct Held(Vec<(u32, u64)>, Option<(Doing, f64)>);

impl Holders for Held {
    fn holders(&self, _: usize) -> Vec<(u32, u64)> {
        self.0.clone()
    }

    fn did(&self, _: usize) -> Option<(Doing, f64)> {
        self.1
    }

    fn name(&self, _: usize) -> String {
        "mutex a".into()
    }
}

fn said(threads: &Threads, spot: &Spot, holders: &[(u32, u64)]) -> (String, End) {
    let chain = threads.chain(spot, &Held(holders.to_vec(), None), WINDOW_NS);
    let chain = chain.expect("a chain");
    (chain.remarks().join(""), chain.end)
}

/// Workers wait for the parser's pipe, it waits for a lock, whose holder waits for a disk.
fn chained() -> Threads {
    let mut threads = Threads::default();
    let name = |name: &str| -> Arc<str> { name.into() };
    let pipe = spot("pipe", "ask", None);
    for worker in [10, 11] {
        threads.add(worker, &pipe, 100, Some((20, &name("parser"))));
    }
    threads.add(
        20,
        &spot("futex", "parse", Some(3)),
        70,
        Some((31, &name("x"))),
    );
    threads.add(20, &spot(ON_CPU, "parse", None), 30, None);
    threads.add(30, &spot("block-io", "flush", None), 80, None);
    threads.add(30, &spot(ON_CPU, "flush", None), 20, None);
    threads.learn(30, &name("refill"));
    threads
}

#[test]
fn a_wait_is_followed_over_a_pipe_and_a_lock_to_a_disk() {
    let (said, end) = said(&chained(), &spot("pipe", "ask", None), &[(30, 9), (31, 1)]);
    assert_eq!(end, End::Root);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        said,
        "root: parser 20 100% -> mutex a in parse 70% -> refill 30 90% -> block-io in flush 80%"
    );
}

#[test]
fn chains_end_where_nobody_is_known_was_looked_at_or_comes_again() {
    let threads = chained();
    let pipe = spot("pipe", "ask", None);
    let end = |threads: &Threads, holders: &[(u32, u64)]| said(threads, &pipe, holders).1;
    assert_eq!(end(&threads, &[]), End::Unknown);
    assert_eq!(end(&threads, &[(99, 1)]), End::Outside);
    assert_eq!(end(&threads, &[(20, 1)]), End::Cycle);
    // The last thread has little time of its own: it waits for events.
    let mut threads = chained();
    threads.add(20, &spot("futex", "log", Some(3)), 1000, None);
    threads.add(40, &spot(RUN_QUEUE, "poll", None), 9, None);
    assert_eq!(end(&threads, &[(40, 200)]), End::Idle);
    assert_eq!(end(&threads, &[(40, 100)]), End::Root);
    // Many have little each.
    let many: Vec<(u32, u64)> = (40..50).map(|tid| (tid, 1)).collect();
    assert_eq!(end(&threads, &many), End::Unknown);
}

#[test]
fn waiters_for_a_lock_are_one_lines_whatever_function_they_wait_in() {
    let mut threads = chained();
    let here = spot("futex", "parse", Some(3));
    let chain = |threads: &Threads| {
        let chain = threads.chain(&here, &Held(vec![(21, 100)], None), WINDOW_NS);
        chain.expect("a chain").end
    };
    // It has next to nothing to do beside the time that it held the lock for one of them; for both it has something.
    threads.add(21, &spot(ON_CPU, "log", None), 15, None);
    assert_eq!(chain(&threads), End::Idle);
    threads.add(22, &spot("futex", "log", Some(4)), 70, None);
    assert_eq!(chain(&threads), End::Idle, "it waits for another lock");
    threads.add(22, &spot("futex", "log", Some(3)), 70, None);
    assert_eq!(chain(&threads), End::Root);
}

#[test]
fn a_request_that_a_waiter_sent_is_none_of_what_it_waits_for() {
    let mut threads = chained();
    let (ask, serve) = (spot("pipe", "ask", None), spot("pipe", "serve", None));
    let worker: Arc<str> = "worker".into();
    // Most of their time nobody asks.
    threads.add(20, &serve, 900, Some((10, &worker)));
    threads.add(30, &serve, 900, Some((20, &"parser".into())));
    let (said, end) = said(&threads, &ask, &[(30, 1)]);
    assert_eq!(end, End::Root, "{said}");
    assert!(said.contains("in parse 70%"), "{said}");

    // Two that do nothing but pass a token wait for each other.
    let mut threads = Threads::default();
    let pass = spot("pipe", "pass", None);
    threads.add(1, &pass, 50, Some((2, &worker)));
    threads.add(2, &spot("pipe", "pass on", None), 50, Some((1, &worker)));
    let chain = threads.chain(&pass, &Held(Vec::new(), None), WINDOW_NS);
    assert_eq!(chain.expect("a chain").end, End::Cycle);
}

#[test]
fn threads_that_take_turns_are_one_link_with_what_they_do_in_their_turns() {
    let mut threads = Threads::default();
    let wait = spot("futex", "log", Some(3));
    let (nap, outside) = (spot("sleep", "emit", None), spot("sleep", "work", None));
    let holders: Vec<(u32, u64)> = (40..50).map(|tid| (tid, 1)).collect();
    for (tid, _) in &holders {
        threads.add(*tid, &wait, 700, Some((40, &"app".into())));
        threads.add(*tid, &nap, 70, None);
        threads.add(*tid, &outside, 200, None);
        threads.add(*tid, &spot(ON_CPU, "parse", None), 30, None);
    }
    let chain = |did, holders: &[(u32, u64)], window_ns| {
        let chain = threads.chain(&wait, &Held(holders.to_vec(), did), window_ns);
        chain.map(|chain| chain.remarks().join("").trim().to_owned())
    };
    let asleep = Some((Doing::Asleep, 0.7));
    let words = "root: 10 threads in turn 100% -> sleep in emit 70%";
    assert_eq!(chain(asleep, &holders, WINDOW_NS).as_deref(), Some(words));
    // They do other things for longer than one at a time can have, or for less.
    assert_eq!(
        chain(Some((Doing::Asleep, 0.55)), &holders, WINDOW_NS),
        None
    );
    assert_eq!(chain(Some((Doing::OnCpu, 0.7)), &holders, WINDOW_NS), None);
    // Nobody knows what they did, one of them does not wait for it, or nobody waits at times.
    assert_eq!(chain(None, &holders, WINDOW_NS), None);
    let other = [&holders[..], &[(60, 1), (61, 1)]].concat();
    assert_eq!(chain(asleep, &other, WINDOW_NS), None);
    assert_eq!(chain(asleep, &holders, 7_000), None);
    // It is followed to whom they wait for.
    for (tid, _) in &holders {
        let peer = Some((77, &"peer".into()));
        threads.add(*tid, &spot("socket", "ask", None), 75, peer);
    }
    let chain = |did| {
        let held = Held(holders.clone(), Some(did));
        let chain = threads.chain(&wait, &held, WINDOW_NS);
        chain.map(|chain| (chain.remarks().concat(), chain.root()))
    };
    let (said, root) = chain((Doing::ForOthers, 0.75)).expect("a chain");
    assert!(
        said.contains("socket in ask 75%") && said.contains("peer 77 100%"),
        "{said}"
    );
    let words = "10 threads in turn, socket in ask";
    assert_eq!(root.as_deref(), Some(words));
    // Nobody knows in which of two places, or of more that are shorter.
    assert_eq!(chain((Doing::OffCpu, 0.7)), None);
    assert_eq!(chain((Doing::OffCpu, 1.9)), None);
}
