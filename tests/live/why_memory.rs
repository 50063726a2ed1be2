//! Memory that why says it takes, against the kernel's account.

use std::path::Path;

use crate::found::json;
use crate::full_pipe::FullPipe;
use crate::held::Held;
use crate::prelude::*;
use crate::soak::status;
use crate::why::ALL;

/// Entries of maps that a program does not fill in advance come and go.
const PERCENT: u64 = 100;

#[test]
fn maps_that_engines_share_count_once_and_mapped_ones_not_again() {
    let _machine = Machine::alone();
    let mut mixture = Workload::start("mixture", "--rounds 5");
    let dir = tempfile::tempdir().expect("a directory");
    let mut pipe = FullPipe::new(dir.path().join("why.json"));
    let options = format!("-o {} -p {} {ALL}", pipe.path().display(), mixture.pid());
    let tool = Tool::attached("why", options);
    pipe.fill();
    mixture.go();
    mixture.results();
    let maps = Held::map_bytes(tool.pid());
    let own = || status(Path::new(&format!("/proc/{}/status", tool.pid())));
    let before = own();
    tool.interrupt();
    // Its figures are made, and it is still there.
    pipe.await_writer(tool.pid());
    let most_kib = own()["VmHWM:"];
    let text = String::from_utf8(pipe.drain()).expect("text");
    tool.finish().ok();
    mixture.finish();
    let report = json(&text);
    let [map_bytes, peak] =
        ["cost.map_bytes", "cost.peak_bytes"].map(|field| number(&report, field));
    let bounds = maps - maps / PERCENT..=maps + maps / PERCENT;
    assert_within("maps, bytes", map_bytes, bounds, &report["cost"]);
    // Its own memory was no less at any time, and a ring of 8 MiB is mapped twice.
    let bounds = before["RssAnon:"] << 10..=(most_kib << 10) - (16 << 20);
    assert_within("without maps, bytes", peak, bounds, &report["cost"]);
    assert_within(
        "all, MiB",
        (map_bytes + peak) >> 20,
        0..=150,
        &report["cost"],
    );
}
