//! pressure's programs on random orders of events, some of them hidden, against what its man page says of victims and culprits.

#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;
#[path = "host/pressure_intervals.rs"]
mod intervals;
#[path = "host/pressure_lives.rs"]
mod lives;
#[path = "host/pressure_machine.rs"]
mod machine;
#[path = "host/pressure_members.rs"]
mod members;
#[path = "host/pressure_stacks.rs"]
mod stacks;
#[path = "host/pressure_stock.rs"]
mod stock;
#[path = "host/pressure_switches.rs"]
mod switches;
#[path = "host/pressure_told.rs"]
mod told;

use host::Host;
use machine::Machine;

/// Each seed draws other options; in a third of them nothing is hidden, and times are held to the threads' own, too.
#[test]
fn stalls_count_for_their_victims_and_their_culprits() {
    let object = host::compile("pressure");
    for seed in 0..150 {
        let mut machine = Machine::new(Host::load(&object), seed);
        machine.play();
        machine.assert_the_same();
    }
}
