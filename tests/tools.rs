//! The tracing tools, as the manifest has them: a new one is tested like the others.

use std::sync::LazyLock;

/// Names of all that trace, in the manifest's order.
pub(crate) static TRACERS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    // Compiled in: guests of other kernels have the tests, and not the sources.
    let manifest = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    let bins = manifest.split("[[bin]]").skip(1);
    let names = bins.filter_map(|bin| bin.split('"').nth(1));
    // All of them in one.
    names.filter(|name| *name != "usekit").collect()
});
