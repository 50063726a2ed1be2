//! What the locks of a snapshot are called, once nothing is in a hurry any more.

use std::collections::{HashMap, HashSet};

use host::clock::monotonic_ns;
use profile::frame::Frame;
use symbols::places::Address;
use symbols::places::Places;

use crate::lockstat::futex::{Rules, calls, first_caller};

use super::lock::{Identity, Wait, Waited};
use super::thread::{Stack, Threads};

/// Names locks, and finds out which of them are the same in several processes.
///
/// Nothing is looked up in the address spaces that are `locked`.
pub(crate) fn name(
    waits: &mut [Wait],
    threads: &Threads,
    stacks: &HashMap<usize, Stack>,
    locked: &HashSet<u64>,
) {
    let wanted = |wait: &&Wait| {
        let is_locked = locked.contains(&threads.all[wait.waiter].space);
        !is_locked && wait.kind.is_lock() && wait.name.is_empty()
    };
    let addresses: Vec<Address> = (0..)
        .zip(waits.iter())
        .filter(|(_, wait)| wanted(wait))
        .filter_map(|(id, wait)| {
            let Identity::Private { address, .. } = wait.lock else {
                return None;
            };
            let tgid = threads.all[wait.waiter].task.tgid;
            Some(Address {
                id,
                tgid,
                address,
                time_ns: monotonic_ns(),
            })
        })
        .collect();
    let mut places = Places::default();
    places.learn(&addresses, None);
    for address in addresses {
        let wait = &mut waits[usize::try_from(address.id).expect("an index")];
        let place = places.get(address.id);
        wait.name = match place {
            Some(place) if place.is_variable => place.name.clone(),
            Some(place) => format!("{} {:#x}", place.name, address.address),
            None => format!("{:#x}", address.address),
        };
        if let Some(at) = place.and_then(|place| place.file)
            && !wait.private
        {
            wait.lock = Identity::Shared(at);
        }
    }
    // What has no name of its own is known by who takes it.
    for wait in waits.iter_mut().filter(|wait| wait.name.is_empty()) {
        let caller = stacks.get(&wait.waiter).and_then(|stack| match wait.kind {
            Waited::Kernel(_) => {
                crate::lockstat::kernel::outside(&stack.kernel).map(|name| name.to_string())
            }
            Waited::Program(_)
            | Waited::Python
            | Waited::Java
            | Waited::JavaLock
            | Waited::Server(_) => outside_library(&stack.user),
        });
        if let Some(caller) = caller.filter(|_| wait.kind.is_lock()) {
            wait.name = format!("in {caller}");
        }
    }
}

fn outside_library(frames: &[Frame]) -> Option<String> {
    first_caller(Rules::ours(), calls(frames)).map(str::to_owned)
}
