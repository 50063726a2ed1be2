//! Skeletons of the BPF programs, one module per tool; types come from the C side's BTF.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// An object as the build has packed it.
fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut object = Vec::new();
    let unpacked = ZlibDecoder::new(packed).read_to_end(&mut object);
    unpacked.expect("packed by the build");
    object
}

/// The generated skeleton of one tool, with the lints that generated code cannot meet switched off.
macro_rules! skeleton {
    ($name:ident, $about:literal) => {
        #[doc = $about]
        #[allow(
            missing_docs,
            unreachable_pub,
            clippy::all,
            clippy::undocumented_unsafe_blocks,
            clippy::unwrap_used,
            clippy::wildcard_imports,
            clippy::too_many_lines,
            clippy::redundant_closure_for_method_calls
        )]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".skel.rs"));
        }
    };
}

/// A skeleton's `struct target_config`, filled from anything with the fields of `session::targets::Settings`.
///
/// Every skeleton has a type of its own for the shared C struct; a field missing here does not compile.
#[macro_export]
macro_rules! target_config {
    ($types:path, $settings:expr) => {{
        use $types as types;
        let settings = $settings;
        types::target_config {
            mode: types::target_mode(settings.mode as u32),
            pid_namespace: settings.pid_namespace,
            own_tgid: settings.own_tgid,
            by_tgid: u32::from(!settings.tgids.is_empty()),
            by_tid: u32::from(!settings.tids.is_empty()),
            by_comm: u32::from(settings.comm.is_some()),
            follow: u32::from(settings.follow),
            __pad_28: [0; 4],
            cgroup_id: settings.cgroup_id,
            own_since_ns: settings.own_since_ns,
        }
    }};
}

/// A skeleton's `struct glob`, from an `Option` of anything with the fields of `session::glob::Glob`.
#[macro_export]
macro_rules! comm_glob {
    ($types:path, $glob:expr) => {{
        use $types as types;
        match $glob {
            Some(glob) => types::glob {
                accept: glob.accept,
                star: glob.star,
                final_mask: glob.final_mask,
            },
            None => types::glob::default(),
        }
    }};
}

/// A skeleton's maps of unwind tables, as a `stacks::unwind::Maps`.
#[macro_export]
macro_rules! unwind_maps {
    ($skel:expr) => {
        stacks::unwind::Maps {
            chunks: libbpf_rs::MapHandle::try_from(&$skel.maps.unwind_chunks)?,
            rules: libbpf_rs::MapHandle::try_from(&$skel.maps.unwind_rules)?,
            processes: libbpf_rs::MapHandle::try_from(&$skel.maps.unwind_processes)?,
            files: libbpf_rs::MapHandle::try_from(&$skel.maps.unwind_files)?,
            pythons: libbpf_rs::MapHandle::try_from(&$skel.maps.pythons)?,
        }
    };
}

/// Before loading: unwind tables that another skeleton has, if there are some to be shared.
#[macro_export]
macro_rules! share_unwind_maps {
    ($open:expr, $tables:expr) => {
        if let Some(tables) = $tables {
            use std::os::fd::AsFd;
            let maps = &mut $open.maps;
            maps.unwind_chunks.reuse_fd(tables.chunks.as_fd())?;
            maps.unwind_rules.reuse_fd(tables.rules.as_fd())?;
            maps.unwind_processes.reuse_fd(tables.processes.as_fd())?;
            maps.unwind_files.reuse_fd(tables.files.as_fd())?;
            maps.pythons.reuse_fd(tables.pythons.as_fd())?;
        }
    };
}

/// Before loading: how user stacks are walked.
#[macro_export]
macro_rules! unwind_by {
    ($rodata:expr, $method:expr) => {{
        $rodata.unwind_mode = $method as u32;
        $rodata.code_mask = host::code_mask();
    }};
}

/// Before loading: where a skeleton keeps its targets' state, in task storage or in a hash table (per_task.bpf.h); only
/// that map is made. The program `task_freed` belongs to the hash table.
#[macro_export]
macro_rules! keep_members {
    ($open:expr, $in_hash:expr) => {{
        let in_hash: bool = $in_hash;
        $open.maps.members.set_autocreate(!in_hash)?;
        $open.maps.hashed_members.set_autocreate(in_hash)?;
        loader::section($open.maps.rodata_data.as_deref_mut(), ".rodata")?.members_in_hash =
            in_hash.into();
    }};
}

/// Lets map keys and values of a skeleton be copied from bytes.
macro_rules! plain {
    ($module:ident: $($name:ident),+) => {
        $(
            // SAFETY: generated from BTF as `repr(C)` integers and bytes; every bit pattern is valid.
            unsafe impl plain::Plain for $module::types::$name {}
        )+
    };
}

skeleton!(biolatency, "Latency of block I/O.");
skeleton!(lockstat, "Waits for locks.");
skeleton!(
    lockstat_now,
    "What every thread is doing at this instant, and for whom it waits."
);
skeleton!(offcputime, "Time off the CPU, by stack.");
skeleton!(
    pressure,
    "Time lost for want of a CPU, of memory or of I/O."
);
skeleton!(profile, "Stacks of whoever is running when an event fires.");
skeleton!(runqlat, "Waits for a CPU.");
skeleton!(syscount, "System calls.");

plain!(biolatency: group_id, disk_key, disk, disk_epoch, disk_sum, error_key, slow_io, started);
plain!(lockstat: lock_id, lock_key, lock_sum, lock_name, waiter_key, waiter_value, holder_key, holder_value, futex_lock, server_process, file_path, open_futex, java_class_key, java_machine, java_number_key, java_thread, java_thread_key);
plain!(lockstat_now: now_thread);
plain!(offcputime: offcputime_key, offcputime_value, offcputime_totals, left_out_sums, open_phase, process_time, endpoint, file_path, polled_words, told_mark, told_row, told_wait);
plain!(pressure: task_stock, exited_key, stalls, stall_stack);
plain!(profile: moment, profile_key, profile_value, profile_totals);
plain!(
    runqlat: group_id, culprit_key, culprit, gone_name, quota, slow_wait, open_wait, ready_thread, runqlat_totals
);
plain!(syscount: group_id, group_key, syscount_totals);
