//! How far a sampled share may be off.

/// 97.5 % quantile of the normal distribution: two-sided 95 %.
const Z: f64 = 1.959_963_985;

/// Samples below which shares say little: at 100, 50 % means 40 to 60.
const FEW: u64 = 100;

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

/// Whether `n` samples are enough to read shares from.
pub fn is_enough(n: u64) -> bool {
    n >= FEW
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
        let truth = 0.3;
        let covered = (0..2000)
            .filter(|_| {
                let k = (0..300).filter(|_| next() < truth).count() as u64;
                let share = share(k, 300);
                share.low <= truth && truth <= share.high
            })
            .count();
        assert!((1870..=1930).contains(&covered), "{covered} of 2000");
    }

    #[test]
    fn ends_stay_inside() {
        assert_eq!(percent(share(10, 10).high), 100.0);
        assert_eq!(share(0, 0).high, 1.0);
        assert!(!is_enough(99) && is_enough(100));
    }
}
