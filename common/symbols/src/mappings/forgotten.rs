//! Processes of which an address space was forgotten, as long as nobody asks for it: on a machine that starts thousands of programs
//! most of those are nobody's targets.

use std::collections::HashSet;

/// Processes that are remembered; those beyond are lost at once.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Forgotten(HashSet<u32>);

impl Forgotten {
    /// An address space that has ended is forgotten; returns the number of losses that are certain by now.
    pub(super) fn add(&mut self, tgid: u32) -> u64 {
        if self.0.len() >= MOST && !self.0.contains(&tgid) {
            return 1;
        }
        self.0.insert(tgid);
        0
    }

    /// A process is asked for at a time of which nothing is known; returns the number of losses, once.
    pub(super) fn asked(&mut self, tgid: u32) -> u64 {
        u64::from(self.0.remove(&tgid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_counted_once_and_when_it_is_one() {
        let mut forgotten = Forgotten::default();
        for tgid in 0..MOST as u32 {
            assert_eq!(forgotten.add(tgid), 0);
        }
        assert_eq!(forgotten.add(7), 0, "known as forgotten");
        assert_eq!(forgotten.add(1 << 20), 1, "no room");
        assert_eq!([forgotten.asked(7), forgotten.asked(7)], [1, 0]);
        assert_eq!(forgotten.asked(1 << 21), 0);
    }
}
