//! `-s`: the heaviest stacks of a lock's waiters and holders.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use profile::escape::terminal;
use profile::frame::Frame;
use profile::rank::Rank;
use profile::text::{comm, cut};
use profile::units;
use stacks::StackTable;
use symbols::interrupt_part;

use crate::lockstat::row::{INTERRUPT, LockRow, Waiter};

/// Columns of a function's name.
const NAME: usize = 66;

/// Threads in one place.
#[derive(Default)]
struct Place {
    comm: Arc<str>,
    threads: Vec<u32>,
    waits: u64,
    ns: u64,
}

/// Writes the `top` heaviest of each, leaf first.
pub(crate) fn write(
    row: &LockRow,
    top: usize,
    stacks: &mut StackTable,
    out: &mut impl Write,
) -> io::Result<()> {
    if top == 0 {
        return Ok(());
    }
    let (walked, short): (Vec<&Waiter>, Vec<&Waiter>) = row
        .waiters
        .iter()
        .partition(|waiter| waiter.kernel | waiter.user != 0);
    let waiters = walked.into_iter().map(|waiter| {
        let place = if waiter.in_interrupt {
            (waiter.kernel, 0, INTERRUPT.into())
        } else {
            (waiter.kernel, waiter.user, Arc::clone(&waiter.task.comm))
        };
        (place, waiter.task.tid, waiter.count, waiter.total_ns)
    });
    for ((kernel, user, _), place) in heaviest(waiters, top) {
        let kernel = stacks.kernel_names(kernel);
        let own = interrupt_part(&kernel).filter(|_| &*place.comm == INTERRUPT);
        let parts = [own.unwrap_or(&kernel), &stacks.user_names(user)];
        write_place("waited", &place, &parts, out)?;
    }
    let short_ns: u64 = short.iter().map(|waiter| waiter.total_ns).sum();
    if short_ns > 0 {
        let waits = units::counted(short.iter().map(|waiter| waiter.count).sum(), "waits");
        writeln!(
            out,
            "{:>12}no stack (too short for one, or lost): {waits}, {}",
            "",
            units::duration(short_ns)
        )?;
    }
    let holders = row.holders.iter().filter(|holder| holder.stack != 0);
    let holders = holders.map(|holder| {
        let place = (holder.stack, 0, Arc::clone(&holder.task.comm));
        (place, holder.task.tid, holder.waits, holder.caused_ns)
    });
    for ((kernel, _, _), place) in heaviest(holders, top) {
        write_place("caused", &place, &[&stacks.kernel_names(kernel)], out)?;
    }
    write_releasers(row, top, stacks, out)
}

/// Whoever ended the waits, where that is known.
fn write_releasers(
    row: &LockRow,
    top: usize,
    stacks: &mut StackTable,
    out: &mut impl Write,
) -> io::Result<()> {
    let released = row.waiters.iter().filter(|waiter| waiter.waker != 0);
    let places = released.filter_map(|waiter| {
        let task = stacks.waker(waiter.waker)?.task.clone()?;
        let place = (waiter.waker, 0, task.comm);
        Some((place, task.tid, waiter.count, waiter.total_ns))
    });
    for ((id, _, _), place) in heaviest(places.collect::<Vec<_>>().into_iter(), top) {
        if let Some(waker) = stacks.waker(id) {
            write_place("ended", &place, &[&waker.kernel, &waker.user], out)?;
        }
    }
    Ok(())
}

/// Kernel and user stack, name of the thread.
type Key = (u64, u64, Arc<str>);

fn heaviest(threads: impl Iterator<Item = (Key, u32, u64, u64)>, top: usize) -> Vec<(Key, Place)> {
    let mut places: HashMap<Key, Place> = HashMap::new();
    for (key, tid, waits, ns) in threads {
        let place = places.entry(key.clone()).or_default();
        place.comm = key.2;
        if !place.threads.contains(&tid) {
            place.threads.push(tid);
        }
        place.waits += waits;
        place.ns += ns;
    }
    let mut places: Vec<(Key, Place)> = places.into_iter().collect();
    places.rank_by_key(|(key, place)| (Reverse(place.ns), key.clone()));
    places.truncate(top);
    places
}

fn write_place(
    verb: &str,
    place: &Place,
    parts: &[&[Frame]],
    out: &mut impl Write,
) -> io::Result<()> {
    let who = match &place.threads[..] {
        [tid] => format!("{} {tid}", comm(&place.comm)),
        threads => format!("{}, {} threads", comm(&place.comm), threads.len()),
    };
    let waits = units::counted(place.waits, "waits");
    writeln!(
        out,
        "{:>12}{verb} {}, {waits}: {who}",
        "",
        units::duration(place.ns)
    )?;
    for frame in parts.iter().flat_map(|frames| frames.iter().rev()) {
        writeln!(out, "{:>14}{}", "", cut(&terminal(&frame.name), NAME))?;
    }
    Ok(())
}
