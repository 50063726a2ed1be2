//! lockstat's programs for programs' locks on random orders of events, against what threads did.

#[macro_use]
#[path = "host/calling.rs"]
mod calling;
#[path = "host/futex_account.rs"]
mod futex_account;
#[path = "host/futex_calls.rs"]
mod futex_calls;
#[path = "host/futex_locks.rs"]
mod futex_locks;
#[path = "host/futexes.rs"]
mod futexes;
#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;

use calling::assert_same;
use futexes::Futexes;
use host::Host;

/// Plays 20,000 events in ten intervals; tables are full from somewhere in one of the first on.
fn play(host: Host, seed: u64) {
    let mut world = Futexes::new(host, seed);
    let full = seed.is_multiple_of(3).then_some(200 + seed * 157);
    for interval in 0..10 {
        for step in 0..2_000 {
            if full == Some(interval * 2_000 + step) {
                world.fill();
            }
            world.step();
        }
        let [programs, model] = match interval {
            9 => world.close(),
            _ => world.turn(),
        };
        let of = format!("seed {seed}, interval {interval}");
        assert_same(&of, &programs, &model);
        let (told, expected) = (world.programs.told::<[u64; 13]>(), world.book.told);
        assert_eq!(told, expected, "{of}");
        world.assert_known(&of);
    }
}

#[test]
fn waits_on_futexes_are_what_threads_did() {
    let object = host::compile("lockstat_futexes");
    for seed in 0..60 {
        play(Host::load(&object), seed);
    }
}
