//! Of waits that ought to be of one length, those that were longer.

/// By how much more than a millisecond waits were longer than most, all together, ns.
///
/// What a hypervisor takes is in no CPU time, and so looks like time off the CPU.
#[must_use]
pub fn late_ns(mut waits_ns: Vec<u64>) -> u64 {
    waits_ns.sort_unstable();
    let usual_ns = waits_ns
        .get(waits_ns.len() / 2)
        .map_or(0, |ns| ns + 1_000_000);
    waits_ns.iter().map(|ns| ns.saturating_sub(usual_ns)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_longer_than_most_by_a_millisecond_is_late() {
        assert_eq!(late_ns(vec![20_000_000, 27_000_000, 20_900_000]), 5_100_000);
        assert_eq!(late_ns(vec![20_000_000, 1, 20_900_000]), 0);
        assert_eq!(late_ns(Vec::new()), 0);
    }
}
