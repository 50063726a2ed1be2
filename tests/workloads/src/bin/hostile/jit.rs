//! Machine code in anonymous memory, named by a perf map.

use std::io::{self, Write};
use std::path::PathBuf;

/// Bytes between two made functions.
const STRIDE: usize = 64;
const LENGTH: usize = 4096;

/// `fn(turns: u64)`: a busy loop with a frame of its own, so that frame pointers lead to its caller.
#[cfg(target_arch = "x86_64")]
const LOOP: &[u8] = &[
    0x55, // push rbp
    0x48, 0x89, 0xe5, // mov rbp, rsp
    0x48, 0xff, 0xcf, // dec rdi
    0x75, 0xfb, // jnz to the dec
    0x5d, // pop rbp
    0xc3, // ret
];
#[cfg(target_arch = "aarch64")]
const LOOP: &[u8] = &[
    0xfd, 0x7b, 0xbf, 0xa9, // stp x29, x30, [sp, #-16]!
    0xfd, 0x03, 0x00, 0x91, // mov x29, sp
    0x00, 0x04, 0x00, 0xf1, // subs x0, x0, #1
    0xe1, 0xff, 0xff, 0x54, // b.ne to the subs
    0xfd, 0x7b, 0xc1, 0xa8, // ldp x29, x30, [sp], #16
    0xc0, 0x03, 0x5f, 0xd6, // ret
];

/// The made functions. They stay until the process ends.
pub(crate) struct Jit {
    base: usize,
    count: usize,
}

impl Jit {
    /// Makes one function per name and writes `/tmp/perf-PID.map`, which names them byte for byte.
    pub(crate) fn new(names: &[Vec<u8>]) -> io::Result<Self> {
        if names.len() * STRIDE > LENGTH {
            return Err(io::Error::other("too many names for one page"));
        }
        let base = map_page()?;
        // SAFETY: a fresh writable page with room for every function, made executable before use.
        unsafe {
            for nth in 0..names.len() {
                let target = (base + nth * STRIDE) as *mut u8;
                target.copy_from_nonoverlapping(LOOP.as_ptr(), LOOP.len());
            }
            if libc::mprotect(base as *mut _, LENGTH, libc::PROT_READ | libc::PROT_EXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        flush_instructions(base);
        write_map(base, names)?;
        Ok(Self {
            base,
            count: names.len(),
        })
    }

    /// Runs function `nth` for `turns` of its loop.
    pub(crate) fn call(&self, nth: usize, turns: u64) {
        assert!(
            nth < self.count && turns > 0,
            "only made functions, and loops that end"
        );
        // SAFETY: `base + nth * STRIDE` holds LOOP, a complete function of this type.
        let made: extern "C" fn(u64) = unsafe { std::mem::transmute(self.base + nth * STRIDE) };
        made(turns);
    }
}

fn map_page() -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(page as usize)
    }
}

#[cfg(target_arch = "aarch64")]
fn flush_instructions(base: usize) {
    unsafe extern "C" {
        /// The compiler runtime's.
        fn __clear_cache(start: *mut libc::c_void, end: *mut libc::c_void);
    }
    // SAFETY: the range is the mapped page.
    unsafe { __clear_cache(base as *mut _, (base + LENGTH) as *mut _) }
}

/// x86 keeps its instruction caches coherent itself.
#[cfg(target_arch = "x86_64")]
fn flush_instructions(_base: usize) {}

fn write_map(base: usize, names: &[Vec<u8>]) -> io::Result<()> {
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    let mut map = std::fs::File::create(path)?;
    for (nth, name) in names.iter().enumerate() {
        write!(map, "{:x} {:x} ", base + nth * STRIDE, LOOP.len())?;
        map.write_all(name)?;
        map.write_all(b"\n")?;
    }
    Ok(())
}
