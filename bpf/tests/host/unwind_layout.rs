//! Puts a world's tables where the kernel side looks for them, for processes that are listed, and for those that are not.

use fastrand::Rng;

use crate::host::machine::Task;
use crate::unwinder::{FileKey, FileTable, Process, Unwinder};
use crate::world::{Backing, CHUNK, Module, World};

/// Places for words: what is in one chunk, and what may go on in the next.
struct Space {
    chunks: [u32; 3],
    next: [u32; 3],
    edge: u32,
}

impl Space {
    fn drawn(rng: &mut Rng) -> Self {
        // The chunk behind the second is for what does not fit into that.
        let chunks = [rng.u32(1..60), rng.u32(60..100), rng.u32(101..128)];
        let next = [
            rng.u32(1..2_000) * 8,
            rng.u32(1..2_000) * 8,
            rng.u32(1..2_000) * 8,
        ];
        let edge = (chunks[1] + 1) * CHUNK;
        Self { chunks, next, edge }
    }

    fn take(&mut self, rng: &mut Rng, words: usize) -> u32 {
        let at = rng.usize(0..3);
        let taken = self.chunks[at] * CHUNK + self.next[at];
        self.next[at] += u32::try_from(words.div_ceil(8) * 8).expect("few");
        taken
    }

    /// Across the edge of a chunk, once.
    fn take_across(&mut self, rng: &mut Rng, words: usize) -> u32 {
        let inside = words as u32 / 2 / 8 * 8;
        if inside == 0 || self.edge == 0 || rng.bool() {
            return self.take(rng, words);
        }
        std::mem::take(&mut self.edge) - inside
    }
}

/// Numbers behind all that is stored, which would be taken for rows and pages.
const AROUND: [u32; 4] = [0x0001_0001, 0x0001_0000, 0x0003_0001, 0x0001_0000];

fn store(unwinder: &Unwinder, at: u32, words: &[u32]) {
    unwinder.write(at, words);
    unwinder.write(at + words.len() as u32, &AROUND);
}

/// Stores a module's table, and gives the place of its index.
fn store_table(unwinder: &Unwinder, rng: &mut Rng, space: &mut Space, module: &Module) -> u32 {
    let table = &module.table;
    let rows = space.take(rng, table.rows.len() + AROUND.len());
    store(unwinder, rows, &table.rows);
    let mut index = Vec::new();
    for page in &table.pages {
        index.push(rows + page.first);
        index.push(u32::from(page.count) | u32::from(page.entry_rule) << 16);
    }
    let at = space.take_across(rng, index.len() + AROUND.len());
    store(unwinder, at, &index);
    at
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// All of a world, of a process that is listed under this ID or not at all.
pub(crate) struct Layout {
    space: Space,
    /// Places of the indices, one of each module.
    indices: Vec<u32>,
}

impl Layout {
    pub(crate) fn store(unwinder: &Unwinder, rng: &mut Rng, world: &World) -> Self {
        let rules: Vec<[u8; 8]> = world.rules.iter().map(|rule| rule.to_bytes()).collect();
        unwinder.rules(&rules);
        let mut space = Space::drawn(rng);
        let indices = world.modules.iter().map(|module| {
            if module.has_table() {
                store_table(unwinder, rng, &mut space, module)
            } else {
                0
            }
        });
        Self {
            indices: indices.collect(),
            space,
        }
    }

    /// The process's list of mappings: those with tables, and some others.
    pub(crate) fn list(
        &mut self,
        unwinder: &Unwinder,
        rng: &mut Rng,
        world: &World,
        process: Process,
    ) -> Process {
        let mut words = Vec::new();
        for (module, index) in world.modules.iter().zip(&self.indices) {
            if *index == 0 && rng.bool() {
                continue;
            }
            let shift = module.begin.wrapping_sub(module.skip);
            for word in [module.begin, module.end, shift] {
                words.extend(halves(word));
            }
            let pages = if *index == 0 { 0 } else { module.pages as u32 };
            words.extend([*index, pages]);
        }
        let at = self.space.take(rng, words.len() + 8);
        unwinder.write(at, &words);
        Process {
            mappings_at: at,
            mappings: words.len() as u32 / 8,
            ..process
        }
    }

    /// Mappings as the kernel has them, and the tables of their files.
    pub(crate) fn plant(
        &self,
        unwinder: &Unwinder,
        rng: &mut Rng,
        world: &World,
        task: Task,
        changes: Changes,
    ) {
        let mut ends = Vec::new();
        let mut before = 0;
        for (module, index) in world.modules.iter().zip(&self.indices) {
            if module.begin > before {
                ends.push((module.begin - 1, 0));
            }
            let vma = mapping(unwinder, rng, module, *index, task, changes);
            ends.push((module.end - 1, vma));
            before = module.end;
        }
        ends.push((u64::MAX, 0));
        let root = tree(unwinder, rng, ends);
        unwinder.host.tell("host_plant", (task, root | 2));
    }
}

/// Ways in which kernels keep the time of a file's last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    Apart,
    /// A bit above the nanoseconds says that somebody has asked.
    Asked,
    /// Times of the kernel's own, in front of the inode: the older name, and the one between.
    InFront,
    Named,
}

/// Its address.
fn mapping(
    unwinder: &Unwinder,
    rng: &mut Rng,
    module: &Module,
    index: u32,
    task: Task,
    changes: Changes,
) -> u64 {
    let (inode, device, seconds, ns) = (
        rng.u64(1..),
        rng.u32(..),
        rng.u64(0..1 << 33),
        rng.u32(0..1_000_000_000),
    );
    let page = rng.u64(0..1 << 20);
    let asked = if changes == Changes::Asked {
        1 << 31
    } else {
        0
    };
    let mut key = FileKey::default();
    let mut file = std::ptr::null_mut();
    if matches!(module.backing, Backing::File | Backing::Stale) {
        key = FileKey {
            inode,
            offset: page * 4096,
            changed_ns: seconds * 1_000_000_000 + u64::from(ns),
            device,
            pad: 0,
        };
        file = unwinder
            .host
            .ask::<Task>("host_open", (inode, device, seconds, ns | asked));
    }
    if matches!(changes, Changes::InFront | Changes::Named) && !file.is_null() {
        key.changed_ns = unwinder.host.ask::<u64>("host_changed_in_front", (file,));
    }
    let table = FileTable {
        shift: module.skip.wrapping_neg(),
        pages_at: index,
        pages: module.pages as u32,
    };
    if module.has_table() {
        unwinder.file(&key, &table);
    } else if module.backing == Backing::Stale {
        unwinder.file(
            &key,
            &FileTable {
                pages: 1 << 20,
                ..table
            },
        );
    }
    let of = if module.backing == Backing::Stale {
        std::ptr::null_mut()
    } else {
        task
    };
    unwinder
        .host
        .ask::<u64>("host_map", (of, module.begin, module.end, page, file))
}

/// Nodes one above the other, at most.
const MOST_LEVELS: u32 = 6;

/// Entries by the last address that each is for, in nodes of random sizes and kinds, to the root.
fn tree(unwinder: &Unwinder, rng: &mut Rng, ends: Vec<(u64, u64)>) -> u64 {
    let mut level = ends;
    let mut levels = 0;
    loop {
        let mut above = Vec::new();
        let mut left = level.as_slice();
        while !left.is_empty() {
            let (kind, slots) = match rng.bool() {
                _ if levels == 0 => (1, 16),
                true => (2, 16),
                false => (3, 10),
            };
            let few = if rng.bool() {
                slots
            } else {
                rng.usize(3..=slots)
            };
            let (own, rest) = left.split_at(left.len().min(few));
            above.push((own[own.len() - 1].0, node(unwinder, rng, kind, slots, own)));
            left = rest;
        }
        levels += 1;
        if let [(_, root)] = above[..]
            && (levels == MOST_LEVELS || rng.bool())
        {
            return root;
        }
        level = above;
    }
}

fn node(unwinder: &Unwinder, rng: &mut Rng, kind: u32, most: usize, own: &[(u64, u64)]) -> u64 {
    let mut pivots = vec![0; most - 1];
    let mut slots = vec![0; most];
    for (at, (last, entry)) in own.iter().enumerate() {
        slots[at] = *entry;
        if at < most - 1 {
            pivots[at] = *last;
        }
    }
    // The last one's may be left out: it is the node's own.
    if own.len() < most && rng.bool() {
        pivots[own.len() - 1] = 0;
    }
    let (pivots, slots, most) = (pivots.as_ptr(), slots.as_ptr(), most as u32);
    let node = (kind, pivots, most - 1, slots, most);
    unwinder.host.ask::<u64>("host_node", node)
}
