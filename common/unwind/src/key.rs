//! The key under which equal files share a table.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;

/// 128 bits that are equal for equal values, in this process. Nobody outside knows the hash's own keys, so nobody can
/// make a file on purpose whose table another file gets.
pub(crate) fn of(value: &impl Hash) -> u128 {
    static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
    let [high, low] = KEYS.get_or_init(Default::default);
    u128::from(high.hash_one(value)) << 64 | u128::from(low.hash_one(value))
}
