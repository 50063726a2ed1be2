//! Stacks by all of their frames at once: one look-up instead of one per frame.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::recording::{Recording, StackId};

/// Stacks that were there before; their frames are in the recording.
#[derive(Default)]
pub(super) struct Stacks {
    known: HashTable<StackId>,
    hasher: RandomState,
}

impl Stacks {
    /// The stack of these frames, indices of [`Recording::frames`].
    pub(super) fn id(&mut self, leaf_first: &[u32], recording: &mut Recording) -> StackId {
        let Self { known, hasher } = self;
        let is_same = |stack: &StackId| {
            let frames = recording.frame_ids(*stack);
            frames.eq(leaf_first.iter().copied())
        };
        let hash = hasher.hash_one(leaf_first);
        if let Some(stack) = known.find(hash, is_same) {
            return *stack;
        }
        let root_first = leaf_first.iter().rev();
        let stack = root_first.fold(0, |parent, frame| recording.push_id(parent, *frame));
        known.insert_unique(hash, stack, |stack| {
            let frames: Vec<u32> = recording.frame_ids(*stack).collect();
            hasher.hash_one(&*frames)
        });
        stack
    }
}
