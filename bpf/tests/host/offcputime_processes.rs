//! Times of processes, where details are asked for, against those of all targets together.

use std::cell::Cell;
use std::ops::Range;

use crate::asked::Open;
use crate::host::machine::Machine;
use crate::totals::{Losses, Totals};
use crate::window::play_window;

/// `struct process_time` of offcpu_processes.bpf.h: threads that have ended, their lifetimes, on a CPU, unseen, lost.
type Time = [u64; 5];

/// Sums over processes, with what the closing iterator tells of threads that live on, and the same of all targets.
fn sums(machine: &Machine) -> [Time; 2] {
    let host = &machine.host;
    let mut sums = Time::default();
    let mut add = |time: &Time| sums.iter_mut().zip(time).for_each(|(sum, ns)| *sum += ns);
    for (_, time) in host.all::<u32, Time>("processes") {
        add(&time);
    }
    for thread in machine.alive() {
        if let Some(open) = Open::of(machine, "host_close", thread.task) {
            let [oncpu_ns, unseen_ns, lost_ns] = open.sums;
            add(&[0, 0, oncpu_ns, unseen_ns, lost_ns]);
        }
    }
    let (all, lost) = (Totals::told(host), Losses::told(host));
    let lost_ns = lost.rows_full_ns + lost.unreported_ns;
    let ended = [all.threads_exited, all.lifetime_ns];
    let all = [ended[0], ended[1], all.oncpu_ns, all.unseen_ns, lost_ns];
    [sums, all]
}

#[test]
fn times_of_processes_add_up_to_those_of_all_targets() {
    let unseen_ns = Cell::new(0);
    let check = |machine: &Machine, window: Range<u64>, seed| {
        let [sums, all] = sums(machine);
        assert_eq!(sums, all, "seed {seed}, {window:?}");
        unseen_ns.set(unseen_ns.get() + sums[3]);
    };
    let begin = |machine: &mut Machine| machine.host.tell("host_ask_details", ());
    play_window("offcputime", begin, |_| (), check);
    assert!(unseen_ns.get() > 0, "no switch was hidden");
}
