//! Buckets of lengths, as `hist_bucket` tells them apart.

/// Bits of a length that its bucket keeps below the highest.
const SUB_BITS: u32 = 4;

/// Lengths are in one bucket if this is the same.
pub(crate) fn bucket(ns: u64) -> (u32, u64) {
    let shift = ns.checked_ilog2().unwrap_or(0).saturating_sub(SUB_BITS);
    (shift, ns >> shift)
}
