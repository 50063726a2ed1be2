//! Whether a change of a share is more than chance does.

use crate::tree::Side;

/// 99 % of what chance does to one box is inside; a picture has many.
const Z: f64 = 2.575_829;

/// What can be said of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More in the new profile.
    Grew,
    /// Less.
    Shrank,
    /// Chance alone does as much.
    Unclear,
    /// There are no counts to judge by.
    Unjudged,
}

/// Both profiles' levels of a box, and whether they differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Before and after: shares, 0 to 1, or values, see [`super::scale::Scale`].
    pub levels: [f64; 2],
    /// The change in standard errors; 0 where there are no counts.
    pub z: f64,
    /// Difference of the levels by chance, one standard error; 0 where there are no counts.
    pub error: f64,
    /// In a word, at 99 %.
    pub verdict: Verdict,
}

impl Judged {
    /// From before to after.
    pub fn change(&self) -> f64 {
        self.levels[1] - self.levels[0]
    }
}

/// Compares the shares of a box: `whole` is what both profiles have in all.
///
/// For samples it is the two-sample test for proportions with a common variance; for time it is the same with the weights
/// of the intervals in place of ones (the ratio estimator of sampling theory).
pub(super) fn judge(part: &[Side; 2], whole: &[Side; 2]) -> Judged {
    let shares = [0, 1].map(|side| part[side].total as f64 / whole[side].total.max(1) as f64);
    let is_known = whole.iter().all(|side| side.count > 0);
    let mut judged = judged(shares, standard_error(part, whole), is_known);
    if whole.iter().any(|side| side.total == 0) {
        judged.verdict = Verdict::Unclear;
    }
    judged
}

/// Levels of a box whose difference has this standard error if chance alone made it.
/// `is_known`: there are counts to judge by.
pub(super) fn judged(levels: [f64; 2], error: f64, is_known: bool) -> Judged {
    let change = levels[1] - levels[0];
    if !is_known {
        let verdict = if change == 0.0 {
            Verdict::Unclear
        } else {
            Verdict::Unjudged
        };
        return Judged {
            levels,
            z: 0.0,
            error: 0.0,
            verdict,
        };
    }
    let z = change / error.max(f64::MIN_POSITIVE);
    // A box without samples in either is the same in both.
    let z = if change == 0.0 { 0.0 } else { z };
    let verdict = match z {
        z if z > Z => Verdict::Grew,
        z if z < -Z => Verdict::Shrank,
        _ => Verdict::Unclear,
    };
    Judged {
        levels,
        z,
        error,
        verdict,
    }
}

/// Of the difference of shares, if there is none: the shares are then estimates of one number.
fn standard_error(part: &[Side; 2], whole: &[Side; 2]) -> f64 {
    let totals = whole.map(|side| side.total.max(1) as f64);
    let sum = part.iter().map(|side| side.total as f64).sum::<f64>();
    let pooled = sum / totals.iter().sum::<f64>();
    // Shares of few large weights: each profile's weights per unit of its total, pooled.
    let inside = pooled_spread(part, totals);
    let all = pooled_spread(whole, totals);
    let outside = (all - inside).max(0.0);
    // Squares of the residuals of all samples: those inside are off by 1 - share, the others by the share.
    let residual = inside * (1.0 - pooled).powi(2) + outside * pooled * pooled;
    let factor = [0, 1].map(|side| 1.0 / totals[side]);
    (residual * factor.iter().sum::<f64>()).sqrt()
}

/// Squares per unit of total, of both profiles together.
fn pooled_spread(sides: &[Side; 2], totals: [f64; 2]) -> f64 {
    (sides[0].squares + sides[1].squares) / (totals[0] + totals[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(count: u64) -> Side {
        Side {
            total: count,
            own: 0,
            count,
            squares: count as f64,
        }
    }

    /// The textbook's z for two proportions: 20 of 100 and 30 of 100 give 1.633.
    #[test]
    fn samples_are_judged_as_the_textbook_does() {
        let judged = judge(&[side(20), side(30)], &[side(100), side(100)]);
        assert!((judged.z - 1.633).abs() < 1e-3, "{}", judged.z);
        assert_eq!(judged.verdict, Verdict::Unclear);
        let judged = judge(&[side(200), side(300)], &[side(1000), side(1000)]);
        assert_eq!(judged.verdict, Verdict::Grew);
        let judged = judge(&[side(300), side(100)], &[side(1000), side(500)]);
        assert_eq!(judged.verdict, Verdict::Shrank);
    }

    #[test]
    fn nothing_is_said_of_a_side_without_anything() {
        let uncounted = |total| Side { total, ..side(0) };
        let judged = |total| judge(&[side(0), side(1)], &[uncounted(total), side(1)]).verdict;
        assert_eq!(judged(0), Verdict::Unclear);
        assert_eq!(judged(1), Verdict::Unjudged);
    }
}
