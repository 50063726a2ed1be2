//! How far a sampled share may be off.

/// 97.5 % quantile of the normal distribution: two-sided 95 %.
const Z: f64 = 1.959_963_985;

/// Widest margin with which a share still says something: 50 % means 40 to 60.
const WIDE: f64 = 0.1;

/// A share with its 95 % confidence interval; all between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The estimate k / n.
    pub share: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Share {
    /// The interval in percent: `60.9-70.2%`. It is not symmetric, and never below 0 nor above 100.
    pub fn interval(&self) -> String {
        format!("{:.1}-{:.1}%", 100.0 * self.low, 100.0 * self.high)
    }
}

/// Wilson's score interval for `k` of `n` samples (E. B. Wilson, JASA 22, 1927).
///
/// It holds for small counts too, where the textbook interval collapses.
pub fn share(k: u64, n: u64) -> Share {
    if n == 0 {
        return Share {
            share: 0.0,
            low: 0.0,
            high: 1.0,
        };
    }
    let (k, n) = (k.min(n) as f64, n as f64);
    let p = k / n;
    let z2 = Z * Z;
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    Share {
        share: p,
        low: (centre - half).max(0.0),
        high: (centre + half).min(1.0),
    }
}

/// The margin of a share of one half, the widest that `n` samples give.
pub fn widest_margin(n: u64) -> f64 {
    Z / (2.0 * (n as f64 + Z * Z).sqrt())
}

/// Whether `n` samples are enough to read shares from: none is off by more than ten percentage points.
pub fn is_enough(n: u64) -> bool {
    widest_margin(n) <= WIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(value: f64) -> f64 {
        (value * 1000.0).round() / 10.0
    }

    /// Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    #[test]
    fn agrees_with_published_examples() {
        for (k, n, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let share = share(k, n);
            assert!((share.low - low).abs() < 6e-5, "{k}/{n}: low {}", share.low);
            assert!(
                (share.high - high).abs() < 6e-5,
                "{k}/{n}: high {}",
                share.high
            );
        }
    }

    #[test]
    fn covers_the_truth_about_nineteen_times_in_twenty() {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1_u64 << 53) as f64
        };
        // Coverage swings around 95 % with n and the truth; Wilson's stays near even for rare functions.
        for (truth, n) in [(0.3, 300), (0.5, 100), (0.05, 400), (0.01, 1000)] {
            let covered = (0..2000)
                .filter(|_| {
                    let k = (0..n).filter(|_| next() < truth).count() as u64;
                    let share = share(k, n);
                    share.low <= truth && truth <= share.high
                })
                .count();
            assert!(
                (1870..=1950).contains(&covered),
                "{truth} of {n}: {covered} of 2000"
            );
        }
    }

    #[test]
    fn half_of_all_has_the_widest_interval() {
        for (k, n) in [(0, 20), (1, 29), (50, 100), (99, 100), (20, 20), (0, 0)] {
            let share = share(k, n);
            assert!(widest_margin(n) + 1e-12 >= (share.high - share.low) / 2.0);
        }
        assert!((share(50, 100).high - 0.5 - widest_margin(100)).abs() < 1e-12);
    }

    #[test]
    fn intervals_have_no_shares_below_none() {
        assert_eq!(share(1, 405).interval(), "0.0-1.4%");
        assert_eq!(share(0, 405).interval(), "0.0-0.9%");
        assert_eq!(share(405, 405).interval(), "99.1-100.0%");
    }

    #[test]
    fn ends_stay_inside() {
        assert_eq!(percent(share(10, 10).high), 100.0);
        assert_eq!(share(0, 0).high, 1.0);
        assert!(!is_enough(92) && is_enough(93));
    }
}
