//! Looks of `lockstat --now` at threads in any state, against what those threads have.

#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;
#[path = "host/now_threads.rs"]
mod now_threads;

use host::Host;
use now_threads::Threads;

#[test]
fn a_look_at_any_thread_tells_what_it_does() {
    let object = host::compile("lockstat_now");
    let mut locks = 0;
    for seed in 0..80 {
        let mut threads = Threads::new(Host::load(&object), seed);
        for nr in 0..200 {
            let facts = threads.any();
            let seen = threads.look(&facts);
            let expected = threads.expected(&facts);
            assert_eq!(seen, expected, "seed {seed}, thread {nr}: {facts:?}");
            locks += usize::from(expected[now_threads::LOCK_KIND] != 0);
        }
    }
    assert!(locks > 2_000, "{locks} locks");
}
