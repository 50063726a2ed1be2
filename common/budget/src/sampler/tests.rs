use crate::windowed::{Programs, Told};

use super::*;

/// A tool that has nothing to tell.
struct Silent;

impl Windowed for Silent {
    fn programs(&self) -> Vec<Programs<'_>> {
        Vec::new()
    }

    fn prepare(&mut self, _: bool) -> Result<()> {
        Ok(())
    }

    fn edges(&mut self) -> Result<Vec<Told<'_>>> {
        Ok(Vec::new())
    }

    fn shut(&mut self) -> Result<u64> {
        Ok(monotonic_ns())
    }

    fn take(&mut self, _: &Window) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_whole_collection_ends_with_its_window_however_long_that_is_taken_in() {
    let meter = Meter::of_tests();
    let mut tool = Silent;
    let limits = (Some(1.0), None);
    let mut sampler = Sampler::begin(("tool", false), limits, &meter, &mut tool).expect("a start");
    // Planned for what follows: by the time that a window is taken in, any such stratum is over.
    sampler.plan = Plan::Windows {
        open_ns: 1,
        stratum_ns: 1,
    };
    // Edges are told a moment before they are.
    while monotonic_ns() <= sampler.began_ns() {}
    let end_ns = sampler.end(&mut tool).expect("an end");
    assert!(sampler.is_exact());
    assert!(sampler.share(end_ns) == 1.0, "{end_ns}");
    assert_eq!(sampler.looked.open_ns(), end_ns - sampler.began_ns());
}
