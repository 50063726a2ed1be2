//! Every process's executable mappings, sorted, as the BPF side searches them.

use std::collections::{HashMap, HashSet};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::free::Run;
use super::tables::Module;
use super::words::Words;

/// As in unwind_tables.bpf.h: what a search of bounded length finds.
const MAX_MAPPINGS: usize = 1 << 12;

/// One mapping with a table.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Subtracted from an address it gives the offset into the table's index.
    pub(super) shift: u64,
    pub(super) module: Module,
}

#[derive(Debug)]
struct Published {
    list: Vec<Listed>,
    run: Run,
}

/// What has been published.
#[derive(Debug)]
pub(super) struct Processes {
    map: MapHandle,
    published: HashMap<u32, Published>,
    generation: u32,
    /// Some process went, or its mappings changed: tables may have become useless.
    dropped: bool,
    /// Lists that found no room.
    pub(super) no_room: u64,
}

impl Processes {
    /// `map` is the BPF side's table of processes.
    pub(super) fn new(map: MapHandle) -> Self {
        Self {
            map,
            published: HashMap::new(),
            generation: 0,
            dropped: false,
            no_room: 0,
        }
    }

    /// Replaces what is known of a process; `python` is the number of its interpreter, 0: it has none.
    pub(super) fn publish(
        &mut self,
        tgid: u32,
        start_stack: u64,
        mut list: Vec<Listed>,
        python: u32,
        words: &mut Words,
    ) {
        list.sort_by_key(|listed| listed.begin);
        list.truncate(MAX_MAPPINGS);
        let flat: Vec<u32> = list.iter().flat_map(encode).collect();
        let Some(run) = words.store(&flat, true) else {
            self.no_room += 1;
            self.forget(tgid, words);
            return;
        };
        self.generation = self.generation.wrapping_add(1);
        let mappings = u32::try_from(list.len()).expect("at most MAX_MAPPINGS");
        let mut value = [0; 24];
        value[..8].copy_from_slice(&start_stack.to_ne_bytes());
        value[8..12].copy_from_slice(&run.at.to_ne_bytes());
        value[12..16].copy_from_slice(&mappings.to_ne_bytes());
        value[16..20].copy_from_slice(&self.generation.to_ne_bytes());
        value[20..].copy_from_slice(&python.to_ne_bytes());
        if self
            .map
            .update(&tgid.to_ne_bytes(), &value, MapFlags::ANY)
            .is_err()
        {
            words.retire(run);
            self.no_room += 1;
            self.forget(tgid, words);
            return;
        }
        if let Some(old) = self.published.insert(tgid, Published { list, run }) {
            words.retire(old.run);
            self.dropped = true;
        }
    }

    /// The process is gone.
    pub(super) fn forget(&mut self, tgid: u32, words: &mut Words) {
        // It may be there without our doing: a child inherits its parent's.
        let _ = self.map.delete(&tgid.to_ne_bytes());
        if let Some(old) = self.published.remove(&tgid) {
            words.retire(old.run);
            self.dropped = true;
        }
    }

    /// The mapping of a process that holds an address.
    pub(super) fn find(&self, tgid: u32, address: u64) -> Option<&Listed> {
        let list = &self.published.get(&tgid)?.list;
        let after = list.partition_point(|listed| listed.begin <= address);
        let listed = list.get(after.checked_sub(1)?)?;
        (address < listed.end).then_some(listed)
    }

    /// Whether any list was given up since the last call.
    pub(super) fn take_dropped(&mut self) -> bool {
        std::mem::take(&mut self.dropped)
    }

    /// Tables that some list refers to.
    pub(super) fn tables_in_use(&self) -> HashSet<u32> {
        let lists = self.published.values().flat_map(|process| &process.list);
        lists.map(|listed| listed.module.stored.pages_at).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.published.len()
    }
}

/// `struct unwind_mapping`.
fn encode(listed: &Listed) -> [u32; 8] {
    let halves = |word: u64| {
        let bytes = word.to_ne_bytes();
        let (first, second) = bytes.split_at(4);
        [first, second].map(|half| u32::from_ne_bytes(half.try_into().expect("four bytes")))
    };
    let [[b0, b1], [e0, e1], [s0, s1]] = [listed.begin, listed.end, listed.shift].map(halves);
    let stored = &listed.module.stored;
    [b0, b1, e0, e1, s0, s1, stored.pages_at, stored.pages]
}
