//! One log in the kernel.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, ProgramImpl};
use loader::tracefs;
use memmap2::{Mmap, MmapOptions};
use perf_event_open_sys::bindings::{PERF_COUNT_SW_CPU_CLOCK, PERF_TYPE_SOFTWARE, perf_event_attr};

use crate::event::Event;
use crate::skeleton::{OracleSkel, OracleSkelBuilder, types};

/// Of all CPUs together: a minute of ordinary events, or a few seconds of the heaviest.
const EVENTS: usize = 3 << 20;
const EVENT: usize = size_of::<types::event>();
/// A program that has begun an event when the log ends is done with it long before.
const PATIENCE: Duration = Duration::from_secs(1);

/// A part of the kernel whose events can be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Switches and wakeups.
    Scheduler,
    /// Switches alone.
    Switches,
    /// Who is about to be made runnable.
    Wakings,
    /// System calls.
    Calls,
    /// The same for tools that have an eye on the calls in which threads wait for locks, each by its own event.
    LockCalls,
    /// Waits for locks of the kernel's (Linux 5.19).
    Locks,
    /// Block requests (Linux 6.5).
    Requests,
    /// A clock of each CPU's, see `Log::tick`.
    Ticks,
}

impl Engine {
    /// Its programs in `bpf/`.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Scheduler => &["log_switch", "log_wakeup", "log_wakeup_new"],
            Self::Switches => &["log_switch"],
            Self::Wakings => &["log_waking"],
            Self::Calls => &["log_call", "log_return"],
            Self::LockCalls => &[
                "log_call",
                "log_return",
                "log_call_apart",
                "log_return_apart",
            ],
            Self::Locks => &["log_contention", "log_contended"],
            Self::Ticks => &["log_tick"],
            Self::Requests => &["log_started", "log_issued", "log_completed", "log_done"],
        }
    }
}

/// An attached log.
pub struct Log {
    skel: OracleSkel<'static>,
    /// Links to clocks, and to calls' own events.
    links: Vec<Link>,
    engines: &'static [Engine],
    process: Option<u32>,
    /// In the kernel's hands: a part for each CPU.
    events: Mmap,
    cpus: usize,
    of_cpu: usize,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn attach(engines: &'static [Engine], process: Option<u32>) -> Result<Self> {
        // A test makes two, and ends.
        let storage = Box::leak(Box::new(MaybeUninit::<OpenObject>::uninit()));
        let mut open = OracleSkelBuilder::default().open(storage)?;
        for mut program in open.open_object_mut().progs_mut() {
            let is_wanted = |name: &&str| program.name() == *name;
            let mut wanted = engines.iter().flat_map(|engine| engine.programs());
            let autoload = wanted.any(is_wanted);
            program.set_autoload(autoload);
        }
        let cpus = cpus()?;
        let of_cpu = EVENTS / cpus;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.context("no .rodata")?;
        rodata.events_of_cpu = u32::try_from(of_cpu)?;
        rodata.process = process.unwrap_or(0);
        open.maps.events.set_max_entries(u32::try_from(EVENTS)?)?;
        open.progs.log_call_apart.set_autoattach(false);
        open.progs.log_return_apart.set_autoattach(false);
        let mut skel = open.load().context("load the oracle")?;
        let fd = skel.maps.events.as_fd().as_raw_fd();
        // SAFETY: the map lives as long as its mapping; what programs write there is read with care.
        let events = unsafe { MmapOptions::new().len(EVENTS * EVENT).map(fd) };
        skel.attach().context("attach the oracle")?;
        let links = match engines.contains(&Engine::LockCalls) {
            true => attach_apart(&mut skel)?,
            false => Vec::new(),
        };
        Ok(Self {
            skel,
            links,
            engines,
            process,
            events: events.context("map the oracle's log")?,
            cpus,
            of_cpu,
        })
    }

    /// A second one of the same events.
    pub(crate) fn again(&self) -> Result<Self> {
        Self::attach(self.engines, self.process)
    }

    pub(crate) fn begin(&mut self) -> Result<()> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.context("no .bss")?.is_on = 1;
        Ok(())
    }

    /// Lets the clock of each CPU that is online tick, once in so many ns.
    pub(crate) fn tick(&mut self, period_ns: u64) -> Result<()> {
        let mut attr = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            size: u32::try_from(size_of::<perf_event_attr>())?,
            config: u64::from(PERF_COUNT_SW_CPU_CLOCK),
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = period_ns;
        for cpu in host::perf::online_cpus() {
            let clock = host::perf::open(&attr, -1, cpu).context("open a CPU's clock")?;
            // The link has the descriptor from here on.
            let link = self
                .skel
                .progs
                .log_tick
                .attach_perf_event(clock.into_raw_fd());
            self.links.push(link.context("attach to a CPU's clock")?);
        }
        Ok(())
    }

    /// See [`Logs::missed`](crate::Logs::missed).
    pub(crate) fn missed(&self) -> Result<u64> {
        let mut missed = 0;
        for program in self.skel.object().progs().filter(ProgramImpl::autoload) {
            let mut info = libbpf_sys::bpf_prog_info::default();
            let mut bytes = u32::try_from(size_of_val(&info))?;
            let fd = program.as_fd().as_raw_fd();
            // SAFETY: `info` is zeroed and `bytes` is its size.
            let status =
                unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut bytes) };
            ensure!(status == 0, "no figures of the oracle's programs");
            missed += info.recursion_misses;
        }
        Ok(missed)
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.context("no .bss")?.is_on = 0;
        Ok(())
    }

    /// Of one that has ended: its events by time.
    pub(crate) fn take(self) -> Result<Vec<Event>> {
        let bss = self.skel.maps.bss_data.as_deref();
        let noted = bss.context("no .bss")?.noted;
        let mut events = Vec::new();
        for (cpu, noted) in noted.into_iter().enumerate() {
            let noted = usize::try_from(noted)?;
            // One that came online since has no part.
            let room = if cpu < self.cpus { self.of_cpu } else { 0 };
            ensure!(noted <= room, "the oracle lost events of CPU {cpu}");
            for at in 0..noted {
                events.push(Event::parse(&self.finished(cpu * self.of_cpu + at)?)?);
            }
        }
        // Each CPU's are in order, but for those of interrupts upon the log.
        events.sort_by_key(|event| event.ns);
        Ok(events)
    }

    /// An event when it is whole.
    fn finished(&self, at: usize) -> Result<types::event> {
        let begin = Instant::now();
        // SAFETY: inside the mapping.
        let place = unsafe { self.events.as_ptr().add(at * EVENT) }.cast::<types::event>();
        loop {
            // SAFETY: inside the mapping, which is aligned for it. A program writes the kind last.
            let kind = unsafe { std::ptr::read_volatile(&raw const (*place).kind) };
            if kind != 0 {
                fence(Ordering::Acquire);
                // SAFETY: as above, and any bytes are an event. Nobody writes to it any more.
                return Ok(unsafe { std::ptr::read_volatile(place) });
            }
            if begin.elapsed() > PATIENCE {
                bail!("the oracle has not finished an event");
            }
            thread::yield_now();
        }
    }
}

/// Calls in which threads wait for locks of programs, by number.
const LOCK_CALLS: [(&str, usize); 9] = [
    ("futex", libc::SYS_futex as usize),
    ("futex_waitv", libc::SYS_futex_waitv as usize),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("restart_syscall", libc::SYS_restart_syscall as usize),
    ("flock", libc::SYS_flock as usize),
    ("fcntl", libc::SYS_fcntl as usize),
    ("semop", libc::SYS_semop as usize),
    ("semtimedop", libc::SYS_semtimedop as usize),
];

/// Attaches to those calls' own events that the kernel has.
fn attach_apart(skel: &mut OracleSkel<'_>) -> Result<Vec<Link>> {
    const CATEGORY: &str = "syscalls";
    let mut links = Vec::new();
    let bss = skel.maps.bss_data.as_deref_mut().context("no .bss")?;
    for (call, number) in LOCK_CALLS {
        let name = format!("sys_exit_{call}");
        if tracefs::id(CATEGORY, &name).is_ok() {
            links.push(tracefs::attach(
                &skel.progs.log_return_apart,
                CATEGORY,
                &name,
            )?);
            bss.returns_apart[number] = 1;
        }
    }
    links.push(tracefs::attach(
        &skel.progs.log_call_apart,
        CATEGORY,
        "sys_enter_futex",
    )?);
    bss.enters_apart[LOCK_CALLS[0].1] = 1;
    Ok(links)
}

/// As many as the highest number of one that is online says.
fn cpus() -> Result<usize> {
    const MOST: usize = 512;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let last = online.trim().rsplit([',', '-']).next().unwrap_or_default();
    let cpus = last.parse::<usize>().context("online CPUs")? + 1;
    ensure!(cpus <= MOST, "the oracle has no room for {cpus} CPUs");
    Ok(cpus)
}
