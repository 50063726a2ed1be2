//! Numbers to shuffle by: the same in every run, so that a gate that failed fails again.

use std::f64::consts::TAU;

/// SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014).
pub(super) struct Random {
    state: u64,
    /// Normal numbers come in pairs.
    spare: Option<f64>,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            state: seed,
            spare: None,
        }
    }

    /// Any number.
    pub(super) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to 1, without 1.
    fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Of the standard normal distribution (G. E. P. Box and M. E. Muller, 1958).
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let (sine, cosine) = (TAU * self.uniform()).sin_cos();
        self.spare = Some(radius * sine);
        radius * cosine
    }

    /// How many of `n` happen, if each does with this probability. Many are near enough to normal.
    pub(super) fn binomial(&mut self, n: u64, probability: f64) -> f64 {
        const FEW: u64 = 24;
        if n <= FEW {
            return (0..n).filter(|_| self.uniform() < probability).count() as f64;
        }
        let n = n as f64;
        let mean = n * probability;
        let spread = (mean * (1.0 - probability)).sqrt();
        (mean + spread * self.normal()).round().clamp(0.0, n)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn sums_have_the_mean_and_the_spread_that_they_should() {
        const DRAWS: usize = 200_000;
        let mut random = Random::new(1);
        for (n, probability) in [(1, 0.5), (10, 0.2), (24, 0.7), (25, 0.5), (1000, 0.3)] {
            let draws: Vec<f64> = (0..DRAWS)
                .map(|_| random.binomial(n, probability))
                .collect();
            let mean = draws.iter().sum::<f64>() / DRAWS as f64;
            let squares = draws.iter().map(|draw| (draw - mean).powi(2));
            let variance = squares.sum::<f64>() / DRAWS as f64;
            let expected = n as f64 * probability;
            let spread = expected * (1.0 - probability);
            let error = 5.0 * (spread / DRAWS as f64).sqrt();
            assert!((mean - expected).abs() < error, "{n}: {mean}");
            assert!((variance / spread - 1.0).abs() < 0.03, "{n}: {variance}");
        }
    }
}
