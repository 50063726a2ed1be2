//! Random numbers from a seed, for estimates.

/// Uniform in [0, 1): Marsaglia's xorshift64 (2003); `random` is not 0.
pub fn uniform(random: &mut u64) -> f64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) as f64 / (1u64 << 53) as f64
}

/// A whole number near `value`, `value` on average: what is rounded the same way every time adds up to an error.
pub fn round_fairly(value: f64, random: &mut u64) -> u64 {
    (value + uniform(random)).floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_fair() {
        let mut random = 7;
        let sum: u64 = (0..10_000).map(|_| round_fairly(2.3, &mut random)).sum();
        assert!((22_800..23_200).contains(&sum), "{sum}");
    }
}
