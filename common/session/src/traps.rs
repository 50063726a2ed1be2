//! Traps on functions: how they are asked for, and what one costs on this machine: 1 us on bare metal, tens of them in nested virtual
//! machines.

use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use libbpf_rs::Link;
use symbols::own_file_offset;

/// Measurements, of which the fastest counts: others were interrupted.
const MEASUREMENTS: u32 = 5;
/// Calls in each.
const CALLS: u32 = 50;

/// The file and the function of `PATH:FUNCTION`, or of a function alone. Names of C++ and Rust have pairs of colons.
pub fn file_and_function(place: &str) -> (Option<&str>, &str) {
    let is_single = |(at, _): &(usize, &str)| {
        let (before, after) = (&place[..*at], &place[at + 1..]);
        // `{shim:vtable#0}` is a part of a name.
        let is_in_braces = after
            .split('{')
            .next()
            .is_some_and(|rest| rest.contains('}'));
        !before.ends_with(':') && !after.starts_with(':') && !is_in_braces
    };
    let at = place.rmatch_indices(':').find(is_single);
    match at {
        Some((at, _)) => (Some(&place[..at]), &place[at + 1..]),
        None => (None, place),
    }
}

/// Measures on a function of our own what a run of a program costs the thread that runs into it, ns. `put` puts the program there, for
/// a process, into a file at an offset; `runs` counts its runs. In another thread: uprobe_multi before 46ba0e49b642 (6.10) sees but one.
/// `None`: it did not run.
///
/// # Errors
///
/// It cannot be put there.
pub fn trap_ns(
    put: impl FnOnce(i32, &Path, usize) -> libbpf_rs::Result<Link>,
    runs: impl Fn() -> u64,
) -> Result<Option<u64>> {
    let offset = own_file_offset(probed as *const () as u64)
        .context("measure a trap: our own function is in no file")?;
    let offset = usize::try_from(offset).context("file offset")?;
    let own = i32::try_from(std::process::id()).context("PID")?;
    let without_ns = in_another_thread();
    let before = runs();
    let link = put(own, Path::new("/proc/self/exe"), offset);
    let link = link.context("measure a trap: attach to our own function")?;
    let with_ns = in_another_thread();
    drop(link);
    let has_run = runs() - before >= u64::from(MEASUREMENTS * CALLS);
    Ok(has_run.then(|| with_ns.saturating_sub(without_ns)))
}

fn in_another_thread() -> u64 {
    thread::spawn(fastest_ns).join().unwrap_or(0)
}

#[inline(never)]
extern "C" fn probed(n: u32) -> u32 {
    black_box(n) + 1
}

/// A call's.
fn fastest_ns() -> u64 {
    let measured = (0..MEASUREMENTS).map(|_| {
        let start = Instant::now();
        for n in 0..CALLS {
            black_box(probed(black_box(n)));
        }
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) / u64::from(CALLS)
    });
    measured.min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_before_a_single_colon() {
        for (place, path, function) in [
            ("malloc", None, "malloc"),
            ("libc:malloc", Some("libc"), "malloc"),
            ("shop::Server::handle", None, "shop::Server::handle"),
            ("/bin/a:b:shop::sum", Some("/bin/a:b"), "shop::sum"),
            (
                "shop:sum::{shim:vtable#0}",
                Some("shop"),
                "sum::{shim:vtable#0}",
            ),
            (":malloc", Some(""), "malloc"),
            ("libc:", Some("libc"), ""),
        ] {
            assert_eq!(file_and_function(place), (path, function), "{place}");
        }
    }
}
