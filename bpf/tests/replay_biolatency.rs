//! biolatency's programs on random requests of kernels of all ages, against what its man page says of requests.

#[path = "host/biolatency_account.rs"]
mod account;
#[path = "host/biolatency_asked.rs"]
mod asked;
#[path = "host/biolatency_endings.rs"]
mod endings;
#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;
#[path = "host/biolatency_lives.rs"]
mod lives;
#[path = "host/biolatency_machine.rs"]
mod machine;
#[path = "host/biolatency_requests.rs"]
mod requests;
#[path = "host/biolatency_told.rs"]
mod told;

use host::Host;
use machine::Machine;

/// Each seed draws other options, and another kernel.
#[test]
fn requests_are_timed_and_counted_as_asked() {
    let object = host::compile("biolatency");
    for seed in 0..250 {
        let mut machine = Machine::new(Host::load(&object), seed);
        machine.play();
        machine.assert_the_same(seed);
    }
}
