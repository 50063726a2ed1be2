//! One interval's histograms out of the maps of `bpf/include/groups.bpf.h`.
//!
//! The BPF side writes into one of two halves; a report switches halves, waits until nobody writes into the old one any
//! more, and reads it at leisure: no latency is counted twice or falls between two reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use host::task::comm_text;
use libbpf_rs::{MapCore, MapFlags};
use loader::maps::{self, possible_cpus};
use plain::Plain;

use crate::BUCKETS;
use crate::Histogram;

/// `struct sum`: count, sum, maximum, name.
const SUM_BYTES: usize = 40;
/// `struct hist`.
const HIST_BYTES: usize = SUM_BYTES + 8 * BUCKETS;

/// The latencies of one group.
pub struct Group<I> {
    /// What tells it from others: the BPF side's `struct group_id`.
    pub id: I,
    /// The task that it was named after, if any.
    pub comm: Arc<str>,
    /// Its latencies.
    pub histogram: Histogram,
}

/// A program on a tracepoint runs for microseconds, with preemption off where the scheduler calls it.
const PROGRAM_ENDS: Duration = Duration::from_millis(20);

/// Until every BPF program that saw the old half has ended.
///
/// This is no RCU grace period, which membarrier(2) would wait for: on an overloaded machine the kernel's RCU thread may have
/// no CPU for half a minute. A program that a hypervisor stops for longer has its event counted two intervals later.
pub fn wait_for_running_programs() {
    std::thread::sleep(PROGRAM_ENDS);
}

/// Takes a histogram of everything out of `wholes`, and clears it there. `index` is the half times the number of such
/// histograms, plus which of them.
///
/// # Errors
///
/// When the map is another one or the kernel refuses.
pub fn take_whole(wholes: &impl MapCore, index: u32) -> Result<Histogram> {
    possible_cpus()?;
    let key = index.to_ne_bytes();
    let per_cpu = wholes
        .lookup_percpu(&key, MapFlags::ANY)
        .context("read histogram")?
        .context("no such histogram")?;
    let mut histogram = Histogram::default();
    for cpu in &per_cpu {
        if cpu.len() != HIST_BYTES {
            bail!("{} bytes where a histogram was expected", cpu.len());
        }
        add_sum(&mut histogram, cpu);
        for (bucket, n) in cpu[SUM_BYTES..].chunks_exact(8).map(word).enumerate() {
            histogram.add(bucket, n);
        }
    }
    let zeros = vec![vec![0; HIST_BYTES]; per_cpu.len()];
    wholes
        .update_percpu(&key, &zeros, MapFlags::ANY)
        .context("clear histogram")?;
    Ok(histogram)
}

/// Takes the groups of half `epoch`, in no order, and removes them.
///
/// # Errors
///
/// When the maps are other ones or the kernel refuses.
pub fn take_groups<I: Plain + Default + Copy>(
    groups: &impl MapCore,
    buckets: &impl MapCore,
    epoch: u32,
) -> Result<Vec<Group<I>>> {
    let mut found: HashMap<Vec<u8>, Group<I>> = HashMap::new();
    // All keys first: iteration starts over when the key that it stands on is gone.
    for bytes in groups.keys().collect::<Vec<_>>() {
        let key: Key<I> = maps::decode(&bytes)?;
        if key.epoch != epoch {
            continue;
        }
        let per_cpu = groups
            .lookup_percpu(&bytes, MapFlags::ANY)
            .context("read group")?
            .unwrap_or_default();
        groups.delete(&bytes).context("clear groups")?;
        found.insert(key.id_bytes().to_vec(), group(key.id, &per_cpu));
    }
    let counts = take_half(buckets, "clear buckets", |key: &Key<I>| key.epoch == epoch)?;
    for (key, count) in counts {
        if let Some(group) = found.get_mut(key.id_bytes()) {
            group.histogram.add(key.bucket as usize, count);
        }
    }
    Ok(found.into_values().collect())
}

/// Takes the entries of one half out of a table; `act`: the words for that where it fails.
///
/// # Errors
///
/// When sizes do not fit the map or the kernel refuses.
pub fn take_half<K, V>(
    map: &impl MapCore,
    act: &'static str,
    is_ours: impl Fn(&K) -> bool,
) -> Result<Vec<(K, V)>>
where
    K: Plain + Default + Clone,
    V: Plain + Default + Clone,
{
    let mut entries = maps::entries::<K, V>(map)?;
    entries.retain(|(key, _)| is_ours(key));
    for (key, _) in &entries {
        // SAFETY: a plain key is as many initialised bytes.
        map.delete(unsafe { plain::as_bytes(key) }).context(act)?;
    }
    Ok(entries)
}

fn group<I>(id: I, per_cpu: &[Vec<u8>]) -> Group<I> {
    let mut histogram = Histogram::default();
    let mut comm: Arc<str> = "".into();
    for cpu in per_cpu.iter().filter(|cpu| cpu.len() >= SUM_BYTES) {
        add_sum(&mut histogram, cpu);
        if comm.is_empty() {
            comm = comm_text(&cpu[24..SUM_BYTES]);
        }
    }
    Group {
        id,
        comm,
        histogram,
    }
}

/// `struct group_key`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Key<I> {
    id: I,
    epoch: u32,
    bucket: u32,
}

// SAFETY: integers only, as `I` is; the BPF side asserts that there is no padding, and reading checks the size.
unsafe impl<I: Plain> Plain for Key<I> {}

impl<I: Plain> Key<I> {
    fn id_bytes(&self) -> &[u8] {
        // SAFETY: plain, hence as many initialised bytes.
        unsafe { plain::as_bytes(&self.id) }
    }
}

fn add_sum(histogram: &mut Histogram, sum: &[u8]) {
    histogram.add_exact(word(sum), word(&sum[8..]), word(&sum[16..]));
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}
