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

/// Factor of requests' time up to which it tells of waits: a quarter of the window, or more, was looked at.
pub(crate) const MOST_SCALE: f64 = 4.0;

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
    /// Divides the time of a line that an interrupt ended among the disks and phases that its processes' requests were in, by their time
    /// there. Where they had none, the kernel wrote for them: everyone's, if all were on one disk. `whose`: its time by process.
    /// `held_back`: a part of it that was before the requests, ns.
    pub(crate) fn divide(
        &self,
        blames: &mut HashMap<Culprit, u64>,
        whose: &HashMap<u32, u64>,
        held_back: u64,
    ) {
        let whole = blames.remove(&Culprit::Interrupt).unwrap_or(0);
        let own = self.sums(|share| whose.contains_key(&share.process.1));
        let is_one_disk = self.0.windows(2).all(|two| two[0].disk == two[1].disk);
        let requests = match own.is_empty() && is_one_disk {
            true => self.sums(|_| true),
            false => own,
        };
        let held_back = held_back.min(whole);
        let parts = parts(whole - held_back, &requests);
        let parts = parts.chain([(Culprit::HeldBack, held_back)]);
        for (culprit, ns) in parts.filter(|(_, ns)| *ns > 0) {
            *blames.entry(culprit).or_default() += ns;
        }
    }

    /// The part of waits for I/O, of so many ns and so many in number, that no requests can have taken, ns: what is more than twice their
    /// time was before there were any, as a control group's limit (`io.max`) holds back what becomes a request later. Each is counted
    /// `times`: several threads may wait for one. Waits for a network's file system, or a program's, end with no request: so there must be
    /// enough of these.
    pub(crate) fn held_back(&self, (whole, waits): (u64, u64), times: f64) -> u64 {
        let sum = |of: fn(&Share) -> u64| self.0.iter().map(of).sum::<u64>();
        let ended = sum(|share| share.requests) as f64 * times;
        let most = (sum(|share| share.ns.iter().sum()) as f64 * times) as u64;
        match ended >= waits as f64 && whole > most.saturating_mul(2) {
            true => whole - most,
            false => 0,
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
        let most = blames.iter().max_by_key(|blame| blame.value)?;
        if most.culprit == Culprit::HeldBack {
            return None;
        }
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

/// Divides a time by that of requests; an interrupt's, if there are none.
fn parts(whole: u64, requests: &[(Culprit, u64)]) -> impl Iterator<Item = (Culprit, u64)> {
    let all: u64 = requests.iter().map(|(_, ns)| ns).sum();
    let upto = move |ns: u64| u128::from(whole) * u128::from(ns) / u128::from(all.max(1));
    let rest = if all == 0 { whole } else { 0 };
    let mut before = 0;
    let parts = requests.iter().map(move |(culprit, ns)| {
        let part = upto(before + ns) - upto(before);
        before += ns;
        (culprit.clone(), u64::try_from(part).unwrap_or(0))
    });
    parts.chain([(Culprit::Interrupt, rest)])
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

    /// A line of a process, of which an interrupt ended 1,000 ns and a writer 50.
    fn after(requests: &Requests, tgid: u32, held_back: u64) -> HashMap<Culprit, u64> {
        let mut blames = HashMap::from([(Culprit::Interrupt, 1_000), (writer(), 50)]);
        requests.divide(&mut blames, &HashMap::from([(tgid, 1_050)]), held_back);
        assert_eq!(blames.values().sum::<u64>(), 1_050);
        assert_eq!(blames[&writer()], 50);
        blames
    }

    fn writer() -> Culprit {
        Culprit::Program(("jbd2".into(), 3), None)
    }

    #[test]
    fn what_an_interrupt_ended_is_divided_among_disks_and_phases_and_nothing_is_lost() {
        let blames = after(&requests(), 7, 0);
        let of = |disk: &str, phase| blames[&Culprit::Disk(disk.into(), phase)];
        let near = |found: u64, expected: u64| assert!(found.abs_diff(expected) <= 1, "{found}");
        near(of("vda", Phase::Device), 20_000 / 33);
        near(of("vda", Phase::Queued), 10_000 / 33);
        near(of("vdb", Phase::Device), 3_000 / 33);
    }

    #[test]
    fn without_requests_of_its_own_a_wait_was_for_the_only_disk_or_for_an_interrupt() {
        assert_eq!(after(&requests(), 8, 0)[&Culprit::Interrupt], 1_000);
        let mut of_one = requests();
        of_one.0.retain(|share| *share.disk == *"vda");
        let blames = after(&of_one, 8, 0);
        assert!(!blames.contains_key(&Culprit::Interrupt), "{blames:?}");
    }

    #[test]
    fn what_was_held_back_is_no_disks() {
        let blames = after(&requests(), 7, 901);
        assert_eq!(blames[&Culprit::HeldBack], 901);
        let of_disks = |(culprit, _): &(&Culprit, &u64)| matches!(culprit, Culprit::Disk(..));
        let of_disks: u64 = blames.iter().filter(of_disks).map(|(_, ns)| ns).sum();
        assert_eq!(of_disks, 99);
        let held_back = Blame {
            culprit: Culprit::HeldBack,
            value: 901,
        };
        let disk = Blame {
            culprit: Culprit::Disk("vda".into(), Phase::Device),
            value: 99,
        };
        assert!(requests().behind(&[held_back, disk.clone()]).is_none());
        assert!(requests().behind(&[disk]).is_some());
    }

    /// All four requests took 118 ns.
    #[test]
    fn requests_are_not_to_blame_for_more_time_than_they_took() {
        let held_back = |whole, waits, times| requests().held_back((whole, waits), times);
        assert_eq!(held_back(1_000, 4, 1.0), 1_000 - 118);
        assert_eq!(held_back(1_000, 8, 4.0), 1_000 - 4 * 118);
        // Threads may wait for one request together, and a little is no proof.
        assert_eq!(held_back(1_000, 4, 5.0), 0);
        assert_eq!(held_back(236, 1, 1.0), 0);
        // A network's file system.
        assert_eq!(held_back(1_000, 5, 1.0), 0);
        assert_eq!(Requests::default().held_back((1_000, 1), 1.0), 0);
    }
}
