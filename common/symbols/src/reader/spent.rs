//! What reading the files of one owner has cost.

use std::time::Duration;

/// An answer that takes no longer is free: what ordinary programs take, for up to 512 addresses.
const FREE: Duration = Duration::from_millis(10);
/// What a byte that the file really has may take: 100 s for 1 GB. Indexing debug information takes a tenth of that, and less than
/// half where it is compressed, on a slow machine, too.
const NS_PER_BYTE: u64 = 100;
/// All that the sizes of files explain: large ones need no more than disk space. It is enough for 12 GB of debug information.
const MAX_EXPLAINED: Duration = Duration::from_secs(120);
/// All that was in vain, or more than the sizes explain: a file of 40 KB can take half a second.
pub(super) const MAX_LOST: Duration = Duration::from_secs(30);
/// As much for files that only root can have written, which are honest, most likely: for each death that they are allowed the time that
/// an answer is waited for.
pub(super) const MAX_LOST_OF_ROOT: Duration = Duration::from_secs(80);

/// Time spent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    explained: Duration,
    pub(super) lost: Duration,
}

impl Spent {
    /// Counts the CPU time of an answer about a file that takes so many bytes of its disk; holes, of which it may have as many as it
    /// likes, are none.
    pub(super) fn answer(&mut self, took: Duration, bytes: u64) {
        let over = took.saturating_sub(FREE);
        let explained = Duration::from_nanos(bytes.saturating_mul(NS_PER_BYTE))
            .min(MAX_EXPLAINED.saturating_sub(self.explained))
            .min(over);
        self.explained += explained;
        self.lost += over - explained;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in a MB.
    const MB: u64 = 1_000_000;

    /// After how many such answers there are no more, of at most a million.
    fn answers(took_ms: u64, bytes: u64) -> usize {
        let mut spent = Spent::default();
        let answer = || {
            spent.answer(Duration::from_millis(took_ms), bytes);
            spent.lost < MAX_LOST
        };
        std::iter::repeat_with(answer)
            .take(1_000_000)
            .take_while(|within| *within)
            .count()
    }

    #[test]
    fn honest_files_are_read_for_as_long_as_they_take() {
        assert_eq!(answers(9, 0), 1_000_000, "of an ordinary program");
        assert!(answers(10_000, 1000 * MB) >= 12, "of a browser");
        assert!(answers(100, 10 * MB) >= 1000, "of a large server");
    }

    #[test]
    fn a_small_file_that_takes_long_is_read_seldom() {
        assert!((60..80).contains(&answers(440, 39_000)));
        assert!((6..9).contains(&answers(5_300, 9_400_000)));
    }

    #[test]
    fn disk_space_does_not_buy_time_without_end() {
        assert!(answers(10_000, 1 << 50) <= 15);
    }
}
