//! The space of words that the BPF side reads tables from: arrays made when they are needed, shared by memory mapping.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::time::Instant;

use anyhow::{Context, Result};
use libbpf_rs::{MapHandle, MapType};

use super::free::{FreeList, Run};
use super::publish::{publish, withdraw};

/// As in unwind_tables.bpf.h.
pub(super) const CHUNK_WORDS: u32 = 1 << 19;
const MAX_CHUNKS: u32 = 128;

/// Shared memory of a BPF array with one value.
#[derive(Debug)]
pub(super) struct Shared {
    base: NonNull<u32>,
    words: usize,
}

impl Shared {
    /// Maps the value of `map`, which must be mappable and have `words` words.
    pub(super) fn map(map: &impl AsFd, words: usize) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of a descriptor that we hold; the kernel checks the length.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                words * 4,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("mmap never returns null");
        Ok(Self { base, words })
    }

    /// Copies words to `at`.
    pub(super) fn write(&mut self, at: usize, words: &[u32]) {
        assert!(at + words.len() <= self.words, "inside the value");
        // SAFETY: checked just now; BPF programs read other words meanwhile, and these only after they are published.
        unsafe {
            ptr::copy_nonoverlapping(words.as_ptr(), self.base.as_ptr().add(at), words.len())
        };
    }

    fn read(&self, at: usize) -> u32 {
        assert!(at < self.words, "inside the value");
        // SAFETY: checked just now; nobody but us writes.
        unsafe { self.base.as_ptr().add(at).read() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly the range that map() got; nothing borrows from it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * 4) };
    }
}

/// All words.
#[derive(Debug)]
pub(super) struct Words {
    outer: MapHandle,
    chunks: BTreeMap<u32, Shared>,
    free: FreeList,
}

impl Words {
    /// `outer` is the BPF side's array of chunks.
    pub(super) fn new(outer: MapHandle) -> Self {
        Self {
            outer,
            chunks: BTreeMap::new(),
            free: FreeList::new(MAX_CHUNKS, CHUNK_WORDS),
        }
    }

    /// Stores words; `None` when the space is full, or the kernel has no memory for another chunk.
    pub(super) fn store(&mut self, words: &[u32], in_one_chunk: bool) -> Option<Run> {
        let length = u32::try_from(words.len()).ok()?;
        let run = self.free.take(length, in_one_chunk)?;
        let last = (run.at + run.words - 1) / CHUNK_WORDS;
        for chunk in run.at / CHUNK_WORDS..=last {
            if self.ensure(chunk).is_err() {
                self.free.retire(run, Instant::now());
                return None;
            }
        }
        let mut at = run.at;
        let mut rest = words;
        while !rest.is_empty() {
            let offset = (at % CHUNK_WORDS) as usize;
            let (now, later) = rest.split_at(rest.len().min(CHUNK_WORDS as usize - offset));
            let chunk = self.chunks.get_mut(&(at / CHUNK_WORDS));
            chunk.expect("just ensured").write(offset, now);
            at += u32::try_from(now.len()).expect("at most a chunk");
            rest = later;
        }
        Some(run)
    }

    /// Gives words up.
    pub(super) fn retire(&mut self, run: Run) {
        self.free.retire(run, Instant::now());
    }

    /// Makes what was given up usable again, and gives back chunks that nobody uses.
    pub(super) fn reclaim(&mut self) {
        if !self.free.reclaim(Instant::now()) {
            return;
        }
        let free = &self.free;
        let outer = &self.outer;
        self.chunks.retain(|chunk, _| {
            let unused = free.is_chunk_free(*chunk);
            if unused {
                // A failure leaves an unused array behind, nothing else.
                let _ = withdraw(outer, *chunk);
            }
            !unused
        });
    }

    /// A word that was stored; 0 for any other.
    pub(super) fn read(&self, at: u32) -> u32 {
        let chunk = self.chunks.get(&(at / CHUNK_WORDS));
        chunk.map_or(0, |chunk| chunk.read((at % CHUNK_WORDS) as usize))
    }

    /// Bytes of kernel memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_WORDS as usize * 4
    }

    fn ensure(&mut self, chunk: u32) -> Result<()> {
        if self.chunks.contains_key(&chunk) {
            return Ok(());
        }
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let inner = MapHandle::create(
            MapType::Array,
            Some("unwind_chunk"),
            4,
            CHUNK_WORDS * 4,
            1,
            &options,
        )
        .context("memory for unwind tables")?;
        let shared = Shared::map(&inner, CHUNK_WORDS as usize)?;
        publish(&self.outer, chunk, &inner)?;
        self.chunks.insert(chunk, shared);
        Ok(())
    }
}
