//! Pages of threads that do not run: each is read once, however many words of it are wanted, and several are asked for at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use super::{BLOCK, MOST_AT_ONCE, read_blocks};

/// Blocks that are kept, 8 MiB: when there are as many, all are given up.
const MOST_KEPT: usize = 2048;

/// Bytes of a block; `None`: nothing can be read there.
type Block = Option<Box<[u8]>>;

/// Memory of processes, as it was when it was first asked for: stacks of threads that have not run since before, and what lies
/// behind these.
#[derive(Default)]
pub struct Kept {
    /// By process and address.
    blocks: RefCell<HashMap<(u32, u64), Block>>,
}

impl Kept {
    /// Reads the blocks of a process that these addresses are in, unless they are there.
    pub fn fetch(&self, tgid: u32, addresses: impl IntoIterator<Item = u64>) {
        let mut blocks = self.blocks.borrow_mut();
        if blocks.len() >= MOST_KEPT {
            blocks.clear();
        }
        let starts = addresses.into_iter().map(start_of);
        let mut wanted: Vec<u64> = starts
            .filter(|start| !blocks.contains_key(&(tgid, *start)))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        for wanted in wanted.chunks(MOST_AT_ONCE) {
            // An address is asked for once, whether there is anything or not.
            blocks.extend(wanted.iter().map(|start| ((tgid, *start), None)));
            let _ = read_blocks(tgid, wanted, |number, bytes| {
                blocks.insert((tgid, wanted[number]), Some(bytes.into()));
            });
        }
    }

    /// Reads memory of a process into `buffer`; returns how many bytes there were.
    ///
    /// # Errors
    ///
    /// When there is nothing.
    pub fn read(&self, tgid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let copied = self.copy(tgid, address.wrapping_add(done as u64), &mut buffer[done..]);
            if copied == 0 {
                break;
            }
            done += copied;
        }
        if done == 0 && !buffer.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        Ok(done)
    }

    /// Copies what one block has; returns how many bytes.
    fn copy(&self, tgid: u32, address: u64, buffer: &mut [u8]) -> usize {
        self.fetch(tgid, [address]);
        let blocks = self.blocks.borrow();
        let start = start_of(address);
        let Some(Some(block)) = blocks.get(&(tgid, start)) else {
            return 0;
        };
        let bytes = usize::try_from(address - start)
            .ok()
            .and_then(|from| block.get(from..));
        let bytes = bytes.unwrap_or_default();
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        length
    }
}

fn start_of(address: u64) -> u64 {
    address & !(BLOCK as u64 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's own process, which the reading one may look into.
    fn own() -> u32 {
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
        std::process::id()
    }

    /// Pages of our own behind each other, numbered, and behind them one that is not there.
    fn pages(number: usize) -> &'static mut [u8] {
        // SAFETY: fresh pages that nobody else uses and that stay, of which the last one is given back.
        unsafe {
            let (rights, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let length = number * BLOCK;
            let all = libc::mmap(std::ptr::null_mut(), length + BLOCK, rights, flags, -1, 0);
            assert_ne!(all, libc::MAP_FAILED);
            assert_eq!(libc::munmap(all.byte_add(length), BLOCK), 0);
            let pages = std::slice::from_raw_parts_mut(all.cast::<u8>(), length);
            for (number, page) in pages.chunks_mut(BLOCK).enumerate() {
                page.fill(u8::try_from(number).expect("few pages"));
            }
            pages
        }
    }

    #[test]
    fn many_pages_come_at_once_and_are_read_once() {
        let pages = pages(2 * MOST_AT_ONCE + 3);
        let (start, end) = (pages.as_ptr() as u64, pages.as_ptr_range().end as u64);
        let kept = Kept::default();
        let before = super::super::asked();
        kept.fetch(own(), (start..end + 4096).step_by(BLOCK));
        assert_eq!(super::super::asked() - before, 3);
        // Changes come too late for what is kept.
        pages.fill(255);
        let mut found = vec![0; 2 * BLOCK];
        let mut read = |address, length: usize| {
            let read = kept.read(own(), address, &mut found[..length]);
            read.ok().map(|bytes| found[..bytes].to_vec())
        };
        assert_eq!(read(start + 4095, 2), Some(vec![0, 1]));
        assert_eq!(read(end - 4, 8), Some(vec![34; 4]));
        assert_eq!(read(end, 8), None);
        assert_eq!(
            read(start + 8, 4096),
            Some([vec![0; 4088], vec![1; 8]].concat())
        );
        assert_eq!(super::super::asked() - before, 3);
        assert_eq!(read(u64::MAX - 3, 8), None);
        assert_eq!(read(0, 8), None);
    }

    #[test]
    fn memory_that_is_kept_has_a_limit() {
        let kept = Kept::default();
        for start in (1..=MOST_KEPT as u64 + 1).map(|number| number * 4096) {
            kept.fetch(0, [start]);
        }
        assert_eq!(kept.blocks.borrow().len(), 1);
    }
}
