//! Who lost most and who caused most, with the words for each.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use profile::rank::Rank;
use profile::sums::groups;
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
/// Lines of a list.
pub(crate) const TOP: usize = 5;
/// Processes of one name from which these may be one line.
const CROWD: usize = 3;

/// A line of a list.
pub(crate) struct Ranked<'a> {
    /// `None`: nobody in particular.
    pub(crate) party: Option<&'a Party>,
    pub(crate) weight: u64,
    /// What `value` says, ns or bytes.
    pub(crate) amount: u64,
    /// Formatted.
    pub(crate) value: String,
    pub(crate) name: String,
    pub(crate) is_time: bool,
    /// It is of several processes of the party's name; the party is the first of them.
    pub(crate) is_crowd: bool,
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
            is_crowd: false,
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
            is_crowd: false,
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
        is_crowd: false,
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

/// The heaviest that a tool can still look at: processes that live, or a name that comes again and again.
pub(crate) fn lasting<'s, 'a>(ranked: &'s [Ranked<'a>]) -> Option<&'s Ranked<'a>> {
    let lasts = |party: &Party| party.tgid.is_some() || party.processes > 1;
    ranked.iter().find(|ranked| ranked.party.is_some_and(lasts))
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

/// The same with one line for the living processes of a name that together come first, or that several of the first [`TOP`] lines
/// are about: a server's workers would leave no room for anybody else, and no line for what they come to.
pub(crate) fn folded(ranked: Vec<Ranked<'_>>) -> Vec<Ranked<'_>> {
    let crowds = crowds(&ranked, TOP);
    let (many, mut folded): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|ranked| {
        let party = ranked.living();
        party.is_some_and(|party| crowds.contains(&*party.comm))
    });
    let named = many.into_iter();
    let lines = groups(named.map(|one| (one.living().map_or("", |party| &*party.comm), one)));
    folded.extend(lines.into_values().filter_map(Ranked::of_crowd));
    folded.rank_by_key(|ranked| (Reverse(ranked.weight), ranked.name.clone()));
    folded
}

fn crowds<'a>(ranked: &[Ranked<'a>], top: usize) -> HashSet<&'a str> {
    #[derive(Default)]
    struct Sum {
        processes: usize,
        of_first: usize,
        weight: u64,
    }

    let mut sums: HashMap<&str, Sum> = HashMap::new();
    for (at, one) in ranked.iter().enumerate() {
        if let Some(party) = one.living() {
            let sum = sums.entry(&party.comm).or_default();
            sum.processes += 1;
            sum.of_first += usize::from(at < top);
            sum.weight += one.weight;
        }
    }
    let first = ranked.first().map_or(0, |first| first.weight);
    let is_crowd =
        |sum: &Sum| sum.of_first >= CROWD || sum.processes >= CROWD && sum.weight >= first;
    sums.retain(|_, sum| is_crowd(sum));
    sums.into_keys().collect()
}

impl<'a> Ranked<'a> {
    /// A line about a party, of nothing.
    #[cfg(test)]
    pub(crate) fn of(party: &'a Party) -> Self {
        culprit(party, ON_CPU)
    }

    /// A process that lives, and has a name.
    fn living(&self) -> Option<&'a Party> {
        self.party.filter(|party| is_named(party))
    }

    /// Processes of one name, the most first.
    fn of_crowd(mut all: Vec<Self>) -> Option<Self> {
        let number = units::count(all.len() as u64);
        let [weight, amount] =
            [|one: &Self| one.weight, |one: &Self| one.amount].map(|of| all.iter().map(of).sum());
        let most = all.swap_remove(0);
        let party = most.living()?;
        let name = comm(&party.comm);
        let first = format!("{}, {}", party.tgid?, most.value);
        Some(Self {
            weight,
            amount,
            value: spell(amount, most.is_time),
            name: format!("{name}, {number} processes (most: {first})"),
            is_crowd: true,
            ..most
        })
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
    fn processes_of_a_name_that_would_fill_a_list_are_one_line() {
        let party = |comm: &str, tgid, lost_ns| Party {
            comm: comm.into(),
            tgid: Some(tgid),
            account: account {
                caused_ns: lost_ns,
                ..account::default()
            },
            ..Party::default()
        };
        let lines = |workers: u64| {
            let workers = (1..=workers).map(|at| party("nginx", 10 + at as u32, 5_000_000 - at));
            let others = [party("sh", 9, 7_000_000), party("db", 8, 1_000_000)];
            let all: Vec<Party> = workers.chain(others).collect();
            let mut ranked: Vec<Ranked<'_>> = all.iter().map(|one| culprit(one, ON_CPU)).collect();
            ranked.rank_by_key(|ranked| Reverse(ranked.weight));
            let folded = folded(ranked);
            let line = |one: &Ranked<'_>| format!("{}  {}", one.value, one.name);
            folded.iter().map(line).collect::<Vec<_>>()
        };
        let few = ["7.00 ms  sh 9", "5.00 ms  nginx 11", "5.00 ms  nginx 12"];
        assert_eq!(lines(2)[..3], few);
        // Small ones come first together.
        let small: Vec<Party> = (1..=5).map(|at| party("ab", at, 2_000_000)).collect();
        let large = [9_000_000, 8_000_000, 7_000_000, 6_000_000, 5_000_000];
        let large = large.map(|ns| party(&format!("sh{ns}"), 90, ns));
        let ranked = large.iter().chain(&small).map(|one| culprit(one, ON_CPU));
        let first = &folded(ranked.collect())[0];
        assert_eq!(first.name, "ab, 5 processes (most: 1, 2.00 ms)");
        let many = [
            "40.0 ms  nginx, 8 processes (most: 11, 5.00 ms)",
            "7.00 ms  sh 9",
            "1.00 ms  db 8",
        ];
        assert_eq!(lines(8), many);
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
