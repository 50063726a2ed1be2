//! A stack of which some parts are native and some are Python.

use std::sync::Arc;

use profile::frame::Frame;
use symbols::Location;

/// Neighbours in a stack that are of one kind, leaf first.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Native(Arc<[Location]>),
    Python(Arc<[Frame]>),
}

/// Tells if the runtime names functions itself (`-X perf`): its trampolines, which are outside of files, call the loop.
pub(super) fn is_named(locations: &[Location], is_loop: &[bool]) -> bool {
    let callers = locations.iter().skip(1).zip(is_loop);
    let mut of_loops = callers.filter_map(|(caller, is_loop)| is_loop.then_some(caller));
    of_loops.any(|caller| matches!(caller, Location::Anonymous { .. }))
}

/// Frames of a stack, root first, with names for the native ones.
pub(crate) fn named(
    parts: &[Part],
    mut name: impl FnMut(&[Location]) -> Arc<[Frame]>,
) -> Arc<[Frame]> {
    if let [Part::Native(locations)] = parts {
        return name(locations);
    }
    let from_root = parts.iter().rev().flat_map(|part| match part {
        Part::Native(locations) => name(locations).to_vec(),
        Part::Python(frames) => frames.iter().rev().cloned().collect(),
    });
    from_root.collect()
}
