//! The tracing tools, as the manifest has them: a new one is tested like the others.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Names of all that trace, in the manifest's order.
pub(crate) static TRACERS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("a manifest").leak();
    let bins = manifest.split("[[bin]]").skip(1);
    let names = bins.filter_map(|bin| bin.split('"').nth(1));
    // All of them in one.
    names.filter(|name| *name != "usekit").collect()
});
