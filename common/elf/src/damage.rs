//! Damages bytes for tests of readers, the same way in every run.

/// Numbers that look random and are the same in every run.
pub(super) struct Seeded(pub(super) u64);

impl Seeded {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    /// Changes up to eight bytes, often to an extreme.
    pub(super) fn damage(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            bytes[at] = match self.below(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ 1 << self.below(8),
                _ => self.below(256) as u8,
            };
        }
    }
}
