//! Whole maps as typed pairs.
//!
//! libbpf-rs's batch look-up takes a short batch for the last one and loses entries (0.27), and refuses per-CPU maps;
//! this loop goes on until the kernel says that there is no more.

use std::mem::size_of;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use libbpf_rs::MapCore;
use plain::Plain;

/// Entries asked for at a time; grows when one bucket of the map holds more.
const BATCH: usize = 4096;

/// Reads every entry of a hash map.
///
/// # Errors
///
/// When sizes do not fit the map or the kernel refuses.
pub fn entries<K: Plain + Default + Clone, V: Plain + Default + Clone>(
    map: &impl MapCore,
) -> Result<Vec<(K, V)>> {
    batches(map, libbpf_sys::bpf_map_lookup_batch)
}

/// Reads and removes every entry of a hash map.
///
/// # Errors
///
/// When sizes do not fit the map or the kernel refuses.
pub fn drain<K: Plain + Default + Clone, V: Plain + Default + Clone>(
    map: &impl MapCore,
) -> Result<Vec<(K, V)>> {
    batches(map, libbpf_sys::bpf_map_lookup_and_delete_batch)
}

/// Number of CPUs that there may ever be: per-CPU maps have a value for each.
///
/// # Errors
///
/// When the kernel's list cannot be read.
pub fn possible_cpus() -> Result<usize> {
    libbpf_rs::num_possible_cpus().context("read /sys/devices/system/cpu/possible")
}

/// Reads a one-entry-per-CPU array's entry at `index` on every CPU.
///
/// # Errors
///
/// When the map is not per CPU or `V` has another size.
pub fn per_cpu<V: Plain + Default>(map: &impl MapCore, index: u32) -> Result<Vec<V>> {
    possible_cpus()?;
    let values = map
        .lookup_percpu(&index.to_ne_bytes(), libbpf_rs::MapFlags::ANY)
        .context("read per-CPU array")?
        .context("per-CPU array has no such entry")?;
    values.iter().map(|bytes| decode(bytes)).collect()
}

/// Zeroes a one-entry-per-CPU array's entry at `index` on every CPU.
///
/// # Errors
///
/// When the map is not per CPU or the kernel refuses.
pub fn clear_per_cpu(map: &impl MapCore, index: u32) -> Result<()> {
    let zeros = vec![vec![0; map.value_size() as usize]; possible_cpus()?];
    map.update_percpu(&index.to_ne_bytes(), &zeros, libbpf_rs::MapFlags::ANY)
        .context("clear per-CPU array")
}

/// Reads every entry of a per-CPU hash map: a value per possible CPU.
///
/// # Errors
///
/// When sizes do not fit the map or the kernel refuses.
pub fn per_cpu_entries<K: Plain + Default, V: Plain + Default>(
    map: &impl MapCore,
) -> Result<Vec<(K, Vec<V>)>> {
    possible_cpus()?;
    let mut all = Vec::new();
    for key in map.keys() {
        let values = map
            .lookup_percpu(&key, libbpf_rs::MapFlags::ANY)
            .context("read per-CPU map")?;
        let values: Result<Vec<V>> = values
            .unwrap_or_default()
            .iter()
            .map(|bytes| decode(bytes))
            .collect();
        all.push((decode(&key)?, values?));
    }
    Ok(all)
}

/// Copies a BPF-side struct out of bytes of any alignment.
///
/// # Errors
///
/// When there are fewer bytes than the struct has.
pub fn decode<V: Plain + Default>(bytes: &[u8]) -> Result<V> {
    let mut value = V::default();
    if plain::copy_from_bytes(&mut value, bytes).is_err() {
        bail!(
            "{} bytes where {} were expected",
            bytes.len(),
            size_of::<V>()
        );
    }
    Ok(value)
}

type BatchCall = unsafe extern "C" fn(
    i32,
    *mut std::ffi::c_void,
    *mut std::ffi::c_void,
    *mut std::ffi::c_void,
    *mut std::ffi::c_void,
    *mut u32,
    *const libbpf_sys::bpf_map_batch_opts,
) -> i32;

fn batches<K: Plain + Default + Clone, V: Plain + Default + Clone>(
    map: &impl MapCore,
    call: BatchCall,
) -> Result<Vec<(K, V)>> {
    if map.key_size() as usize != size_of::<K>() || map.value_size() as usize != size_of::<V>() {
        bail!(
            "map {} does not hold the types asked for",
            map.name().to_string_lossy()
        );
    }
    let fd = map.as_fd().as_raw_fd();
    let mut all = Vec::new();
    let mut batch = BATCH;
    // The kernel's cursor is as wide as the key, at least 4 bytes.
    let mut cursor = vec![0_u8; size_of::<K>().max(8)];
    let mut next = cursor.clone();
    let mut first = true;
    loop {
        let mut keys = vec![K::default(); batch];
        let mut values = vec![V::default(); batch];
        let mut count = u32::try_from(batch).expect("batches are small");
        let start = if first {
            std::ptr::null_mut()
        } else {
            cursor.as_mut_ptr().cast()
        };
        // SAFETY: both vectors hold `count` elements of the sizes checked above; cursors are wide enough.
        let status = unsafe {
            call(
                fd,
                start,
                next.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        if status == -libc::ENOSPC {
            batch *= 2;
            continue;
        }
        if status != 0 && status != -libc::ENOENT {
            let cause = std::io::Error::from_raw_os_error(-status);
            return Err(cause)
                .with_context(|| format!("read map {}", map.name().to_string_lossy()));
        }
        let count = count as usize;
        all.extend(keys.into_iter().zip(values).take(count));
        if status == -libc::ENOENT {
            return Ok(all);
        }
        std::mem::swap(&mut cursor, &mut next);
        first = false;
    }
}
