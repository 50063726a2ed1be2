//! Makes an array part of an array of arrays, or takes it out, without waiting for a grace period.
//!
//! The kernel waits for one after each change of such an array, for the sake of programs that still use what was there before
//! (`maybe_wait_bpf_programs`, 1ae80cf31938). A place that was empty has no such programs, an array that is taken out lives as
//! long as they use it, and everybody sees the change before that wait. On an overloaded machine the threads that end a grace
//! period may starve for a minute; so another process does the waiting.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use host::errands::Errand;
use host::privileges::Capabilities;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// Between two looks whether the change is there.
const PAUSE: Duration = Duration::from_micros(50);
/// Until there is a process. After that the change is made, and waited for, here.
const PATIENCE: Duration = Duration::from_secs(1);

/// Puts `inner` where `index` is in `outer`, and nothing is yet. Programs see it when this returns.
pub(super) fn publish(outer: &MapHandle, index: u32, inner: &MapHandle) -> Result<()> {
    let (outer_fd, inner_fd) = (descriptor(outer), descriptor(inner));
    let put = move || put(outer_fd, index, inner_fd);
    let changed = change(vec![outer_fd, inner_fd], put, || is_there(outer, index));
    changed.context("add unwind tables")
}

/// Takes out what is there. It may be replaced when this returns.
pub(super) fn withdraw(outer: &MapHandle, index: u32) -> Result<()> {
    let outer_fd = descriptor(outer);
    let delete = move || delete(outer_fd, index);
    let changed = change(vec![outer_fd], delete, || !is_there(outer, index));
    changed.context("remove unwind tables")
}

fn change(
    needed: Vec<RawFd>,
    call: impl FnOnce() -> io::Result<()> + Copy + Send + 'static,
    is_made: impl Fn() -> bool,
) -> io::Result<()> {
    let may = Capabilities::BPF;
    let errand = Errand::start(c"unwind-chunk", needed, may, PATIENCE, call);
    let Some(errand) = errand else {
        return call();
    };
    while !is_made() {
        if let Some(result) = errand.result() {
            return result;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The kernel gives the inner array's ID, or says that there is none.
fn is_there(outer: &MapHandle, index: u32) -> bool {
    let found = outer.lookup(&index.to_ne_bytes(), MapFlags::ANY);
    matches!(found, Ok(Some(_)))
}

fn descriptor(map: &MapHandle) -> RawFd {
    map.as_fd().as_raw_fd()
}

fn put(outer: RawFd, index: u32, inner: RawFd) -> io::Result<()> {
    let any = u64::from(libbpf_sys::BPF_ANY);
    // SAFETY: key and value have the sizes that such an array has.
    let done = unsafe {
        libbpf_sys::bpf_map_update_elem(
            outer,
            (&raw const index).cast(),
            (&raw const inner).cast(),
            any,
        )
    };
    result_of(done)
}

fn delete(outer: RawFd, index: u32) -> io::Result<()> {
    // SAFETY: the key has the size that an array's has.
    result_of(unsafe { libbpf_sys::bpf_map_delete_elem(outer, (&raw const index).cast()) })
}

/// From libbpf's: 0, or an error number below it.
fn result_of(done: libc::c_int) -> io::Result<()> {
    if done < 0 {
        return Err(io::Error::from_raw_os_error(-done));
    }
    Ok(())
}
