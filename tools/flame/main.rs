//! flame: reads, draws, compares, merges and gates profiles.
fn main() {}
