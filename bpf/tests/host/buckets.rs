//! Buckets of lengths, as `hist_bucket` tells them apart.

/// Bits of a length that its bucket keeps below the highest.
const SUB_BITS: u32 = 4;

/// Position of a length's bucket: 16 in every power of two, and one each below 16.
pub(crate) fn bucket(ns: u64) -> u32 {
    let shift = ns.checked_ilog2().unwrap_or(0).saturating_sub(SUB_BITS);
    (shift << SUB_BITS) + u32::try_from(ns >> shift).expect("less than 32")
}
