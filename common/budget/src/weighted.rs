//! Sums over windows, each of which stands for more time than it lasted.

use hist::random::round_fairly;

/// Fixed point: the weight of what stands for itself alone.
const ONE: u64 = 1 << 32;

/// The number of times that each thing seen in a window counts; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(u64);

impl Weight {
    /// A window of `open_ns` that stands for `stratum_ns`.
    pub(super) fn of(open_ns: u64, stratum_ns: u64) -> Self {
        let open_ns = open_ns.max(1);
        let stratum_ns = stratum_ns.max(open_ns);
        let fixed = u128::from(stratum_ns) * u128::from(ONE) / u128::from(open_ns);
        Self(u64::try_from(fixed).unwrap_or(u64::MAX))
    }

    /// The same as a number.
    pub fn number(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// Each thing seen counts once.
    pub(super) fn is_one(self) -> bool {
        self.0 == ONE
    }
}

/// A sum of whole numbers by their weights, exact as long as all of them are 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weighted(u128);

impl Weighted {
    /// Adds `value` with its weight.
    pub fn add(&mut self, value: u64, weight: Weight) {
        self.0 = self
            .0
            .saturating_add(u128::from(value) * u128::from(weight.0));
    }

    /// The sum times `scale`, rounded.
    pub fn whole(self, scale: f64) -> u64 {
        if scale == 1.0 {
            let rounded = self.0.saturating_add(u128::from(ONE) / 2) / u128::from(ONE);
            return u64::try_from(rounded).unwrap_or(u64::MAX);
        }
        (scale * self.number()).round() as u64
    }

    /// The sum times `scale`, with a fraction that `random` decides on: for sums of few things each, whose fractions must not all go
    /// the same way.
    pub fn whole_fairly(self, scale: f64, random: &mut u64) -> u64 {
        if scale == 1.0 && self.0.is_multiple_of(u128::from(ONE)) {
            return self.whole(scale);
        }
        round_fairly(scale * self.number(), random)
    }

    /// The sum, as near as a float has it.
    pub fn number(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_one_is_exact_however_large_the_sum() {
        let mut sum = Weighted::default();
        let one = Weight::of(3, 3);
        sum.add(u64::MAX - 7, one);
        sum.add(3, one);
        assert_eq!(sum.whole(1.0), u64::MAX - 4);
    }

    #[test]
    fn thirds_add_up() {
        let mut sum = Weighted::default();
        for _ in 0..1_000 {
            sum.add(7, Weight::of(3, 10));
        }
        assert_eq!(sum.whole(1.0), 23_333);
        assert_eq!(sum.whole(0.5), 11_667);
        assert_eq!(Weight::of(10, 3).number(), 1.0);
    }
}
