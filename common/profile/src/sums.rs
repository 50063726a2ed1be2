//! Sums and lists by key.

use std::collections::HashMap;
use std::hash::Hash;

/// Adds values up by their keys. Sums stop at the largest number.
pub fn sums<K: Eq + Hash>(parts: impl IntoIterator<Item = (K, u64)>) -> HashMap<K, u64> {
    let mut sums: HashMap<K, u64> = HashMap::new();
    for (key, value) in parts {
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(value);
    }
    sums
}

/// Puts together what has the same key, in the order in which it comes.
pub fn groups<K: Eq + Hash, V>(parts: impl IntoIterator<Item = (K, V)>) -> HashMap<K, Vec<V>> {
    let mut groups: HashMap<K, Vec<V>> = HashMap::new();
    for (key, value) in parts {
        groups.entry(key).or_default().push(value);
    }
    groups
}
