//! lockstat's programs for programs' locks on random orders of events, against what threads did.

#[path = "host/buckets.rs"]
mod buckets;
#[path = "host/futex_account.rs"]
mod futex_account;
#[path = "host/futex_calls.rs"]
mod futex_calls;
#[path = "host/futexes.rs"]
mod futexes;
#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;

use buckets::bucket;
use futex_account::{Counted, Row};
use futexes::Futexes;
use host::Host;

/// Compares one row of the model, empty ones included, with the programs' tables.
fn assert_row(world: &Futexes, key: (usize, u8, u32), row: &Row, seed: u64) {
    let (lock, operation, tgid) = key;
    let (address, is_shared) = (world.locks[lock], Futexes::is_shared(lock));
    let what = format!("seed {seed}, lock {lock}, operation {operation}, process {tgid}");
    let lengths: Vec<u64> = row.waits.iter().map(|wait| wait.length_ns).collect();
    let total_ns: u64 = lengths.iter().sum();
    let run_queue_ns: u64 = row.waits.iter().map(|wait| wait.run_queue_ns).sum();
    let count = |is: fn(&Counted) -> bool| row.waits.iter().filter(|wait| is(wait)).count() as u64;
    let expected = [
        lengths.len() as u64,
        total_ns,
        lengths.iter().copied().max().unwrap_or(0),
        0,
        total_ns,
        run_queue_ns,
        row.raced,
        count(|wait| wait.is_given_up),
        count(|wait| wait.is_open),
    ];
    let programs = &world.programs;
    let found = programs.sums(address, operation, is_shared, tgid);
    assert_eq!(found, expected, "{what}");
    // Calls that did not sleep have no length, and are in no bucket.
    for ns in lengths.iter().chain([&0]) {
        let same = lengths
            .iter()
            .filter(|other| bucket(**other) == bucket(*ns));
        let found = programs.bucket(address, operation, is_shared, tgid, *ns);
        assert_eq!(found, same.count() as u64, "{what}, waits of about {ns} ns");
    }
    assert_threads(world, key, row, &what);
}

/// Compares who waited, and who ended the waits.
fn assert_threads(world: &Futexes, key: (usize, u8, u32), row: &Row, what: &str) {
    let (lock, operation, tgid) = key;
    let (address, is_shared) = (world.locks[lock], Futexes::is_shared(lock));
    let programs = &world.programs;
    for &(tid, of) in &world.all_threads() {
        let own: Vec<_> = row
            .waits
            .iter()
            .filter(|wait| wait.tid == tid && of == tgid)
            .collect();
        let expected = [
            own.len() as u64,
            own.iter().map(|wait| wait.length_ns).sum(),
            own.iter().map(|wait| wait.run_queue_ns).sum(),
            own.iter().map(|wait| wait.length_ns).max().unwrap_or(0),
        ];
        // A key of another process is another row.
        if of == tgid {
            let found = programs.waiter(address, operation, is_shared, tgid, tid);
            assert_eq!(found, expected, "{what}, thread {tid}");
        }
        let ended: Vec<_> = row
            .waits
            .iter()
            .filter(|wait| wait.holder == Some((tid, of)))
            .collect();
        let expected = [
            ended.len() as u64,
            ended.iter().map(|wait| wait.length_ns).sum(),
        ];
        let found = programs.holder(address, operation, is_shared, tgid, (tid, of));
        assert_eq!(found, expected, "{what}, ended by {tid}");
    }
}

fn assert_the_same(world: &Futexes, seed: u64) {
    for (key, row) in world.rows() {
        assert_row(world, key, &row, seed);
    }
    let told = world.programs.told();
    assert_eq!(
        told,
        [world.unseen, world.returned],
        "seed {seed}: unseen, returned"
    );
}

#[test]
fn waits_on_futexes_are_what_threads_did() {
    let dir = tempfile::tempdir().expect("a directory");
    let object = host::compile(dir.path(), "lockstat_futexes");
    for seed in 0..60 {
        let mut world = Futexes::new(Host::load(&object), seed);
        for _ in 0..20_000 {
            world.step();
        }
        world.close();
        assert_the_same(&world, seed);
    }
}
