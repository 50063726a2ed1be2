//! Which functions are probed, where they are, and what a probe costs.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bpf::lockstat_hold::LockstatHoldSkel;
use libbpf_rs::{Link, ProgramMut, UprobeOpts};
use trace::maps;
use trace::symbolize::Library;

/// `enum hold_cookie` of the BPF side.
const MUTEX: u64 = 0;
const READ: u64 = 1;
const WRITE: u64 = 2;
const TRY: u64 = 4;

/// What a function does with a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Take,
    GiveBack,
    /// Gives a mutex back and takes it again.
    Wait,
}

const FUNCTIONS: &[(&str, Does, u64)] = &[
    ("pthread_mutex_lock", Does::Take, MUTEX),
    ("pthread_mutex_trylock", Does::Take, MUTEX | TRY),
    ("pthread_mutex_timedlock", Does::Take, MUTEX),
    ("pthread_mutex_clocklock", Does::Take, MUTEX),
    ("pthread_mutex_unlock", Does::GiveBack, MUTEX),
    ("pthread_rwlock_rdlock", Does::Take, READ),
    ("pthread_rwlock_tryrdlock", Does::Take, READ | TRY),
    ("pthread_rwlock_timedrdlock", Does::Take, READ),
    ("pthread_rwlock_clockrdlock", Does::Take, READ),
    ("pthread_rwlock_wrlock", Does::Take, WRITE),
    ("pthread_rwlock_trywrlock", Does::Take, WRITE | TRY),
    ("pthread_rwlock_timedwrlock", Does::Take, WRITE),
    ("pthread_rwlock_clockwrlock", Does::Take, WRITE),
    ("pthread_rwlock_unlock", Does::GiveBack, READ),
    ("pthread_cond_wait", Does::Wait, MUTEX),
    ("pthread_cond_timedwait", Does::Wait, MUTEX),
    ("pthread_cond_clockwait", Does::Wait, MUTEX),
];

/// Pairs of lock and unlock in one measurement of a trap, and measurements, of which the shortest counts.
const PAIRS: u32 = 200;
const MEASUREMENTS: u32 = 5;
/// Traps of a pair: into lock, out of it, into unlock.
const TRAPS_PER_PAIR: u64 = 3;

/// The functions of one process.
pub(crate) struct Probed {
    tgid: u32,
    library: Library,
    offsets: HashMap<String, u64>,
}

/// Finds glibc in each process.
pub(crate) fn find(tgids: &[u32]) -> Result<Vec<Probed>> {
    let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _, _)| *name).collect();
    tgids.iter().map(|tgid| find_in(*tgid, &names)).collect()
}

fn find_in(tgid: u32, names: &[&str]) -> Result<Probed> {
    // Before 2.34 the functions were in a library of their own; statically, they are in the program.
    for part in ["libpthread", "libc"] {
        let is_it = |name: &str| {
            let rest = name.strip_prefix(part).unwrap_or_default();
            rest.starts_with(".so") || rest.starts_with('-')
        };
        for library in Library::mapped(tgid, is_it) {
            let offsets = library.functions(names)?;
            if offsets.contains_key("pthread_mutex_lock") {
                if is_musl(tgid) {
                    bail!("process {tgid} uses musl: --hold knows glibc's locks only");
                }
                return Ok(Probed {
                    tgid,
                    library,
                    offsets,
                });
            }
        }
    }
    let why = match is_musl(tgid) {
        true => "it uses musl",
        false => "statically linked programs and those of Go and Rust have locks of their own",
    };
    bail!("process {tgid} has not mapped glibc, whose locks --hold knows: {why}")
}

fn is_musl(tgid: u32) -> bool {
    !Library::mapped(tgid, |name| name.starts_with("ld-musl")).is_empty()
}

/// Probes in place; dropping them takes them away.
pub(crate) struct Probes(Vec<Link>);

impl Probes {
    pub(crate) fn attach(skel: &LockstatHoldSkel<'_>, libraries: &[Probed]) -> Result<Self> {
        let mut links = Vec::new();
        for probed in libraries {
            let pid = i32::try_from(probed.tgid).context("PID")?;
            for (name, does, cookie) in FUNCTIONS {
                if let Some(offset) = probed.offsets.get(*name) {
                    attach_one(
                        skel,
                        pid,
                        &probed.library,
                        *offset,
                        *does,
                        *cookie,
                        &mut links,
                    )
                    .with_context(|| format!("probe {name} of process {pid}"))?;
                }
            }
        }
        Ok(Self(links))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Returns are probed first: what was entered before its return was probed is never seen to end.
fn attach_one(
    skel: &LockstatHoldSkel<'_>,
    pid: i32,
    library: &Library,
    offset: u64,
    does: Does,
    cookie: u64,
    links: &mut Vec<Link>,
) -> Result<()> {
    let programs = &skel.progs;
    let (entered, returned) = match does {
        Does::Take => (&programs.lock_entered, Some(&programs.lock_returned)),
        Does::GiveBack => (&programs.unlock_entered, None),
        Does::Wait => (&programs.wait_entered, Some(&programs.wait_returned)),
    };
    let offset = usize::try_from(offset).context("offset")?;
    let mut attach = |program: &ProgramMut<'_>, retprobe| -> Result<()> {
        let options = UprobeOpts {
            cookie,
            retprobe,
            ..UprobeOpts::default()
        };
        links.push(program.attach_uprobe_with_opts(pid, library.probe_path(), offset, options)?);
        Ok(())
    };
    if let Some(returned) = returned {
        attach(returned, true)?;
    }
    attach(entered, false)
}

/// Traps so far.
pub(crate) fn hits(skel: &LockstatHoldSkel<'_>) -> Result<u64> {
    Ok(maps::per_cpu::<u64>(&skel.maps.hits, 0)?.iter().sum())
}

/// What one trap costs on this machine, ns: measured on ourselves, with the very programs and functions.
pub(crate) fn trap_ns(skel: &LockstatHoldSkel<'_>) -> Result<u64> {
    let own = find(&[std::process::id()])?;
    let without = pair_ns();
    let probes = Probes::attach(skel, &own)?;
    let with = pair_ns();
    drop(probes);
    Ok(with.saturating_sub(without) / TRAPS_PER_PAIR)
}

fn pair_ns() -> u64 {
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let mut measure = || {
        let start = Instant::now();
        for _ in 0..PAIRS {
            // SAFETY: a valid mutex that nobody else knows, locked and unlocked in turn.
            unsafe {
                libc::pthread_mutex_lock(&raw mut mutex);
                libc::pthread_mutex_unlock(&raw mut mutex);
            }
        }
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) / u64::from(PAIRS)
    };
    (0..MEASUREMENTS).map(|_| measure()).min().unwrap_or(0)
}
