//! Whom waits were behind, as a tool in a PID namespace of its own knows them.

use oracle::behind;

use crate::asked::culprit_of;
use crate::host;
use crate::host::machine::Machine;

/// Number in the tool's namespace; `None`: outside, as host/runqlat_threads.h has it.
fn inner(tid: u32) -> Option<u32> {
    (tid > 0 && tid % 6 < 4).then_some(3_000_000 + tid)
}

/// Waits, ns of them, and the process, by a number in the tool's namespace.
fn caused(machine: &Machine, tid: u32) -> (u64, u64, u32) {
    let told = culprit_of(machine, tid);
    (told.waits, told.caused_ns, told.tgid)
}

fn assert_inside(machine: &mut Machine, seed: u64) {
    machine.wake_all();
    let tids: Vec<u32> = machine.lives().map(|life| life.tid).collect();
    let logs = machine.logs(0..=machine.now);
    let culprits = behind::culprits(&logs, &tids).expect("the same log");
    for tid in 0..=machine.last_tid {
        let truth = culprits.get(&tid).copied().unwrap_or_default();
        let what = format!("seed {seed}, thread {tid}");
        match inner(tid) {
            Some(number) => {
                let process = if truth.count > 0 {
                    4_000_000 + tid % 5
                } else {
                    0
                };
                let expected = (truth.count, truth.least_ns, process);
                assert_eq!(caused(machine, number), expected, "{what}");
            }
            // Nobody outside has a number to be blamed by; what is too long ago has none either.
            None => {
                let expected = match tid {
                    0 => (truth.count, truth.least_ns, 0),
                    _ => (0, 0, 0),
                };
                assert_eq!(caused(machine, tid), expected, "{what}");
                // The number that one has in another namespace.
                assert_eq!(caused(machine, 3_000_000 + tid), (0, 0, 0), "{what}");
            }
        }
    }
}

#[test]
fn numbers_of_a_pid_namespace_are_the_tools() {
    let object = host::compile("runqlat");
    for seed in 0..30 {
        let mut machine = Machine::new(&object, seed, 0);
        machine.host.tell("host_within_namespace", ());
        machine.steps(10_000);
        assert_inside(&mut machine, seed);
    }
}
