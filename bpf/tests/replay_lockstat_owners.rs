//! lockstat's programs for kernel locks that have owners and names, on random orders of events.

#[macro_use]
#[path = "host/calling.rs"]
mod calling;
#[expect(dead_code, reason = "it has what only futexes need, too")]
#[path = "host/futex_account.rs"]
mod futex_account;
#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;
#[path = "host/owners.rs"]
mod owners;

use calling::assert_same;
use host::Host;
use owners::Owners;
use owners::log::{Sums, add_rows};

/// Plays 10,000 events in five intervals; tables are full from somewhere in one of the first on. The number of rows.
fn play(host: Host, seed: u64) -> usize {
    let mut world = Owners::new(host, seed);
    let full = seed.is_multiple_of(3).then_some(300 + seed * 97);
    let mut rows = 0;
    let mut sums = Sums::new();
    for interval in 0..5 {
        for step in 0..2_000 {
            if full == Some(interval * 2_000 + step) {
                world.fill();
            }
            world.step();
        }
        let [programs, model] = world.turn(interval == 4);
        let of = format!("seed {seed}, interval {interval}");
        assert_same(&format!("{of}, rows"), &programs, &model);
        rows += programs.len();
        add_rows(&mut sums, &programs);
        let [programs, model] = world.names();
        assert_same(&format!("{of}, names"), &programs, &model);
        assert_eq!(
            world.programs.told::<[u64; 14]>(),
            world.lost(),
            "{of}, losses"
        );
    }
    // Tables without room have less.
    if full.is_none() {
        let [programs, oracle] = [sums, world.oracles()].map(Vec::from_iter);
        assert_same(&format!("seed {seed}, waits"), &programs, &oracle);
    }
    rows
}

#[test]
fn waits_and_names_are_what_threads_did() {
    let object = host::compile("lockstat_owners");
    let rows: usize = (0..100).map(|seed| play(Host::load(&object), seed)).sum();
    assert!(rows > 10_000, "{rows} rows");
}
