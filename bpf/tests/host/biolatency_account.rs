//! Accounts of disks and requests, and whether the programs' are the same.

use std::collections::{BTreeMap, HashMap};

use bpf::biolatency::types::{disk as known_disk, disk_epoch, disk_key};

use crate::machine::{Machine, Request};
use crate::requests::Note;
use crate::told::{DISKS_FULL, DiskSum, Slow, Tables};

/// Counters of what was not counted, behind `struct biolatency_losses`.
const LOSSES: [&str; 6] = [
    "begun_before",
    "never_completed",
    "started_full",
    "disks_full",
    "groups_full",
    "buckets_full",
];

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownDisk {
    pub(crate) needs_stamp: Option<bool>,
    pub(crate) busy_until_ns: u64,
}

#[derive(Default)]
pub(crate) struct Account {
    /// 0: not yet, or not known.
    pub(crate) window: (u64, u64),
    pub(crate) half: u32,
    pub(crate) is_full: bool,
    pub(crate) is_ring_full: bool,
    pub(crate) wanted_devs: Vec<u32>,
    /// Notes by the request's memory.
    pub(crate) notes: HashMap<u64, Note>,
    /// Times at which bios were submitted that have no request yet.
    pub(crate) submitted: HashMap<u64, u64>,
    /// Disks by place and number.
    pub(crate) disks: BTreeMap<(usize, u32), KnownDisk>,
    pub(crate) sums: BTreeMap<(usize, u32, u32), DiskSum>,
    pub(crate) tables: Tables,
    pub(crate) lost: [u64; 10],
    pub(crate) slow: Option<Slow>,
}

impl Account {
    pub(crate) fn in_window(&self, now: u64) -> bool {
        let (start_ns, end_ns) = self.window;
        start_ns > 0 && now >= start_ns && (end_ns == 0 || now < end_ns)
    }

    pub(crate) fn know(&mut self, disk: (usize, u32)) -> Option<&mut KnownDisk> {
        if self.is_full && !self.disks.contains_key(&disk) {
            self.lost[DISKS_FULL] += 1;
            return None;
        }
        Some(self.disks.entry(disk).or_default())
    }

    pub(crate) fn sum_of(&mut self, (disk, dev): (usize, u32)) -> Option<&mut DiskSum> {
        let key = (disk, dev, self.half);
        if !self.sums.contains_key(&key) {
            self.know((disk, dev));
            if self.is_full {
                self.lost[DISKS_FULL] += 1;
                return None;
            }
        }
        Some(self.sums.entry(key).or_default())
    }
}

impl Machine {
    pub(crate) fn assert_slow(&mut self) {
        let mut told = Slow::default();
        let is_sent = self.host.ask::<bool>("host_take_slow", (&mut told,));
        let expected = self.account.slow.take();
        assert_eq!(is_sent.then_some(told), expected, "{:?}", self.asked);
    }

    /// Knowledge of a disk's stamps, from its requests so far.
    pub(crate) fn assert_learnt(&self, request: &Request) {
        if let Some(dev) = self.wanted(request, true) {
            self.assert_known((request.disk, dev), "learnt");
        }
    }

    pub(crate) fn assert_the_same(&self, seed: u64) {
        let what = format!("seed {seed}, {:?}", self.asked);
        let account = &self.account;
        let lost = self.host.read::<[u64; 4]>("losses");
        let others = LOSSES.map(|name| self.host.read::<u64>(name));
        assert_eq!([&lost[..], &others].concat(), account.lost, "{what}");
        assert_eq!(Tables::told(&self.host), account.tables, "{what}");
        let parts = [0, 1, 2].map(|part| self.disks.iter().map(move |it| it.dev | part));
        let devs = parts.into_iter().flatten().chain([8, 259, 0]);
        for (dev, disk) in devs.flat_map(|dev| (0..self.disks.len()).map(move |disk| (dev, disk))) {
            self.assert_disk((disk, dev), &what);
        }
    }

    fn assert_known(&self, key: (usize, u32), what: &str) {
        let disk = self.disks[key.0];
        let (disk_at, dev, pad) = (disk.at as u64, key.1, 0);
        let key_told = disk_key {
            disk: disk_at,
            dev,
            pad,
        };
        let told = self.host.entry("disks", &key_told);
        let told = told.map(|it: known_disk| {
            let name = it.name[0].into();
            let is_known = it.is_known.into();
            [is_known, it.needs_stamp.into(), it.busy_until_ns, name]
        });
        let expected = self.account.disks.get(&key).map(|it| {
            let needs_stamp = it.needs_stamp.is_some_and(|needs| needs);
            let is_known = it.needs_stamp.is_some().into();
            [
                is_known,
                needs_stamp.into(),
                it.busy_until_ns,
                disk.name.into(),
            ]
        });
        assert_eq!(told, expected, "{what}, {:?}", self.asked);
    }

    fn assert_disk(&self, key: (usize, u32), what: &str) {
        self.assert_known(key, what);
        for half in [0, 1] {
            let key_told = disk_epoch {
                disk: self.disks[key.0].at as u64,
                dev: key.1,
                epoch: half,
            };
            let is_there = self.host.entry::<_, u64>("disk_sums", &key_told).is_some();
            let told: DiskSum = self.host.sums("disk_sums", &key_told);
            let expected = self.account.sums.get(&(key.0, key.1, half)).copied();
            assert_eq!(is_there.then_some(told), expected, "{what}, {key:?}");
        }
    }
}
