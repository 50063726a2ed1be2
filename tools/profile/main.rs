//! profile
fn main() {}
