//! What windows are added up in: a collection may last for days, and each window may show others.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that takes no new keys once it is full.
pub struct Bounded<K, V> {
    entries: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    /// Of at most so many entries.
    pub fn new(most: usize) -> Self {
        Self {
            entries: HashMap::new(),
            most,
        }
    }

    /// What is there under `key`, or is made now; `None` where there is no room for it, which the caller has to count.
    pub fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> Option<&mut V> {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            return None;
        }
        Some(self.entries.entry(key).or_insert_with(make))
    }

    /// The value under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// What is there.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut()
    }

    /// All entries, in no order; none are left.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> {
        self.entries.drain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_has_room_and_nothing_else_once_it_is_full() {
        let mut sums = Bounded::new(2);
        for key in ["a", "b", "a"] {
            *sums.entry(key, || 0).expect("room") += 1;
        }
        assert!(sums.entry("c", || 0).is_none());
        *sums.entry("b", || 0).expect("it is there") += 10;
        let mut all: Vec<_> = sums.drain().collect();
        all.sort_unstable();
        assert_eq!(all, [("a", 2), ("b", 11)]);
        assert!(sums.entry("c", || 0).is_some());
    }
}
