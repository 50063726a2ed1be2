//! Sums of the replay of pressure, and whether the programs' are the same.

use crate::machine::Machine;
use crate::members::{CPU, IO};

/// Stacks that found no room, no scratch and no budget; locks not waited for, requests that failed.
const COUNTERS: [&str; 5] = [
    "stall_stacks_full",
    "stall_stacks_busy",
    "stacks_left_out",
    "unlocked",
    "block_errors",
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) events: u64,
    pub(crate) exits: u64,
    pub(crate) exited_full: u64,
    pub(crate) unseen: u64,
    pub(crate) unseen_ns: u64,
    pub(crate) stacks_full: u64,
    pub(crate) busy: u64,
    pub(crate) left_out: u64,
    pub(crate) unlocked: u64,
    pub(crate) errors: u64,
}

impl Machine {
    /// Living threads have lost and caused what they were told to have.
    pub(crate) fn assert_truth(&self) {
        let members = self
            .threads
            .iter()
            .filter(|it| !it.is_gone && !it.is_ending);
        for thread in members.filter(|_| self.is_clean) {
            if let Some(member) = &thread.member {
                let told = [
                    member.reported.lost_ns[CPU],
                    member.reported.caused_ns,
                    member.reported.lost_ns[IO],
                ];
                assert_eq!(
                    told, thread.truth_ns,
                    "{}, {}: lost, caused",
                    self.what, thread.tid
                );
            }
        }
    }

    pub(crate) fn assert_the_same(&self) {
        for (at, cpu) in self.cpus.iter().enumerate() {
            let told = self.host.told::<[u64; 6]>("host_cpu_told", (at as u32,));
            let [waiting, throttled] = cpu.counts.map(i64::cast_unsigned);
            let since = [cpu.since_ns, cpu.waited_ns, cpu.throttled_ns];
            let expected = [
                waiting,
                throttled,
                cpu.is_busy.into(),
                since[0],
                since[1],
                since[2],
            ];
            assert_eq!(told, expected, "{}, CPU {at}", self.what);
        }
        let host = &self.host;
        let told = [
            &host.sums::<_, 1>("events", &0_u32)[..],
            &[host.read("exits")],
            &host.read::<[u64; 3]>("losses"),
            &COUNTERS.map(|name| host.read::<u64>(name)),
            &["host_deadlocks", "host_claimed"].map(|name| host.read::<u32>(name).into()),
        ];
        let sums = &self.told;
        let expected = [
            [sums.events, sums.exits, sums.exited_full],
            [sums.unseen, sums.unseen_ns, sums.stacks_full],
            [sums.busy, sums.left_out, sums.unlocked],
            [sums.errors, 0, 0],
        ];
        assert_eq!(told.concat(), expected.concat(), "{}", self.what);
        let hidden = (sums.unseen > 0) as u64;
        assert!(
            !self.is_clean || hidden == 0,
            "{}: nothing was hidden",
            self.what
        );
    }
}
