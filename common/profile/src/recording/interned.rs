//! Things by number, each once.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// The list has the things, the table only their numbers: nothing is kept twice.
#[derive(Clone, Debug)]
pub(crate) struct Interned<T> {
    /// By number.
    pub(crate) all: Vec<T>,
    ids: HashTable<u32>,
    hasher: RandomState,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            ids: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<T: Clone + Eq + Hash> Interned<T> {
    /// The list alone: nothing is looked up any more.
    pub(crate) fn into_all(self) -> Vec<T> {
        self.all
    }

    /// The number of a thing, new or known.
    pub(crate) fn id(&mut self, thing: &T) -> u32 {
        let Self { all, ids, hasher } = self;
        let entry = ids.entry(
            hasher.hash_one(thing),
            |id| all[*id as usize] == *thing,
            |id| hasher.hash_one(&all[*id as usize]),
        );
        match entry {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let id = u32::try_from(all.len()).expect("memory ends before 2^32 entries");
                place.insert(id);
                all.push(thing.clone());
                id
            }
        }
    }
}
