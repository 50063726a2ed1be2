//! What the probes found, as plain data.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::Result;
use bpf::lockstat_hold::LockstatHoldSkel;
use bpf::lockstat_hold::types::{group_id, held, held_key, hold_note};
use trace::histogram::Histogram;
use trace::histogram::harvest::take_groups;
use trace::loader::section;
use trace::losses::Losses;
use trace::maps;
use trace::places::Places;
use trace::stacks::Address;
use trace::symbolize::Symbolizer;
use trace::window::monotonic_ns;

/// How a lock was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Mutex,
    Read,
    Write,
}

impl Mode {
    /// The stable words of every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Read => "rwlock (read)",
            Self::Write => "rwlock (write)",
        }
    }

    fn of(mode: u32) -> Self {
        match mode {
            1 => Self::Read,
            2 => Self::Write,
            _ => Self::Mutex,
        }
    }
}

/// One lock, held one way.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) tgid: u32,
    pub(crate) address: u64,
    pub(crate) mode: Mode,
    pub(crate) name: String,
    /// Holds, those that have not ended too.
    pub(crate) holds: Histogram,
    pub(crate) open: u64,
    pub(crate) tries_failed: u64,
    pub(crate) timed_out: u64,
    /// The function that took it for the longest hold.
    pub(crate) caller: Option<String>,
}

/// Everything a run found.
pub(crate) struct Harvest {
    /// Longest held in total first.
    pub(crate) rows: Vec<Row>,
    /// Given back, and taken before the probes were there.
    pub(crate) taken_before: u64,
    pub(crate) losses: Losses,
}

type Key = (u32, u64, u32);

impl Harvest {
    /// Of the processes `tgids`, up to `end_ns`; what was measured on ourselves is none of it.
    pub(crate) fn gather(
        skel: &LockstatHoldSkel<'_>,
        tgids: &[u32],
        end_ns: u64,
        mut symbolizer: Symbolizer,
    ) -> Result<Self> {
        let mut holds: HashMap<Key, (Histogram, u64)> = HashMap::new();
        for group in take_groups::<group_id>(&skel.maps.groups, &skel.maps.buckets, 0)? {
            let key = (group.id.tgid, group.id.address, group.id.mode);
            holds.entry(key).or_default().0.merge(&group.histogram);
        }
        for (key, held) in maps::entries::<held_key, held>(&skel.maps.held_locks)? {
            let row = holds.entry((key.tgid, key.address, held.mode)).or_default();
            row.0.record(end_ns.saturating_sub(held.since_ns));
            row.1 += 1;
        }
        let mut notes: HashMap<Key, hold_note> = HashMap::new();
        for (id, note) in maps::entries::<group_id, hold_note>(&skel.maps.hold_notes)? {
            notes.insert((id.tgid, id.address, id.mode), note);
            holds.entry((id.tgid, id.address, id.mode)).or_default();
        }
        let mut rows: Vec<Row> = holds
            .into_iter()
            .filter(|((tgid, _, _), _)| tgids.contains(tgid))
            .map(|(key, (holds, open))| {
                let (tgid, address, mode) = key;
                let note = notes.get(&key).copied().unwrap_or_default();
                Row {
                    tgid,
                    address,
                    mode: Mode::of(mode),
                    name: String::new(),
                    holds,
                    open,
                    tries_failed: note.tries_failed,
                    timed_out: note.timed_out,
                    caller: caller(&mut symbolizer, tgid, note.caller),
                }
            })
            .collect();
        name(&mut rows, &mut symbolizer);
        rows.sort_by_key(|row| (Reverse(row.holds.sum()), row.tgid, row.address));
        let bss = section(skel.maps.bss_data.as_deref(), ".bss")?;
        let mut losses = Losses::default();
        losses.count("held_full", "holds: table full", bss.hold_losses.held_full);
        losses.count(
            "locks_full",
            "holds: too many locks",
            bss.groups_full + bss.hold_losses.notes_full,
        );
        losses.count(
            "buckets_full",
            "holds in no bucket: table full",
            bss.buckets_full,
        );
        Ok(Self {
            rows,
            taken_before: bss.hold_losses.not_seen_taken,
            losses,
        })
    }
}

fn caller(symbolizer: &mut Symbolizer, tgid: u32, address: u64) -> Option<String> {
    let call = address.checked_sub(1)?;
    let locations = symbolizer.locate(tgid, monotonic_ns(), &[call]);
    let frames = symbolizer.user(&locations);
    frames.last().map(|frame| frame.name.to_string())
}

fn name(rows: &mut [Row], symbolizer: &mut Symbolizer) {
    let time_ns = monotonic_ns();
    let addresses: Vec<Address> = (0..)
        .zip(rows.iter())
        .map(|(id, row)| Address {
            id,
            tgid: row.tgid,
            address: row.address,
            time_ns,
        })
        .collect();
    let mut places = Places::default();
    places.learn(&addresses, Some(symbolizer));
    for (id, row) in (0..).zip(rows) {
        row.name = match places.get(id) {
            Some(place) if place.is_variable => place.name.clone(),
            Some(place) => format!("{} {:#x}", place.name, row.address),
            None => format!("{:#x}", row.address),
        };
    }
}
