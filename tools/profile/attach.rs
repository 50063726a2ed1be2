//! Puts the BPF program where the event fires.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use bpf::profile::ProfileSkel;
use libbpf_rs::{Link, TracepointCategory, UprobeOpts};
use perf_event_open_sys::bindings as perf;
use trace::libraries;
use trace::perf::{online_cpus, open};

use crate::args::{Args, Rate, Weight};
use crate::event::Event;

/// Where tracefs may be mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Programs where their events fire. Detached when dropped.
#[derive(Default)]
pub(crate) struct Attached {
    links: Vec<Link>,
    /// The events of counters, which tick whether or not a program is there.
    counters: Vec<OwnedFd>,
}

impl Attached {
    /// Attaches.
    pub(crate) fn new(args: &Args, skel: &ProfileSkel<'_>) -> Result<Self> {
        let mut attached = Self::default();
        match &args.event {
            Event::Counter { name, kind, config } => {
                attached.add_counters(args, skel, name, *kind, *config)?;
            }
            _ => attached.links = attach(args, skel)?,
        }
        Ok(attached)
    }

    /// No event costs anything from now on.
    pub(crate) fn pause(&mut self) -> Result<()> {
        if self.counters.is_empty() {
            // An event without a program fires nevertheless: a uprobe traps.
            self.links.clear();
        }
        self.switch(perf_event_open_sys::ioctls::DISABLE)
    }

    /// Events fire again. Clocks go on where they were in their period.
    pub(crate) fn resume(&mut self, args: &Args, skel: &ProfileSkel<'_>) -> Result<()> {
        if self.counters.is_empty() && self.links.is_empty() {
            self.links = attach(args, skel)?;
        }
        self.switch(perf_event_open_sys::ioctls::ENABLE)
    }

    fn switch(&self, ioctl: unsafe fn(c_int, u32) -> c_int) -> Result<()> {
        for counter in &self.counters {
            // SAFETY: a descriptor of ours; takes no pointer.
            if unsafe { ioctl(counter.as_raw_fd(), 0) } < 0 {
                return Err(io::Error::last_os_error()).context("switch an event on or off");
            }
        }
        Ok(())
    }
}

/// What is no counter.
fn attach(args: &Args, skel: &ProfileSkel<'_>) -> Result<Vec<Link>> {
    match &args.event {
        Event::Counter { .. } => Ok(Vec::new()),
        Event::Tracepoint { category, name } => {
            let link = skel
                .progs
                .on_tracepoint
                .attach_tracepoint(TracepointCategory::Custom(category.clone()), name.as_str());
            Ok(vec![link.with_context(|| {
                format!("attach to tracepoint {category}:{name}")
            })?])
        }
        Event::Uprobe { path, symbol } => attach_uprobe(args, skel, path, symbol),
    }
}

impl Attached {
    fn add_counters(
        &mut self,
        args: &Args,
        skel: &ProfileSkel<'_>,
        name: &str,
        kind: u32,
        config: u64,
    ) -> Result<()> {
        let attr = counter(args, kind, config);
        for cpu in cpus(args)? {
            let event = match open(&attr, -1, cpu) {
                Ok(event) => event,
                // Went offline meanwhile.
                Err(err) if err.raw_os_error() == Some(libc::ENODEV) && args.cpu.is_none() => {
                    continue;
                }
                Err(err) => return Err(explain(name, kind, err)),
            };
            self.counters.push(event.try_clone()?);
            let link = skel.progs.on_overflow.attach_perf_event(event.as_raw_fd());
            let link = link.with_context(|| format!("attach to event {name}"))?;
            self.links.push(link);
            // The link closes the descriptor.
            let _ = event.into_raw_fd();
        }
        Ok(())
    }
}

fn counter(args: &Args, kind: u32, config: u64) -> perf::perf_event_attr {
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

fn cpus(args: &Args) -> Result<Vec<i32>> {
    let online = online_cpus();
    let Some(cpu) = args.cpu else {
        return Ok(online);
    };
    match i32::try_from(cpu).ok().filter(|cpu| online.contains(cpu)) {
        Some(cpu) => Ok(vec![cpu]),
        None => bail!("CPU {cpu} is not online (see /sys/devices/system/cpu/online)"),
    }
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

fn attach_uprobe(
    args: &Args,
    skel: &ProfileSkel<'_>,
    path: &str,
    symbol: &str,
) -> Result<Vec<Link>> {
    let file = find_file(path).with_context(|| format!("uprobe: no file {path}"))?;
    let pid = match args.targets.pids.as_slice() {
        // Other processes then never trap.
        [pid] => i32::try_from(*pid).context("PID")?,
        _ => -1,
    };
    let options = UprobeOpts {
        func_name: Some(symbol.to_owned()),
        ..UprobeOpts::default()
    };
    let link = skel
        .progs
        .on_uprobe
        .attach_uprobe_with_opts(pid, &file, 0, options);
    Ok(vec![link.with_context(|| {
        format!("uprobe: no function {symbol} in {}", file.display())
    })?])
}

/// A path, or a library's or program's bare name: `libc`, `libm.so.6`, `bash`.
fn find_file(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).exists().then(|| name.into());
    }
    let mut candidates = libraries::own();
    for dir in libraries::directories() {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        candidates.extend(files);
    }
    let is_it = |path: &PathBuf| {
        let file = path
            .file_name()
            .and_then(|file| file.to_str())
            .unwrap_or_default();
        file == name
            // Alpine's C library is libc.musl-x86_64.so.1.
            || file
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with(".musl-"))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    candidates.extend(std::env::split_paths(&path).map(|dir| dir.join(name)));
    candidates
        .into_iter()
        .find(|path| is_it(path) && is_elf(path))
}

/// `libc.so` in /usr/lib is a linker script.
fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read =
        fs::File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

/// Finds where an event's weight lies; also checks that a tracepoint exists.
pub(crate) fn weight(args: &Args) -> Result<Weight> {
    match (&args.event, args.weight.as_deref()) {
        (Event::Tracepoint { category, name }, field) => tracepoint_weight(category, name, field),
        (_, None) => Ok(Weight::default()),
        (Event::Uprobe { .. }, Some(argument)) => {
            let number = argument
                .strip_prefix("arg")
                .and_then(|number| number.parse().ok());
            match number.filter(|number| (1..=6).contains(number)) {
                Some(argument) => Ok(Weight {
                    argument,
                    ..Weight::default()
                }),
                None => bail!("--weight {argument}: a uprobe has arg1 to arg6"),
            }
        }
        (Event::Counter { name, .. }, Some(_)) => {
            bail!("--weight: event {name} has no arguments; tracepoints and uprobes have")
        }
    }
}

fn tracepoint_weight(category: &str, name: &str, field: Option<&str>) -> Result<Weight> {
    let format = TRACEFS.iter().find_map(|root| {
        fs::read_to_string(format!("{root}/events/{category}/{name}/format")).ok()
    });
    let Some(format) = format else {
        let mounted = TRACEFS
            .iter()
            .any(|root| Path::new(root).join("events").exists());
        if !mounted {
            bail!(
                "tracepoint {category}:{name}: tracefs is not mounted; mount -t tracefs none /sys/kernel/tracing"
            );
        }
        bail!(
            "no tracepoint {category}:{name}{}",
            near_tracepoints(category, name)
        );
    };
    let Some(field) = field else {
        return Ok(Weight::default());
    };
    let fields: Vec<(&str, Weight)> = format.lines().filter_map(parse_field).collect();
    match fields.iter().find(|(known, _)| *known == field) {
        Some((_, weight)) => Ok(*weight),
        None => {
            let known: Vec<&str> = fields
                .iter()
                .map(|(known, _)| *known)
                .filter(|known| !known.starts_with("common_"))
                .collect();
            bail!(
                "--weight {field}: {category}:{name} has {}",
                known.join(", ")
            )
        }
    }
}

/// A line of a `format` file: `field:unsigned int bytes; offset:28; size:4; signed:0;`
fn parse_field(line: &str) -> Option<(&str, Weight)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let name = parts
        .next()?
        .strip_prefix("field:")?
        .rsplit([' ', '*'])
        .next()?;
    let mut number = |key: &str| {
        parts
            .next()?
            .strip_prefix(key)?
            .strip_prefix(':')?
            .parse::<u32>()
            .ok()
    };
    let (offset, size, signed) = (number("offset")?, number("size")?, number("signed")?);
    let is_integer = !name.ends_with(']') && [1, 2, 4, 8].contains(&size);
    is_integer.then_some((
        name,
        Weight {
            argument: 0,
            offset,
            size,
            signed: signed != 0,
        },
    ))
}

fn near_tracepoints(category: &str, name: &str) -> String {
    let names = |directory: String| -> Vec<String> {
        let found = TRACEFS
            .iter()
            .find_map(|root| fs::read_dir(format!("{root}/events/{directory}")).ok());
        found
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    };
    let (wanted, candidates, prefix) = match names(category.to_owned()) {
        events if events.is_empty() => (category, names(String::new()), String::new()),
        events => (name, events, format!("{category}:")),
    };
    let nearest = candidates
        .iter()
        .min_by_key(|known| strsim::levenshtein(wanted, known));
    nearest
        .map(|near| format!("; did you mean {prefix}{near}?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_files_integers_are_found() {
        let (name, weight) =
            parse_field("\tfield:unsigned int bytes;\toffset:28;\tsize:4;\tsigned:0;").unwrap();
        assert_eq!(
            (name, weight.offset, weight.size, weight.signed),
            ("bytes", 28, 4, false)
        );
        assert!(parse_field("\tfield:char comm[16];\toffset:32;\tsize:16;\tsigned:0;").is_none());
        assert!(parse_field("print fmt: \"x\"").is_none());
    }

    #[test]
    fn libraries_are_found_by_their_bare_name() {
        assert!(
            find_file("libc")
                .unwrap()
                .to_str()
                .unwrap()
                .contains("libc.so")
        );
        assert!(find_file("no-such-library").is_none());
    }
}
