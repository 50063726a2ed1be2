//! Names that were found already.

use std::collections::HashMap;
use std::sync::Arc;

use profile::frame::Frame;

use crate::frames::Frames;
use crate::location::Location;

/// Some 500,000 locations with ordinary names; past it everything is asked anew.
const MAX_BYTES: usize = 128 << 20;

/// Frames by location.
#[derive(Debug, Default)]
pub(super) struct Cache {
    frames: HashMap<Location, Frames>,
    bytes: usize,
}

impl Cache {
    /// Forgets everything when it has become too much; between two calls nothing is forgotten.
    pub(super) fn make_room(&mut self) {
        if self.bytes > MAX_BYTES {
            self.frames = HashMap::new();
            self.bytes = 0;
        }
    }

    pub(super) fn insert(&mut self, location: Location, frames: Frames) {
        self.bytes += size_of::<(Location, Frames)>() + frames.0.iter().map(size).sum::<usize>();
        self.frames.insert(location, frames);
    }

    pub(super) fn get(&self, location: &Location) -> Option<&Frames> {
        self.frames.get(location)
    }
}

/// The module's path is shared.
fn size(frame: &Frame) -> usize {
    let file = frame
        .line
        .as_ref()
        .map_or(0, |(file, _): &(Arc<str>, u32)| file.len());
    size_of::<Frame>() + frame.name.len() + file
}
