//! runqlat
fn main() {}
