//! An event on each CPU, also on those that come online later.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bpf::profile::ProfileSkel;
use host::perf::{listed_online_cpus, open};
use host::remedies::cause;
use libbpf_rs::Link;
use perf_event_open_sys::bindings as perf;
use perf_event_open_sys::ioctls;
use profile::losses::Losses;

use crate::profile::args::{Args, Rate};

/// How often CPUs are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Time of events may pass in steps of a tick where a CPU has no better clock, and later than that where a hypervisor has the CPU.
const CLOCK_STEP: Duration = Duration::from_millis(50);

/// An event that is counted on each CPU, and the program at its overflows.
pub(crate) struct Counters {
    name: String,
    attr: perf::perf_event_attr,
    /// The only CPU that is wanted.
    only: Option<u32>,
    all: Vec<Counter>,
    verbose: bool,
    is_on: bool,
    looked: Instant,
    late: Late,
}

/// CPUs that came online, or went and came back, after the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late {
    /// How often one was sampled from then on.
    pub(crate) sampled: u64,
    /// Those that could not be.
    pub(crate) barred: BTreeSet<i32>,
}

impl Late {
    pub(crate) fn is_empty(&self) -> bool {
        self.sampled == 0 && self.barred.is_empty()
    }

    pub(crate) fn count(&self, losses: &mut Losses) {
        losses.count(
            "cpus_late",
            "CPUs not sampled for up to a second after they came online",
            self.sampled,
        );
        losses.count(
            "cpus_barred",
            "CPUs not sampled since they came online (-v says why; with kernel.perf_event_paranoid above 2 they never are)",
            self.barred.len() as u64,
        );
    }
}

/// It ticks whether or not a program is there.
struct Counter {
    cpu: i32,
    /// The event's descriptor.
    event: OwnedFd,
    /// The program at it; has a descriptor of the event of its own.
    _link: Link,
    /// An event that counts nothing and always runs, as long as the CPU has not been away.
    sentinel: File,
}

impl Counters {
    pub(crate) fn open(
        args: &Args,
        skel: &ProfileSkel<'_>,
        (name, kind, config): (&str, u32, u64),
    ) -> Result<Self> {
        let mut counters = Self {
            name: name.to_owned(),
            attr: attr(args, kind, config),
            only: args.cpu,
            all: Vec::new(),
            verbose: args.common.verbose,
            is_on: true,
            looked: Instant::now(),
            late: Late::default(),
        };
        for cpu in wanted(args.cpu).unwrap_or_else(|| vec![0]) {
            counters.add(cpu, skel)?;
        }
        match args.cpu {
            Some(cpu) if counters.all.is_empty() => {
                bail!("CPU {cpu} is not online (see /sys/devices/system/cpu/online)")
            }
            _ => Ok(counters),
        }
    }

    pub(crate) fn enable(&mut self) -> Result<()> {
        self.is_on = true;
        self.switch(ioctls::ENABLE)
    }

    pub(crate) fn disable(&mut self) -> Result<()> {
        self.is_on = false;
        self.switch(ioctls::DISABLE)
    }

    /// [`Self::renew`], but no more than twice a second.
    pub(crate) fn follow_cpus(&mut self, skel: &ProfileSkel<'_>) -> Result<()> {
        if self.looked.elapsed() >= LOOK {
            self.renew(skel)?;
        }
        Ok(())
    }

    /// Opens the event where a CPU has come online: the kernel ends those of a CPU that goes, and they do not come back with it.
    pub(crate) fn renew(&mut self, skel: &ProfileSkel<'_>) -> Result<()> {
        self.looked = Instant::now();
        let Some(online) = wanted(self.only) else {
            return Ok(());
        };
        self.all
            .retain(|counter| online.contains(&counter.cpu) && counter.runs());
        for cpu in online {
            if !self.all.iter().any(|counter| counter.cpu == cpu) {
                self.add_late(cpu, skel)?;
            }
        }
        Ok(())
    }

    pub(crate) fn late(&self) -> &Late {
        &self.late
    }

    fn add_late(&mut self, cpu: i32, skel: &ProfileSkel<'_>) -> Result<()> {
        match Counter::open(cpu, &self.attr, skel) {
            Ok(counter) => self.all.push(counter),
            // Offline again.
            Err(err) if is_offline(&err) => return Ok(()),
            Err(err) => {
                if self.late.barred.insert(cpu) && self.verbose {
                    profile::say!(
                        "profile: CPU {cpu} has come online and cannot be sampled: {}",
                        cause(&err)
                    );
                }
                return Ok(());
            }
        }
        if !self.is_on {
            self.disable()?;
        }
        self.late.sampled += 1;
        if self.verbose {
            profile::say!("profile: CPU {cpu} has come online and is sampled from now on");
        }
        Ok(())
    }

    fn add(&mut self, cpu: i32, skel: &ProfileSkel<'_>) -> Result<()> {
        match Counter::open(cpu, &self.attr, skel) {
            Ok(counter) => self.all.push(counter),
            // Went offline meanwhile.
            Err(err) if is_offline(&err) && self.only.is_none() => {}
            Err(err) => return Err(explain(&self.name, self.attr.type_, err)),
        }
        Ok(())
    }

    fn switch(&self, ioctl: unsafe fn(c_int, u32) -> c_int) -> Result<()> {
        for counter in &self.all {
            // SAFETY: a descriptor of ours; takes no pointer.
            if unsafe { ioctl(counter.event.as_raw_fd(), 0) } < 0 {
                return Err(io::Error::last_os_error()).context("switch an event on or off");
            }
        }
        Ok(())
    }
}

impl Counter {
    fn open(cpu: i32, attr: &perf::perf_event_attr, skel: &ProfileSkel<'_>) -> io::Result<Self> {
        let event = open(attr, -1, cpu)?;
        let ours = event.try_clone()?;
        let sentinel = open(&sentinel(), -1, cpu)?;
        let link = skel.progs.on_overflow.attach_perf_event(event.as_raw_fd());
        let link = link.map_err(io::Error::other)?;
        // The link closes the descriptor.
        let _ = event.into_raw_fd();
        Ok(Self {
            cpu,
            event: ours,
            _link: link,
            sentinel: File::from(sentinel),
        })
    }

    /// Whether time passes for events of the CPU that were opened with this one.
    fn runs(&self) -> bool {
        let ran_ns = || {
            let mut value_and_time = [0; 16];
            (&self.sentinel).read_exact(&mut value_and_time).ok()?;
            let [.., a, b, c, d, e, f, g, h] = value_and_time;
            Some(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
        };
        let Some(first) = ran_ns() else {
            return false;
        };
        let give_up = Instant::now() + CLOCK_STEP;
        loop {
            match ran_ns() {
                Some(then) if then > first => return true,
                Some(_) if Instant::now() < give_up => thread::sleep(Duration::from_millis(1)),
                _ => return false,
            }
        }
    }
}

/// `None`: nobody says which CPUs are online.
fn wanted(only: Option<u32>) -> Option<Vec<i32>> {
    let mut online = listed_online_cpus()?;
    if let Some(only) = only {
        online.retain(|cpu| u32::try_from(*cpu) == Ok(only));
    }
    Some(online)
}

fn is_offline(err: &io::Error) -> bool {
    err.raw_os_error() == Some(libc::ENODEV)
}

fn sentinel() -> perf::perf_event_attr {
    perf::perf_event_attr {
        type_: perf::PERF_TYPE_SOFTWARE,
        size: u32::try_from(size_of::<perf::perf_event_attr>()).expect("a small struct"),
        config: u64::from(perf::PERF_COUNT_SW_DUMMY),
        read_format: u64::from(perf::PERF_FORMAT_TOTAL_TIME_RUNNING),
        ..Default::default()
    }
}

fn attr(args: &Args, kind: u32, config: u64) -> perf::perf_event_attr {
    let mut attr = perf::perf_event_attr {
        type_: kind,
        size: u32::try_from(size_of::<perf::perf_event_attr>()).expect("a small struct"),
        config,
        ..Default::default()
    };
    match args.rate() {
        Rate::Every(period) => attr.__bindgen_anon_1.sample_period = period,
        // A clock's frequency is a period; adjusting it, as for counters, would only add noise.
        Rate::Hertz(hertz) if args.event.is_clock() => {
            attr.__bindgen_anon_1.sample_period = 1_000_000_000 / hertz
        }
        Rate::Hertz(hertz) => {
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = hertz;
        }
    }
    attr
}

fn explain(name: &str, kind: u32, err: io::Error) -> anyhow::Error {
    let absent = [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV, libc::EINVAL];
    if kind != perf::PERF_TYPE_SOFTWARE
        && err
            .raw_os_error()
            .is_some_and(|code| absent.contains(&code))
    {
        return anyhow!(
            "event {name}: this machine has no such hardware counter (virtual machines often have none); use -e cpu-clock"
        );
    }
    anyhow::Error::new(err).context(format!("open event {name}"))
}
