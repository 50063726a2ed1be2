//! Which functions are probed, where they are, and what a probe costs.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bpf::lockstat_hold::LockstatHoldSkel;
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts};
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

/// Pairs of lock and unlock in one measurement of a trap: shorter than a time slice; and measurements, of which the shortest
/// counts.
const PAIRS: u32 = 25;
const MEASUREMENTS: u32 = 40;
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

/// How probes are put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// One link to many functions, in one go (89ae89f53d20, 6.6).
    Multi,
    /// One by one, each with a grace period of its own when it is taken away.
    Single,
}

impl Method {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Multi => "at once (uprobe_multi)",
            Self::Single => "one by one (uprobe)",
        }
    }
}

/// Probes in place; dropping them takes them away.
pub(crate) struct Probes {
    links: Vec<Link>,
    probes: usize,
}

/// The functions that one program is for.
struct Batch<'a> {
    single: &'a ProgramMut<'a>,
    multi: &'a ProgramMut<'a>,
    does: Does,
    is_return: bool,
}

impl Probes {
    /// Returns are probed first: what was entered before its return was probed is never seen to end.
    pub(crate) fn attach(
        skel: &LockstatHoldSkel<'_>,
        libraries: &[Probed],
        method: Method,
    ) -> Result<Self> {
        let all = &skel.progs;
        let batch = |single, multi, does, is_return| Batch {
            single,
            multi,
            does,
            is_return,
        };
        let batches = [
            batch(
                &all.lock_returned,
                &all.lock_returned_multi,
                Does::Take,
                true,
            ),
            batch(
                &all.wait_returned,
                &all.wait_returned_multi,
                Does::Wait,
                true,
            ),
            batch(
                &all.lock_entered,
                &all.lock_entered_multi,
                Does::Take,
                false,
            ),
            batch(
                &all.wait_entered,
                &all.wait_entered_multi,
                Does::Wait,
                false,
            ),
            batch(
                &all.unlock_entered,
                &all.unlock_entered_multi,
                Does::GiveBack,
                false,
            ),
        ];
        let mut probes = Self {
            links: Vec::new(),
            probes: 0,
        };
        for probed in libraries {
            for batch in &batches {
                batch
                    .attach(probed, method, &mut probes)
                    .with_context(|| format!("probe the locks of process {}", probed.tgid))?;
            }
        }
        Ok(probes)
    }

    pub(crate) fn len(&self) -> usize {
        self.probes
    }
}

impl Batch<'_> {
    fn attach(&self, probed: &Probed, method: Method, probes: &mut Probes) -> Result<()> {
        let pid = i32::try_from(probed.tgid).context("PID")?;
        let path = probed.library.probe_path();
        let mut offsets = Vec::new();
        let mut cookies = Vec::new();
        for (name, _, cookie) in FUNCTIONS.iter().filter(|(_, does, _)| *does == self.does) {
            if let Some(offset) = probed.offsets.get(*name) {
                offsets.push(usize::try_from(*offset).context("offset")?);
                cookies.push(*cookie);
            }
        }
        probes.probes += offsets.len();
        if method == Method::Multi {
            let options = UprobeMultiOpts {
                offsets,
                cookies,
                retprobe: self.is_return,
                ..UprobeMultiOpts::default()
            };
            let link = self
                .multi
                .attach_uprobe_multi_with_opts(pid, path, "", options)?;
            probes.links.push(link);
            return Ok(());
        }
        for (offset, cookie) in offsets.into_iter().zip(cookies) {
            let options = UprobeOpts {
                cookie,
                retprobe: self.is_return,
                ..UprobeOpts::default()
            };
            let link = self
                .single
                .attach_uprobe_with_opts(pid, &path, offset, options)?;
            probes.links.push(link);
        }
        Ok(())
    }
}

/// Takes breakpoints out of all processes that no probe is for, by a probe on ourselves at each place.
pub(crate) fn sweep(skel: &LockstatHoldSkel<'_>, libraries: &[Probed]) -> Result<()> {
    let own = i32::try_from(std::process::id()).context("PID")?;
    for probed in libraries {
        let offsets = probed.offsets.values().copied().map(usize::try_from);
        let options = UprobeMultiOpts {
            offsets: offsets.collect::<Result<_, _>>().context("offset")?,
            ..UprobeMultiOpts::default()
        };
        let path = probed.library.probe_path();
        let nothing = &skel.progs.nothing_multi;
        drop(nothing.attach_uprobe_multi_with_opts(own, path, "", options)?);
    }
    Ok(())
}

/// Traps so far.
pub(crate) fn hits(skel: &LockstatHoldSkel<'_>) -> Result<u64> {
    Ok(maps::per_cpu::<u64>(&skel.maps.hits, 0)?.iter().sum())
}

/// How probes are put in place on this machine, and what one trap costs, ns: measured on ourselves, with the very programs and
/// functions.
///
/// Kernels before 46ba0e49b642 (6.10) let several probes at once see but one thread of a process: where they miss a
/// thread's locks, single ones are used.
pub(crate) fn measure(skel: &LockstatHoldSkel<'_>) -> Result<(Method, u64)> {
    let own = find(&[std::process::id()])?;
    let without = in_another_thread();
    for method in [Method::Multi, Method::Single] {
        let before = hits(skel)?;
        let probes = match Probes::attach(skel, &own, method) {
            Ok(probes) => probes,
            Err(_) if method == Method::Multi => continue,
            Err(err) => return Err(err),
        };
        let with = in_another_thread();
        drop(probes);
        let traps = hits(skel)? - before;
        if traps >= TRAPS_PER_PAIR * u64::from(PAIRS * MEASUREMENTS) {
            return Ok((method, with.saturating_sub(without) / TRAPS_PER_PAIR));
        }
    }
    bail!("probes on this process's own locks are not hit: uprobes do not work here")
}

fn in_another_thread() -> u64 {
    std::thread::spawn(pair_ns).join().unwrap_or(0)
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
