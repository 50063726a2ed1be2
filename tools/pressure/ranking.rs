//! Who lost most and who caused most, with the words for each.

use std::cmp::Reverse;
use std::collections::HashMap;

use profile::rank::Rank;
use profile::text::comm;
use profile::units;

use crate::pressure::harvest::{ON_CPU, ON_IO};
use crate::pressure::interval::Interval;
use crate::pressure::parties::Party;

/// Memory that one page fault makes present; huge pages are more, so this is the least.
const PAGE_BYTES: u64 = 4096;
/// Bytes that weigh as much as a request of their own when I/O is ranked: small synchronous writes load a disk by their
/// number, large ones by their size.
const BYTES_PER_IO: u64 = 64 * 1024;

/// A line of a list.
pub(crate) struct Ranked<'a> {
    /// `None`: nobody in particular.
    pub(crate) party: Option<&'a Party>,
    pub(crate) weight: u64,
    /// What `value` says, ns or bytes.
    amount: u64,
    /// Formatted.
    pub(crate) value: String,
    pub(crate) name: String,
    is_time: bool,
}

/// Bytes of memory that a process came to use: pages touched, files read.
pub(crate) fn memory_bytes(party: &Party) -> u64 {
    party.account.faults * PAGE_BYTES + party.account.read_bytes
}

/// By time lost to a resource (`ON_…`).
pub(crate) fn victims(interval: &Interval, index: usize) -> Vec<Ranked<'_>> {
    let mut ranked: Vec<Ranked<'_>> = interval
        .victims
        .iter()
        .filter(|party| party.account.lost_ns[index] > 0)
        .map(|party| Ranked {
            party: Some(party),
            weight: party.account.lost_ns[index],
            amount: party.account.lost_ns[index],
            value: units::duration(party.account.lost_ns[index]),
            name: with_open_wait(party, index, interval.length_ns()),
            is_time: true,
        })
        .collect();
    ranked.rank_by_key(|ranked| Reverse(ranked.weight));
    ranked
}

/// By what they did to bring it about.
pub(crate) fn culprits(interval: &Interval, index: usize) -> Vec<Ranked<'_>> {
    let mut ranked: Vec<Ranked<'_>> = interval
        .culprits
        .iter()
        .map(|party| culprit(party, index))
        .filter(|ranked| ranked.weight > 0)
        .collect();
    if index == ON_CPU && interval.throttled_ns > 0 {
        ranked.push(Ranked {
            party: None,
            weight: interval.throttled_ns,
            amount: interval.throttled_ns,
            value: units::duration(interval.throttled_ns),
            name: match interval.quotas.first() {
                Some(quota) => format!("[CPU quota of {}]", quota.group.name()),
                None => "[CPU quota of a cgroup]".into(),
            },
            is_time: true,
        });
    }
    ranked.rank_by_key(|ranked| Reverse(ranked.weight));
    ranked
}

fn culprit(party: &Party, index: usize) -> Ranked<'_> {
    let used = &party.account;
    let bytes = used.read_bytes + used.written_bytes;
    let (weight, amount, name) = match index {
        ON_CPU => (used.caused_ns, used.caused_ns, describe(party)),
        ON_IO => (
            used.ios + bytes / BYTES_PER_IO,
            bytes,
            format!("{}, {}", describe_briefly(party), submitted(party)),
        ),
        _ => (memory_bytes(party), memory_bytes(party), describe(party)),
    };
    Ranked {
        party: Some(party),
        weight,
        amount,
        value: spell(amount, index == ON_CPU),
        name,
        is_time: index == ON_CPU,
    }
}

/// `17 I/Os`, with a reason where there are no bytes to them, or no I/O to the bytes. Whoever dirties a page is charged for its
/// bytes, whoever writes it back submits the I/O.
fn submitted(party: &Party) -> String {
    let used = &party.account;
    let ios = units::counted(used.ios, "I/Os");
    match (used.ios, used.read_bytes, used.written_bytes) {
        (_, 0, 0) => format!("{ios} (flush or others' data)"),
        (0, 0, _) => "dirtied only, written by others".into(),
        (0, ..) => "not through a disk of this machine".into(),
        _ => ios,
    }
}

/// `db 123, 17 threads`, `cc1, 5 ended`.
fn describe(party: &Party) -> String {
    match party.tgid {
        Some(_) if party.threads > 1 => {
            format!("{}, {} threads", describe_briefly(party), party.threads)
        }
        _ => describe_briefly(party),
    }
}

fn describe_briefly(party: &Party) -> String {
    let comm = comm(&party.comm);
    match party.tgid {
        Some(tgid) => format!("{comm} {tgid}"),
        None => format!("{comm}, {} ended", party.processes),
    }
}

/// The heaviest that a tool can still look at: a process that lives, or a name that comes again and again.
pub(crate) fn lasting<'a>(ranked: &[Ranked<'a>]) -> Option<&'a Party> {
    let mut parties = ranked.iter().filter_map(|ranked| ranked.party);
    parties.find(|party| party.tgid.is_some() || party.processes > 1)
}

/// A wait as long as the interval is no ordinary one.
fn with_open_wait(party: &Party, index: usize, interval_ns: u64) -> String {
    match party.open_ns[index] {
        open_ns if open_ns >= interval_ns && interval_ns > 0 => {
            format!("{}, for {}", describe(party), units::duration(open_ns))
        }
        _ => describe(party),
    }
}

fn spell(amount: u64, is_time: bool) -> String {
    if is_time {
        units::duration(amount)
    } else {
        units::bytes(amount)
    }
}

/// What is not shown: its sum, and how many it is of.
pub(crate) fn rest(ranked: &[Ranked<'_>], top: usize) -> Option<[String; 2]> {
    let rest = ranked.get(top..).filter(|rest| !rest.is_empty())?;
    let sum = rest.iter().map(|ranked| ranked.amount).sum();
    let mut more = format!("{} more", units::count(rest.len() as u64));
    if let Some((name, processes, amount)) = most_by_name(rest).filter(|most| most.2 > sum / 2) {
        let amount = spell(amount, rest[0].is_time);
        more += &format!(", {amount} by {processes} of {}", comm(name));
    }
    Some([spell(sum, rest[0].is_time), more])
}

/// Tells if it lives, and has a name.
fn is_named(party: &Party) -> bool {
    party.tgid.is_some() && !party.comm.is_empty()
}

/// Name that several living processes have, with their number and what they amount to: a server's hundred would not be seen.
fn most_by_name<'a>(ranked: &[Ranked<'a>]) -> Option<(&'a str, u64, u64)> {
    let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
    for ranked in ranked {
        if let Some(party) = ranked.party.filter(|party| is_named(party)) {
            let (processes, amount) = sums.entry(&party.comm).or_default();
            *processes += 1;
            *amount += ranked.amount;
        }
    }
    let several = sums
        .into_iter()
        .filter(|(_, (processes, _))| *processes > 1);
    let named = several.map(|(name, (processes, amount))| (name, processes, amount));
    named.max_by_key(|(name, _, amount)| (*amount, *name))
}

#[cfg(test)]
mod tests {
    use bpf::pressure::types::account;

    use super::*;

    #[test]
    fn what_many_processes_of_a_name_have_together_is_said() {
        let party = |comm: &str, tgid, caused_ns| Party {
            comm: comm.into(),
            tgid: Some(tgid),
            account: account {
                caused_ns,
                ..account::default()
            },
            ..Party::default()
        };
        let more = |others: u64| {
            let many = (1..=4).map(|tgid| party("postgres", tgid, 1_000_000));
            let all: Vec<Party> = many.chain([party("sh", 9, others)]).collect();
            let ranked: Vec<Ranked<'_>> = all.iter().map(|one| culprit(one, ON_CPU)).collect();
            rest(&ranked, 1).expect("more").concat()
        };
        assert_eq!(more(1_000_000), "4.00 ms4 more, 3.00 ms by 3 of postgres");
        assert_eq!(more(3_000_000), "6.00 ms4 more");
    }

    #[test]
    fn io_without_bytes_and_bytes_without_io_are_explained() {
        let name = |ios, written_bytes| {
            let party = Party {
                comm: "db".into(),
                tgid: Some(1),
                account: account {
                    written_bytes,
                    ios,
                    ..account::default()
                },
                ..Party::default()
            };
            let ranked = culprit(&party, ON_IO);
            (ranked.value.clone(), ranked.name)
        };
        let pair = |value: &str, name: &str| (value.to_owned(), name.to_owned());
        assert_eq!(name(7, 4096), pair("4.00 KiB", "db 1, 7 I/Os"));
        assert_eq!(
            name(1, 0),
            pair("0 B", "db 1, 1 I/O (flush or others' data)")
        );
        assert_eq!(
            name(0, 4096),
            pair("4.00 KiB", "db 1, dirtied only, written by others")
        );
    }

    #[test]
    fn what_is_not_shown_is_summed_in_its_own_unit() {
        let party = |bytes| Party {
            tgid: Some(1),
            account: account {
                read_bytes: bytes,
                ios: 7,
                ..account::default()
            },
            ..Party::default()
        };
        let parties = [party(1 << 20), party(1024), party(3072)];
        let ranked: Vec<_> = parties.iter().map(|party| culprit(party, ON_IO)).collect();
        let expected = ["4.00 KiB", "2 more"].map(Into::into);
        assert_eq!(rest(&ranked, 1), Some(expected));
        assert_eq!(rest(&ranked, 3), None);
    }
}
