//! Puts the BPF program where the event fires.

use std::fs;
use std::io;
use std::path::Path;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use bpf::profile::ProfileSkel;
use libbpf_rs::Link;
use loader::functions::{self, Function};
use loader::tracefs;

use crate::profile::args::{Args, Weight};
use crate::profile::counters::{Counters, Late};
use crate::profile::event::Event;
use crate::profile::traps::Method;

/// Programs where their events fire. Detached when dropped.
pub(crate) enum Attached {
    /// Of a tracepoint or a function.
    Links(Links),
    /// Of what each CPU counts.
    Counters(Box<Counters>),
}

/// A tracepoint's or a function's.
#[derive(Default)]
pub(crate) struct Links {
    attached: Vec<Link>,
    /// The kernel waits until no CPU can be in the program any more: on a busy machine for seconds.
    detaching: Option<JoinHandle<()>>,
    /// On functions.
    method: Method,
}

impl Links {
    fn new(attached: Vec<Link>, method: Method) -> Self {
        Self {
            attached,
            detaching: None,
            method,
        }
    }

    fn is_detaching(&self) -> bool {
        self.detaching
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    fn detach(&mut self) -> Result<()> {
        let links = std::mem::take(&mut self.attached);
        if !links.is_empty() {
            let thread = thread::Builder::new().name("detach".into());
            let thread = thread.spawn(move || drop(links));
            self.detaching = Some(thread.context("start a thread")?);
        }
        Ok(())
    }
}

impl Attached {
    /// Attaches.
    pub(crate) fn new(args: &Args, skel: &ProfileSkel<'_>) -> Result<Self> {
        match &args.event {
            Event::Counter { name, kind, config } => {
                let counters = Counters::open(args, skel, (name, *kind, *config))?;
                Ok(Self::Counters(Box::new(counters)))
            }
            _ => {
                let method = Method::default();
                let links = attach(args, skel, method)?;
                Ok(Self::Links(Links::new(links, method)))
            }
        }
    }

    /// From the next pause on.
    pub(crate) fn change(&mut self, method: Method) {
        match self {
            Self::Counters(_) => {}
            Self::Links(links) => links.method = method,
        }
    }

    /// No event costs anything, soon.
    pub(crate) fn pause(&mut self) -> Result<()> {
        match self {
            Self::Counters(counters) => counters.disable(),
            // An event without a program fires nevertheless: a uprobe traps.
            Self::Links(links) => links.detach(),
        }
    }

    /// Whether the pause is complete; before, to resume would wait until it is.
    pub(crate) fn has_paused(&self) -> bool {
        match self {
            Self::Counters(_) => true,
            Self::Links(links) => !links.is_detaching(),
        }
    }

    /// Events fire again. Clocks go on where they were in their period.
    pub(crate) fn resume(&mut self, args: &Args, skel: &ProfileSkel<'_>) -> Result<()> {
        match self {
            Self::Counters(counters) => counters.enable()?,
            Self::Links(links) if links.attached.is_empty() => {
                *links = Links::new(attach(args, skel, links.method)?, links.method);
            }
            Self::Links(_) => {}
        }
        Ok(())
    }

    /// Sees to CPUs that have come online; `now`: whenever that was done last.
    pub(crate) fn follow_cpus(&mut self, skel: &ProfileSkel<'_>, now: bool) -> Result<()> {
        match self {
            Self::Counters(counters) if now => counters.renew(skel),
            Self::Counters(counters) => counters.follow_cpus(skel),
            Self::Links(_) => Ok(()),
        }
    }

    /// CPUs that came online after the start.
    pub(crate) fn late_cpus(&self) -> Late {
        match self {
            Self::Counters(counters) => counters.late().clone(),
            Self::Links(_) => Late::default(),
        }
    }
}

/// What is no counter.
fn attach(args: &Args, skel: &ProfileSkel<'_>, method: Method) -> Result<Vec<Link>> {
    match &args.event {
        Event::Counter { .. } => Ok(Vec::new()),
        Event::Tracepoint { category, name } => {
            let link = tracefs::attach(&skel.progs.on_tracepoint, category, name);
            Ok(vec![link?])
        }
        Event::Uprobe { path, symbol } => {
            let pid = functions::only_process(&args.targets.pids)?;
            let put = |file: &Path, offset| method.attach(skel, pid, file, offset);
            let function = Function {
                path,
                symbol,
                keeps_thread: false,
            };
            Ok(vec![functions::attach(function, put)?])
        }
    }
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
    let act = || format!("tracepoint {category}:{name}");
    let events = tracefs::events()
        .context(tracefs::REMEDY)
        .with_context(act)?;
    let format = events.join(category).join(name).join("format");
    let format = match fs::read_to_string(format) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => bail!(
            "no tracepoint {category}:{name}{}",
            near_tracepoints(&events, category, name)
        ),
        read => read.with_context(act)?,
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

fn near_tracepoints(events: &Path, category: &str, name: &str) -> String {
    let names = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(events.join(directory)).into_iter().flatten();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    };
    let (wanted, candidates, prefix) = match names(category) {
        events if events.is_empty() => (category, names(""), String::new()),
        events => (name, events, format!("{category}:")),
    };
    // One that is listed and has no format is none to propose.
    let nearest = candidates
        .iter()
        .filter(|known| known.as_str() != wanted)
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
}
