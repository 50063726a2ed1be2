//! `-s`: where in their code tasks lose time, and where others cost it them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::sync::Arc;

use anyhow::{Context, Result};
use bpf::pressure::PressureSkel;
use bpf::pressure::types::stall_stack;
use host::task::comm_text;
use libbpf_rs::MapCore;
use loader::maps;
use profile::ends::{Ends, Weights};
use profile::escape::terminal;
use profile::frame::Frame;
use profile::losses::Losses;
use profile::model::StackEnd;
use profile::rank::Rank;
use profile::style::Style;
use profile::text::cut;
use profile::units;
use serde_json::{Value, json};
use session::targets::Targets;
use stacks::StackTable;
use stacks::unwind::{Method, Unwinder};
use symbols::{Options, Origin, Symbolizer};

use crate::pressure::harvest::{ON_CPU, ON_IO};

/// Stacks shown of each kind.
const TOP: usize = 3;
/// Columns of a function's name.
const NAME: usize = 68;

/// Names the stacks of a run.
pub(crate) struct Stacks {
    table: StackTable,
    /// The most of each kind that get names: as many as are shown.
    named: usize,
    /// Completeness of those of all intervals.
    ends: Weights,
}

/// A stack in one interval.
pub(crate) struct Stack {
    /// `ON_…`
    pub(crate) resource: usize,
    pub(crate) is_culprit: bool,
    pub(crate) comm: Arc<str>,
    pub(crate) tgid: u32,
    /// Threads seen on it.
    pub(crate) threads: u64,
    /// ns lost or caused; I/Os of who submits them.
    pub(crate) weight: u64,
    /// Root first; none if it is not to be shown.
    pub(crate) kernel: Arc<[Frame]>,
    pub(crate) user: Arc<[Frame]>,
    /// `None`: the thread has none.
    pub(crate) user_end: Option<StackEnd>,
}

impl Stacks {
    /// `shows_all`: every stack, not only the heaviest of each kind. `is_limited`: what is done from now on is paid from a budget.
    pub(crate) fn open(skel: &PressureSkel<'_>, shows_all: bool, is_limited: bool) -> Result<Self> {
        let everybody = Targets::default();
        let unwinder = Unwinder::new(Method::Auto, bpf::unwind_maps!(skel), &everybody.wanted())?;
        let symbolizer = Symbolizer::new(Options::default())?;
        let mut table = StackTable::new(symbolizer, unwinder, Origin::Tracepoint);
        table.listen(&skel.maps.stack_ring)?;
        table.prepare(everybody.processes_at_start(), None);
        if is_limited {
            table.finish_preparing();
        }
        let named = if shows_all { usize::MAX } else { TOP };
        Ok(Self {
            table,
            named,
            ends: Weights::default(),
        })
    }

    /// Readable when there are unwind tables to be taken in.
    pub(crate) fn fd(&self) -> RawFd {
        self.table.fd()
    }

    /// Takes in what has come, while the processes are still there.
    pub(crate) fn absorb(&mut self) {
        self.table.absorb();
    }

    /// Reads and clears the half that is not written any more; heaviest first. `is_wanted`: of a victim's process,
    /// thread and name.
    pub(crate) fn take(
        &mut self,
        skel: &PressureSkel<'_>,
        epoch: u32,
        is_wanted: impl Fn(u32, u32, &str) -> bool,
    ) -> Result<Vec<Stack>> {
        self.absorb();
        let own_tgid = std::process::id();
        let mut stacks: HashMap<Place, Stack> = HashMap::new();
        for (key, weight) in clear(skel, epoch)? {
            let comm = comm_text(&key.comm);
            let is_culprit = key.role != 0;
            if key.tgid == own_tgid || !is_culprit && !is_wanted(key.tgid, key.tid, &comm) {
                continue;
            }
            let place = (
                key.resource,
                key.role,
                key.tgid,
                key.kernel_stack,
                key.user_stack,
            );
            let stack = stacks.entry(place).or_insert_with(|| Stack {
                resource: key.resource.into(),
                is_culprit,
                comm,
                tgid: key.tgid,
                threads: 0,
                weight: 0,
                kernel: Arc::default(),
                user: Arc::default(),
                user_end: self.table.user_end(key.user_stack),
            });
            stack.threads += 1;
            stack.weight += weight;
        }
        let mut stacks: Vec<(Place, Stack)> = stacks.into_iter().collect();
        stacks.rank_by_key(|(_, stack)| Reverse((stack.weight, stack.tgid)));
        self.name(&mut stacks);
        let stacks: Vec<Stack> = stacks.into_iter().map(|(_, stack)| stack).collect();
        add_ends(&stacks, &mut self.ends);
        Ok(stacks)
    }

    /// Names are what takes time. Heaviest first, please.
    fn name(&mut self, stacks: &mut [(Place, Stack)]) {
        let mut named: HashMap<(u8, u8), usize> = HashMap::new();
        for ((resource, role, _, kernel, user), stack) in stacks {
            let count = named.entry((*resource, *role)).or_default();
            if *count < self.named {
                stack.kernel = self.table.kernel_names(*kernel);
                stack.user = self.table.user_names(*user);
                *count += 1;
            }
        }
    }

    pub(crate) fn count_losses(&self, losses: &mut Losses) {
        self.table.count_losses(losses);
    }

    /// Completeness of the user stacks of all intervals.
    pub(crate) fn ends(&self) -> Option<Ends> {
        self.ends.describe("ns")
    }

    /// Number of distinct ones.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

/// Adds how the user stacks ended of those whose weight is time.
fn add_ends(stacks: &[Stack], ends: &mut Weights) {
    for stack in stacks.iter().filter(|stack| !stack.counts_ios()) {
        ends.add(stack.user_end, stack.weight);
    }
}

/// An interval's times by how its user stacks ended: `{"root": 5000, "no-table": 20}`.
pub(crate) fn ends_to_json(stacks: &[Stack]) -> Value {
    let mut ends = Weights::default();
    add_ends(stacks, &mut ends);
    ends.to_json()
}

/// Resource, role, process, kernel and user stack.
type Place = (u8, u8, u32, u64, u64);

/// Takes out what the ended interval has left.
pub(crate) fn clear(skel: &PressureSkel<'_>, epoch: u32) -> Result<Vec<(stall_stack, u64)>> {
    let map = &skel.maps.stall_stacks;
    let mut entries = maps::entries::<stall_stack, u64>(map)?;
    entries.retain(|(key, _)| key.epoch == epoch);
    for (key, _) in &entries {
        // SAFETY: a plain key is as many initialised bytes.
        map.delete(unsafe { plain::as_bytes(key) })
            .context("clear map")?;
    }
    Ok(entries)
}

impl Stack {
    fn counts_ios(&self) -> bool {
        self.is_culprit && self.resource == ON_IO
    }
}

fn title(is_culprit: bool, resource: usize) -> &'static str {
    match (is_culprit, resource) {
        (false, ON_CPU) => "Where they waited for a CPU",
        (true, ON_CPU) => "What ran meanwhile, where it left the CPU",
        (true, _) => "What submitted I/O",
        (false, _) => "Where they were stalled",
    }
}

/// Writes the heaviest stacks of a resource, victims first, leaf at the top.
pub(crate) fn write(
    stacks: &[Stack],
    resource: usize,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    for is_culprit in [false, true] {
        let wanted: Vec<&Stack> = stacks
            .iter()
            .filter(|stack| stack.resource == resource && stack.is_culprit == is_culprit)
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let (n, shown) = (units::count(wanted.len() as u64), wanted.len().min(TOP));
        let title = format!("  {} ({shown} of {n} stacks)", title(is_culprit, resource));
        writeln!(out, "{}", style.bold(title))?;
        for stack in wanted.iter().take(TOP) {
            write_stack(stack, out)?;
        }
    }
    Ok(())
}

fn write_stack(stack: &Stack, out: &mut impl Write) -> io::Result<()> {
    let value = if stack.counts_ios() {
        units::counted(stack.weight, "I/Os")
    } else {
        units::duration(stack.weight)
    };
    let threads = match stack.threads {
        1 => String::new(),
        n => format!(", {n} threads"),
    };
    let comm = terminal(&stack.comm);
    writeln!(out, "{value:>10}  {comm} {}{threads}", stack.tgid)?;
    for frames in [&stack.kernel, &stack.user] {
        for frame in frames.iter().rev() {
            let name = terminal(&frame.name);
            writeln!(out, "{:>12}{}", "", cut(&name, NAME))?;
        }
    }
    Ok(())
}

/// Every stack of a resource: `{"role", "comm", "pid", "threads", "kernel", "user", "ns" | "ios"}`, root first.
pub(crate) fn to_json(stacks: &[Stack], resource: usize) -> Value {
    let names = |frames: &[Frame]| -> Vec<String> {
        frames.iter().map(|frame| frame.name.to_string()).collect()
    };
    let own = stacks.iter().filter(|stack| stack.resource == resource);
    own.map(|stack| {
        let role = if stack.is_culprit { "culprit" } else { "victim" };
        let unit = if stack.counts_ios() { "ios" } else { "ns" };
        let mut object = json!({"role": role, "comm": *stack.comm, "pid": stack.tgid, "threads": stack.threads,
                                "kernel": names(&stack.kernel), "user": names(&stack.user)});
        object[unit] = stack.weight.into();
        object
    })
    .collect()
}
