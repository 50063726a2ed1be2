//! profile's programs on random events of random threads, against what its man page says of samples.

#[expect(dead_code, reason = "it has machines for other tools, too")]
mod host;
#[path = "host/profile_asked.rs"]
mod profile_asked;
#[path = "host/profile_samples.rs"]
mod samples;

use host::Host;
use samples::Samples;

/// 10,000 windows for all seeds together.
#[test]
fn samples_are_of_whom_and_as_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let object = host::compile(dir.path(), "profile");
    for seed in 0..250 {
        let mut samples = Samples::new(Host::load(&object), seed);
        for step in 0..4_000 {
            samples.step(step);
        }
        samples.assert_the_same(seed);
    }
}
