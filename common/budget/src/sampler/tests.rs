use crate::windowed::{Programs, Told};

use super::*;

/// A tool that has nothing to tell, and takes its windows in at so much CPU time, ns.
struct Slow(u64);

impl Windowed for Slow {
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
        spend(self.0);
        Ok(())
    }
}

/// Spends so much time, and no less CPU time of the process, to which other tests add theirs.
fn spend(ns: u64) {
    let (until_ns, cpu_ns) = (monotonic_ns() + ns, own_cpu_ns() + ns);
    while monotonic_ns() < until_ns || own_cpu_ns() < cpu_ns {}
}

#[test]
fn a_whole_collection_ends_with_its_window_however_long_that_is_taken_in() {
    let meter = Meter::of_tests();
    let mut slow = Slow(200_000_000);
    let limits = (Some(1.0), None);
    let mut sampler = Sampler::begin(("tool", false), limits, &meter, &mut slow).expect("a start");
    spend(2 * FIRST_CHECK_NS);
    let end_ns = sampler.end(&mut slow).expect("an end");
    assert!(sampler.is_exact());
    // Windows are planned from now on, and the next one's stratum begins later.
    assert!(!sampler.plan.is_everything());
    assert!(sampler.strata.start_ns() > end_ns);
    assert!(sampler.share(end_ns) == 1.0, "{end_ns}");
    assert_eq!(sampler.looked.open_ns(), end_ns - sampler.began_ns());
}
