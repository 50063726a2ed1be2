//! Memory that why says it takes, against the kernel's account.

use std::path::Path;

use crate::held::Held;
use crate::prelude::*;
use crate::soak::{end, status};
use crate::why::ALL;

/// Entries of maps that a program does not fill in advance come and go.
const PERCENT: u64 = 100;

#[test]
fn maps_that_engines_share_count_once_and_mapped_ones_not_again() {
    let _machine = Machine::alone();
    let mut mixture = Workload::start("mixture", "--rounds 5");
    let tool = Tool::attached("why", format!("-j --all {ALL}"));
    mixture.go();
    mixture.results();
    let maps = Held::map_bytes(tool.pid());
    let own = status(Path::new(&format!("/proc/{}/status", tool.pid())));
    let (output, _, most_kib) = end(tool);
    mixture.finish();
    let report = output.report();
    let [map_bytes, peak] =
        ["cost.map_bytes", "cost.peak_bytes"].map(|field| number(&report, field));
    let bounds = maps - maps / PERCENT..=maps + maps / PERCENT;
    assert_within("maps, bytes", map_bytes, bounds, &report["cost"]);
    // Its own memory was no less at any time, and a ring of 8 MiB is mapped twice.
    let bounds = own["RssAnon:"] << 10..=(most_kib << 10) - (16 << 20);
    assert_within("without maps, bytes", peak, bounds, &report["cost"]);
    assert_within(
        "all, MiB",
        (map_bytes + peak) >> 20,
        0..=150,
        &report["cost"],
    );
}
