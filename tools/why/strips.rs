//! The line of time of a page: the machine's resources, and the longest work cycles.

use std::collections::BTreeSet;

use host::clock::wall_clock;
use profile::draw::{Piece, Strip, Timeline};
use profile::rank::Rank;
use profile::units;

use crate::why::account::Account;
use crate::why::cycles::Exemplar;
use crate::why::cycles_text;
use crate::why::timeline::Moment;
use crate::why::words::{disk, program};

/// Disks that have a strip, and the share of the time for which one has to be busy.
const TOP_DISKS: usize = 3;
const LEAST_BUSY: f64 = 0.001;

/// The same of what the hypervisor takes.
const LEAST_STOLEN: f64 = 0.01;

/// All strips; none where no moments were kept.
pub(super) fn timeline(account: &Account) -> Timeline {
    let moments = &account.moments[..];
    if moments.is_empty() {
        return Timeline::default();
    }
    let window = account.window;
    let mut strips = Vec::new();
    let cpus = |moment: &Moment| account.cpus(moment);
    if let Some(all) = moments.iter().map(cpus).collect::<Option<Vec<f64>>>() {
        strips.push(own_cpus(account, &all));
    }
    strips.push(share(account, "all CPUs: busy", |moment| moment.busy));
    let stolen = share(account, "of that taken by the hypervisor", |moment| {
        moment.stolen
    });
    if mean(moments, |moment| moment.stolen) >= LEAST_STOLEN {
        strips.push(stolen);
    }
    strips.extend(disks(account));
    strips.extend(refaults(account));
    strips.extend(cycles(account));
    Timeline {
        edges: [window.start_ns, window.end_ns].map(wall_clock),
        strips,
    }
}

/// A moment's place in the window.
fn span(account: &Account, [start_ns, end_ns]: [u64; 2]) -> [f64; 2] {
    let window = account.window;
    let at = |ns: u64| ns.saturating_sub(window.start_ns) as f64 / window.ns().max(1) as f64;
    [at(start_ns), at(end_ns)]
}

fn piece(account: &Account, moment: &Moment, height: f64, figure: &str) -> Piece {
    Piece {
        span: span(account, [moment.start_ns, moment.end_ns]),
        height,
        words: format!("{}: {figure}", wall_clock(moment.start_ns)),
    }
}

/// A mean over the moments' time.
fn mean(moments: &[Moment], value: impl Fn(&Moment) -> f64) -> f64 {
    let all_ns: u64 = moments.iter().map(Moment::ns).sum();
    let weighed = moments
        .iter()
        .map(|moment| value(moment) * moment.ns() as f64);
    weighed.sum::<f64>() / all_ns.max(1) as f64
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// A share of something, 0 to 1.
fn share(account: &Account, label: &str, value: impl Fn(&Moment) -> f64) -> Strip {
    let moments = &account.moments[..];
    let most = moments.iter().map(&value).fold(0.0, f64::max);
    let one = |moment| piece(account, moment, value(moment), &percent(value(moment)));
    Strip {
        label: label.to_owned(),
        amount: format!(
            "{} on average, {} at most",
            percent(mean(moments, &value)),
            percent(most)
        ),
        pieces: moments.iter().map(one).collect(),
        is_events: false,
    }
}

/// CPUs that the program had; the strip is as high as a whole number of them.
fn own_cpus(account: &Account, cpus: &[f64]) -> Strip {
    let moments = &account.moments[..];
    let most = cpus.iter().copied().fold(0.0, f64::max);
    let all_ns: u64 = moments.iter().map(Moment::ns).sum();
    let weighed = moments
        .iter()
        .zip(cpus)
        .map(|(moment, cpus)| cpus * moment.ns() as f64);
    let mean = weighed.sum::<f64>() / all_ns.max(1) as f64;
    // One sample more or less is no CPU.
    let height = (most - 0.1).ceil().max(1.0);
    let one = |(moment, cpus): (&Moment, &f64)| {
        piece(account, moment, cpus / height, &format!("{cpus:.1} CPUs"))
    };
    let whose = match &account.programs[..] {
        [one] => program(one),
        _ => "these threads".to_owned(),
    };
    Strip {
        label: format!("{whose}: on CPUs, of {height}"),
        amount: format!("{mean:.1} on average, {most:.1} at most"),
        pieces: moments.iter().zip(cpus).map(one).collect(),
        is_events: false,
    }
}

/// The busiest disks.
fn disks(account: &Account) -> Vec<Strip> {
    let moments = &account.moments[..];
    let names: BTreeSet<&String> = moments
        .iter()
        .flat_map(|moment| moment.disks.keys())
        .collect();
    let of = |name: &str, moment: &Moment| moment.disks.get(name).copied().unwrap_or(0.0);
    let names = names.into_iter();
    let busy = names.map(|name| (name, mean(moments, |moment| of(name, moment))));
    let mut busy: Vec<(&String, f64)> = busy.collect();
    busy.retain(|(_, busy)| *busy >= LEAST_BUSY);
    busy.rank_by(|(_, a), (_, b)| b.total_cmp(a));
    busy.truncate(TOP_DISKS);
    let strip = |(name, _): (&String, f64)| {
        let label = format!("{}: requests under way", disk(name));
        share(account, &label, |moment| of(name, moment))
    };
    busy.into_iter().map(strip).collect()
}

/// Memory that was read again; the strip is as high as the most in one moment.
fn refaults(account: &Account) -> Option<Strip> {
    let per_second =
        |moment: &Moment| moment.refaulted_bytes as f64 * 1e9 / moment.ns().max(1) as f64;
    let rates = account.moments.iter().map(per_second);
    let most = rates.fold(0.0, f64::max);
    let all: u64 = account
        .moments
        .iter()
        .map(|moment| moment.refaulted_bytes)
        .sum();
    let rate = |rate: f64| format!("{}/s", units::bytes(rate as u64));
    let one = |moment| {
        piece(
            account,
            moment,
            per_second(moment) / most,
            &rate(per_second(moment)),
        )
    };
    (all > 0).then(|| Strip {
        label: "memory read again, for want of room".to_owned(),
        amount: format!("{} in all, {} at most", units::bytes(all), rate(most)),
        pieces: account.moments.iter().map(one).collect(),
        is_events: false,
    })
}

/// The longest work cycles.
fn cycles(account: &Account) -> Option<Strip> {
    let longest = &account.cycles.as_ref()?.exemplars[..];
    let one = |cycle: &Exemplar| Piece {
        span: span(account, [cycle.begin_ns, cycle.begin_ns + cycle.ns]),
        height: 1.0,
        words: cycles_text::words_of_exemplar(cycle),
    };
    (!longest.is_empty()).then(|| Strip {
        label: "the longest work cycles".to_owned(),
        amount: String::new(),
        pieces: longest.iter().map(one).collect(),
        is_events: true,
    })
}
