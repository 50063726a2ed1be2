//! One window that stands for itself, as a run without a budget has it or one within a budget that allows to look all the time: the
//! report is what the programs have counted, byte for byte. Tests of tools that sample are held to this.

use std::sync::Arc;

use budget::Window;
use fastrand::Rng;
use host::clock::Edges;
use profile::frame::Frame;
use profile::json;
use profile::model::{Profile, Task};
use serde_json::{Map, Value};

use crate::made_up::{self, frame};

/// A stack that stands for an id.
pub(crate) fn stack(id: u64) -> Arc<[Frame]> {
    let frame = Frame {
        address: id,
        ..frame(&format!("function {id}"))
    };
    [frame].into()
}

pub(crate) fn task(rng: &mut Rng) -> Task {
    let tgid = rng.u32(1..9);
    let comm = format!("thread{}", rng.u32(0..3));
    made_up::task(&comm, tgid, tgid + rng.u32(0..3))
}

/// JSON but for the cost of the run, which is never the same.
pub(crate) fn json_of(profile: &Profile, mut extra: Map<String, Value>) -> String {
    extra.remove("cost");
    let mut out = Vec::new();
    json::write(profile, &extra, &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("text")
}

/// Compares two reports for each of some windows; `reports` draws what the programs tell.
pub(crate) fn assert_same(reports: impl Fn(&mut Rng, Edges, &Window) -> [String; 2]) {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let start_ns = rng.u64(..1 << 50);
        let end_ns = start_ns + rng.u64(1..1 << 50);
        let window = Window {
            start_ns,
            end_ns,
            stratum_ns: end_ns - start_ns,
        };
        let [one, exact] = reports(&mut rng, Edges { start_ns, end_ns }, &window);
        assert_eq!(one, exact, "seed {seed}");
    }
}
