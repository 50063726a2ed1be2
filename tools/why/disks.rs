//! Disks behind waits for block I/O: which one, where its requests were, and whose they were.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use budget::Told;
use libbpf_rs::Object;
use profile::frame::Frame;
use profile::losses::Losses;
use profile::rank::Rank;

use crate::biolatency::{Biolatency, PHASES, Share};
use crate::why::beside::Exact;
use crate::why::line::{Blame, Culprit, Program, Users};

/// Kinds of waits that requests of disks end.
pub(crate) const FOR_DISKS: [&str; 2] = ["block-io", "page-fault"];

/// biolatency's engine.
pub(crate) struct Disks<'a> {
    engine: Biolatency<'a>,
    found: Option<(Vec<Share>, Losses)>,
}

impl<'a> Disks<'a> {
    pub(crate) fn new(engine: Biolatency<'a>) -> Self {
        let found = None;
        Self { engine, found }
    }
}

impl Exact for Disks<'_> {
    type Found = Requests;

    fn object(&self) -> &Object {
        self.engine.object()
    }

    fn told<'s>(&'s mut self, end_ns: &'s mut u64) -> Result<Told<'s>> {
        self.engine.told(end_ns)
    }

    fn begin(&mut self) {
        self.engine.begin();
    }

    fn halt(&mut self) -> Result<()> {
        self.found = Some(self.engine.halt()?);
        Ok(())
    }

    fn found(&mut self) -> Result<(Requests, Losses)> {
        let (shares, losses) = self.found.take().unwrap_or_default();
        Ok((Requests(shares), losses))
    }
}

/// All disks' requests, by process.
#[derive(Debug, Default)]
pub(crate) struct Requests(pub(crate) Vec<Share>);

impl Requests {
    /// Disks and phases that the requests of these processes were in, with their time, ns. Where they had none, the kernel wrote for
    /// them: everyone's, if all were on one disk.
    pub(crate) fn of(&self, tgids: impl Fn(u32) -> bool) -> Vec<(Culprit, u64)> {
        let own = self.sums(|share| tgids(share.process.1));
        let is_one_disk = self.0.windows(2).all(|two| two[0].disk == two[1].disk);
        match own.is_empty() && is_one_disk {
            true => self.sums(|_| true),
            false => own,
        }
    }

    fn sums(&self, is_wanted: impl Fn(&Share) -> bool) -> Vec<(Culprit, u64)> {
        let mut sums: HashMap<Culprit, u64> = HashMap::new();
        for share in self.0.iter().filter(|share| is_wanted(share)) {
            for (phase, ns) in PHASES.into_iter().zip(share.ns) {
                let culprit = Culprit::Disk(Arc::clone(&share.disk), phase);
                *sums.entry(culprit).or_default() += ns;
            }
        }
        sums.retain(|_, ns| *ns > 0);
        sums.into_iter().collect()
    }

    /// Users of the disk that is to blame for most of a line.
    pub(crate) fn behind(&self, blames: &[Blame]) -> Option<Users> {
        let disk = blames.iter().find_map(|blame| match &blame.culprit {
            Culprit::Disk(disk, _) => Some(disk),
            _ => None,
        })?;
        let users = self.users(disk);
        Some(Users {
            disk: Arc::clone(disk),
            users,
        })
    }

    /// Processes that used a disk, with the time of their requests in it, ns; the most first.
    fn users(&self, disk: &str) -> Vec<(Program, u64)> {
        let of_disk = self.0.iter().filter(|share| *share.disk == *disk);
        let sums = of_disk.map(|share| {
            let [.., in_device_ns] = share.ns;
            (share.process.clone(), in_device_ns)
        });
        let mut users: Vec<(Program, u64)> = sums.filter(|(_, ns)| *ns > 0).collect();
        users.rank_by_key(|(program, ns)| (Reverse(*ns), program.clone()));
        users
    }
}

/// Functions that end requests: for a device's interrupt, whoever the CPU was with, or in a thread of the kernel's where there is more to do.
const COMPLETIONS: [&str; 6] = [
    "blk_update_request",
    "bio_endio",
    "blk_mq_end_request",
    "folio_end_writeback",
    "end_page_writeback",
    "folio_end_read",
];

/// Looks whether a waker did no more than to end a request.
pub(crate) fn is_completion(kernel: &[Frame]) -> bool {
    let mut names = kernel.iter().map(|frame| &*frame.name);
    names.any(|name| COMPLETIONS.contains(&name))
}

/// Divides the time that nobody but an interrupt ended among the disks and phases that requests were in, by their time there. So many
/// threads waited, `waiters`, all of them for each request at most; what is more than twice the time of that was before there were
/// any: a control group's limit (`io.max`) holds back what becomes a request later. `scale`: by how much requests' time is to be
/// multiplied, for it is of a part of the window.
pub(crate) fn divide(
    blames: &mut HashMap<Culprit, u64>,
    requests: &[(Culprit, u64)],
    waiters: usize,
    scale: f64,
) {
    let all: u64 = requests.iter().map(|(_, ns)| ns).sum();
    if all == 0 {
        return;
    }
    let mut whole = blames.remove(&Culprit::Interrupt).unwrap_or(0);
    let most = (all as f64 * scale * waiters as f64) as u64;
    if let Some(held_back) = whole
        .checked_sub(most.saturating_mul(2))
        .filter(|ns| *ns > 0)
    {
        let held_back = held_back + most;
        blames.insert(Culprit::HeldBack, held_back);
        whole -= held_back;
    }
    let upto = |ns: u64| u128::from(whole) * u128::from(ns) / u128::from(all);
    let mut before = 0;
    for (culprit, ns) in requests {
        let part = upto(before + ns) - upto(before);
        before += ns;
        *blames.entry(culprit.clone()).or_default() += u64::try_from(part).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::biolatency::Phase;

    fn share(disk: &str, process: (&str, u32), ns: [u64; 3]) -> Share {
        Share {
            disk: disk.into(),
            process: (process.0.into(), process.1),
            ns,
            requests: 1,
        }
    }

    fn requests() -> Requests {
        Requests(vec![
            share("vda", ("db", 7), [0, 10, 20]),
            share("vdb", ("db", 7), [0, 0, 3]),
            share("vda", ("dd", 9), [5, 0, 60]),
            share("vda", ("", 0), [0, 0, 20]),
        ])
    }

    #[test]
    fn what_an_interrupt_ended_is_divided_among_disks_and_phases_and_nothing_is_lost() {
        let of_db = requests().of(|tgid| tgid == 7);
        let writer = Culprit::Program(("jbd2".into(), 3), None);
        let mut blames = HashMap::from([(Culprit::Interrupt, 1_000), (writer.clone(), 50)]);
        divide(&mut blames, &of_db, 99, 1.0);
        assert_eq!(blames.values().sum::<u64>(), 1_050);
        let of = |disk: &str, phase| blames[&Culprit::Disk(disk.into(), phase)];
        let near = |found: u64, expected: u64| assert!(found.abs_diff(expected) <= 1, "{found}");
        near(of("vda", Phase::Device), 20_000 / 33);
        near(of("vda", Phase::Queued), 10_000 / 33);
        near(of("vdb", Phase::Device), 3_000 / 33);
        assert_eq!(blames[&writer], 50);
    }

    #[test]
    fn without_requests_of_its_own_a_wait_was_for_the_only_disk_or_for_an_interrupt() {
        let after = |requests: &Requests| {
            let mut blames = HashMap::from([(Culprit::Interrupt, 1_000)]);
            divide(&mut blames, &requests.of(|tgid| tgid == 8), 99, 1.0);
            blames
        };
        assert_eq!(after(&requests())[&Culprit::Interrupt], 1_000);
        let mut of_one = requests();
        of_one.0.retain(|share| *share.disk == *"vda");
        let blames = after(&of_one);
        assert_eq!(blames.values().sum::<u64>(), 1_000);
        assert!(!blames.contains_key(&Culprit::Interrupt), "{blames:?}");
    }

    #[test]
    fn requests_are_not_to_blame_for_more_time_than_they_took() {
        let of_db = requests().of(|tgid| tgid == 7);
        let held_back = |waiters, scale| {
            let mut blames = HashMap::from([(Culprit::Interrupt, 1_000)]);
            divide(&mut blames, &of_db, waiters, scale);
            assert_eq!(blames.values().sum::<u64>(), 1_000);
            blames.get(&Culprit::HeldBack).copied()
        };
        assert_eq!(held_back(1, 1.0), Some(1_000 - 33));
        assert_eq!(held_back(1, 10.0), Some(1_000 - 330));
        assert_eq!(held_back(5, 2.0), Some(1_000 - 330));
        // Threads may wait for one request together, and a little is no proof.
        assert_eq!(held_back(16, 1.0), None);
        assert_eq!(held_back(1, 16.0), None);
    }
}
