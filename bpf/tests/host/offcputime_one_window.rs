//! offcputime without a budget, and within one that allows to look all the time: tables, losses and open waits are the same.
//!
//! By design a budget's run knows more of the waits that were under way when its window opened: it takes stock before, so that
//! their rows say why their threads wait, and their stacks are told at the beginning instead of at the end.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use fastrand::Rng;

use crate::asked::{Open, Row};
use crate::entries::{Entries, assert_same, entries};
use crate::host::machine::{Machine, State};
use crate::one_window::play_both;
use crate::totals::Losses;

/// By thread: what is told of a wait that is under way when the window opens.
type UnderWay = HashMap<u32, Option<Open>>;

/// Half of the runs walk stacks where threads leave the scheduler.
fn open(machine: &mut Machine, seed: u64, is_limited: bool, under_way: &RefCell<UnderWay>) {
    let mut rng = Rng::with_seed(seed);
    let most_ns = *rng.choice(&[u64::MAX, 20_000_000]).expect("some");
    let host = &machine.host;
    host.tell("host_ask", (rng.u64(0..5_000_000), most_ns, u32::MAX));
    host.tell("host_ask_whom_and_what", ());
    machine.tells_wakers = true;
    if rng.bool() {
        host.tell("host_walk_on_exit", ());
        machine.tells_exits = true;
    }
    if is_limited {
        let waiting = machine
            .alive()
            .filter(|thread| thread.state != State::Running);
        let told = waiting.map(|thread| (thread.tid, Open::of(machine, "host_open", thread.task)));
        under_way.replace(told.collect());
    }
}

/// Rows of threads whose waits were under way lose their flags, and the wakers that depend on them.
fn without_reasons(all: Entries, under_way: &UnderWay) -> Entries {
    const WAKER: Range<usize> = 40..48;
    const FLAGS: usize = 64;
    const KEY: usize = 72;
    let (rows, mut all): (Entries, Entries) = all
        .into_iter()
        .partition(|(table, _)| table == "offcpu_time");
    let mut sums: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    for (_, mut bytes) in rows {
        let words: Vec<u64> = bytes[KEY..].chunks(8).map(word).collect();
        bytes.truncate(KEY);
        if under_way.contains_key(&(word(&bytes[..8]) >> 32).try_into().expect("a thread")) {
            bytes[FLAGS] = 0;
            bytes[WAKER].fill(0);
        }
        let sum = sums.entry(bytes).or_default();
        sum.blocked_ns += words[0];
        sum.runqueue_ns += words[1];
        sum.count += words[2];
    }
    for (key, sum) in sums {
        let words = [sum.blocked_ns, sum.runqueue_ns, sum.count, 0];
        let value = words.map(u64::to_ne_bytes).concat();
        all.insert(("offcpu_time".into(), [key, value].concat()));
    }
    // Its memory for a record that it writes.
    all.retain(|(table, _)| table != "closing");
    all
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
}

/// All that is told of phases that are open now.
fn opens(machine: &Machine, under_way: &UnderWay) -> Vec<Option<Open>> {
    let close = |task| Open::of(machine, "host_close", task);
    let opens = machine.alive().map(|thread| {
        let mut open = close(thread.task)?;
        if open.is_known != 0 {
            // All that was told of it before.
            let stacks = under_way.get(&thread.tid)?.as_ref()?;
            open = open.with_stacks(stacks);
        }
        Some(open)
    });
    opens.collect()
}

fn assert_both(exact: &Machine, within_budget: &Machine, under_way: &UnderWay, case: &str) {
    exact.host.tell("host_end", (exact.now,));
    within_budget.host.write("window_end_ns", within_budget.now);
    let told = (
        opens(exact, &UnderWay::new()),
        opens(within_budget, under_way),
    );
    assert_eq!(told.0, told.1, "{case}");
    let all = [exact, within_budget].map(|run| without_reasons(entries(&run.host), under_way));
    assert_same(&all[0], &all[1], case);
    let [one, other] = [exact, within_budget].map(|run| Losses::told(&run.host));
    assert_eq!(one, other, "{case}");
}

#[test]
fn one_window_is_the_exact_run() {
    let under_way = RefCell::new(UnderWay::new());
    play_both(
        "offcputime",
        |machine, seed, is_limited| open(machine, seed, is_limited, &under_way),
        |exact, within_budget, case| {
            assert_both(exact, within_budget, &under_way.borrow(), case);
        },
    );
}
