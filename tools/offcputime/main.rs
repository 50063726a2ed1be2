//! offcputime
fn main() {}
