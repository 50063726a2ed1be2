//! Functions that pieces of work ran in: how long they ran is exact, and samples divide it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use profile::brief::place;
use profile::model::Profile;

use crate::offcputime::on_cpu::{OnCpu, Ran};
use crate::profile::{Row, Single};
use crate::why::kinds::{At, ON_CPU};

/// Fewest samples that divide the time of one piece, and that of a group: fewer say little of it.
const FEWEST: u64 = 5;
const FEWEST_OF_GROUP: f64 = 10.0;
/// Smallest part of a group's time on CPUs that makes a line.
const LEAST: f64 = 0.05;

/// Functions by the stacks that samples have.
pub(crate) struct Functions(HashMap<Ran, Arc<str>>);

impl Functions {
    /// `rows` are what the samples of `profile` were made of.
    pub(crate) fn of(rows: &[Row], profile: &Profile) -> Self {
        let rows = rows.iter().zip(&profile.samples);
        let named = rows.filter_map(|(row, sample)| {
            let name = place(&sample.kernel, &sample.user)?;
            let ran = Ran {
                tgid: row.task.tgid,
                user: row.user,
                kernel: row.kernel,
            };
            Some((ran, name.as_ref().into()))
        });
        Self(named.collect())
    }

    /// The line of time on a CPU there.
    pub(crate) fn at(&self, ran: &Ran) -> At {
        At {
            place: self.0.get(ran).cloned(),
            ..At::of(ON_CPU)
        }
    }

    /// Time on CPUs by the lines of its samples, all of it in one where those are few.
    pub(crate) fn divide(&self, ns: u64, samples: &HashMap<Ran, u64>) -> Vec<(At, u64)> {
        let mut sums: BTreeMap<At, u64> = BTreeMap::new();
        for (ran, count) in samples {
            *sums.entry(self.at(ran)).or_default() += count;
        }
        let mut all: u64 = sums.values().sum();
        if all < FEWEST {
            return vec![(At::of(ON_CPU), ns)];
        }
        // Nothing is lost to fractions: each takes its part of what is left.
        let mut left = ns;
        let of_line = |(at, count): (At, u64)| {
            let part = u128::from(left) * u128::from(count) / u128::from(all);
            let part = u64::try_from(part).unwrap_or(left);
            (left, all) = (left - part, all - count);
            (at, part)
        };
        sums.into_iter().map(of_line).collect()
    }
}

/// The same of groups, of which the first is compared with the others: divides the time on CPUs that each has in `sums`, by samples of its
/// own, unless the first has too few. Functions that have little of it in any group stay together.
pub(crate) fn divide<const GROUPS: usize>(
    sums: &mut HashMap<At, [f64; GROUPS]>,
    samples: &HashMap<At, [f64; GROUPS]>,
) {
    let mut all = [0.0; GROUPS];
    for counts in samples.values() {
        all.iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    }
    let is_told = |group: usize| all[group] >= FEWEST_OF_GROUP;
    let Some(whole) = sums.get(&At::of(ON_CPU)).copied().filter(|_| is_told(0)) else {
        return;
    };
    let is_large = |counts: &[f64; GROUPS]| {
        (0..GROUPS).any(|group| is_told(group) && counts[group] > all[group] * LEAST)
    };
    for (at, counts) in samples {
        if at.place.is_none() || !is_large(counts) {
            continue;
        }
        for group in (0..GROUPS).filter(|group| is_told(*group)) {
            let ns = whole[group] * counts[group] / all[group];
            sums.entry(at.clone()).or_insert([0.0; GROUPS])[group] += ns;
            sums.entry(At::of(ON_CPU)).or_insert([0.0; GROUPS])[group] -= ns;
        }
    }
}

/// The engine of waits knows the pieces of work.
impl From<Single> for OnCpu {
    fn from(single: Single) -> Self {
        let Single {
            time_ns,
            tgid,
            tid,
            user,
            kernel,
        } = single;
        let ran = Ran { tgid, user, kernel };
        Self { tid, time_ns, ran }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(place: &str) -> At {
        At {
            place: Some(place.into()),
            ..At::of(ON_CPU)
        }
    }

    fn ran(user: u64) -> Ran {
        Ran {
            tgid: 1,
            user,
            kernel: 0,
        }
    }

    impl<const N: usize> From<[(Ran, &str); N]> for Functions {
        fn from(names: [(Ran, &str); N]) -> Self {
            Self(names.map(|(ran, name)| (ran, name.into())).into())
        }
    }

    #[test]
    fn time_of_a_piece_goes_to_the_functions_of_its_samples_and_none_is_lost() {
        let functions = Functions::from([(ran(1), "f"), (ran(2), "g"), (ran(3), "g")]);
        let samples = HashMap::from([(ran(1), 1), (ran(2), 2), (ran(3), 3), (ran(4), 1)]);
        let parts = functions.divide(100, &samples);
        assert_eq!(parts, [(At::of(ON_CPU), 14), (at("f"), 14), (at("g"), 72)]);
        let few = HashMap::from([(ran(1), 1), (ran(2), 3)]);
        assert_eq!(functions.divide(100, &few), [(At::of(ON_CPU), 100)]);
        assert_eq!(functions.divide(0, &samples).len(), 3);
    }

    #[test]
    fn each_group_is_divided_by_its_own_samples_if_the_first_can_be() {
        let other = At::of("futex");
        let sums = || HashMap::from([(At::of(ON_CPU), [80.0, 50.0]), (other.clone(), [1.0, 2.0])]);
        let samples = |few: f64| {
            let samples = [
                (at("f"), [few, 3.0]),
                (at("g"), [5.0, 0.0]),
                (at("h"), [0.1, 0.1]),
            ];
            HashMap::from(samples)
        };
        let mut told = sums();
        divide(&mut told, &samples(14.9));
        assert_eq!(told[&at("g")], [20.0, 0.0]);
        let [f, g] = ["f", "g"].map(|place| told[&at(place)][0]);
        let rest = told[&At::of(ON_CPU)];
        assert!((f + g + rest[0] - 80.0).abs() < 1e-9 && f > 59.0);
        assert_eq!((rest[1], told.len()), (50.0, 4), "too few, and a small one");
        assert_eq!(told[&other], [1.0, 2.0]);
        let mut untold = sums();
        divide(&mut untold, &samples(4.0));
        assert_eq!(untold, sums());
    }
}
