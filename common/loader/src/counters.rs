//! Counters of what BPF programs saw and did not count: found by name, so that none is forgotten.

use anyhow::{Context, Result, bail};
use libbpf_rs::btf::{Btf, BtfType, types};
use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, MapHandle, Object};
use profile::losses::Losses;

/// A global variable or a member of one (`variable.member`), and its meaning for people.
///
/// JSON has it under its own name, or the member's; `variable as word` gives it another. A counter with `_ns` behind its name is the
/// time of what was lost.
pub type Words = (&'static str, &'static str);

/// Counters of the shared headers, in the order in which they are told.
const SHARED: [Words; 7] = [
    ("members_lost", "threads: no memory"),
    ("targets_full", "child processes: table full"),
    (
        "stack_losses.ring_full as stack_ring_full",
        "stacks: ring full",
    ),
    (
        "stack_losses.table_full as stack_table_full",
        "stacks: table full",
    ),
    (
        "stack_losses.unwalked as stack_unwalked",
        "stacks not walked",
    ),
    (
        "stack_losses.truncated as stack_truncated",
        "stacks cut at 127 frames",
    ),
    ("stacks_left_out", "stacks not walked, to keep the budget"),
];

/// Ends of the names of other variables that count losses.
const LOSSES: [&str; 3] = ["_busy", "_full", "_lost"];

/// An object's counters, and the map that they are in.
#[derive(Debug)]
pub struct Counters {
    bss: MapHandle,
    all: Vec<Counter>,
}

#[derive(Debug)]
struct Counter {
    /// Byte offset in the section of global variables.
    at: usize,
    /// The same of its time.
    time_at: Option<usize>,
    /// The stable word for JSON.
    key: &'static str,
    what: &'static str,
}

impl Counters {
    /// Finds a loaded object's counters: those of `own`, then the shared ones that it has. Those told `elsewhere` are left out.
    ///
    /// # Errors
    ///
    /// An object without type information; a counter of `own` that it does not have; a member of a variable whose name ends in
    /// `losses`, or another counter of losses by its name, that would be told to nobody.
    pub fn new(object: &Object, own: &[Words], elsewhere: &[&str]) -> Result<Self> {
        let mut found = offsets(object)?;
        found.retain(|(name, _)| !elsewhere.contains(&name.as_str()));
        let mut all = Vec::new();
        for &words in own.iter().chain(&SHARED) {
            let (name, key) = names(words.0);
            let Some(at) = take(&mut found, name) else {
                if own.contains(&words) {
                    bail!("the BPF object has no counter {name}");
                }
                continue;
            };
            let time_at = take(&mut found, &format!("{name}_ns"));
            let what = words.1;
            all.push(Counter {
                at,
                time_at,
                key,
                what,
            });
        }
        let untold = found.iter().find(|(name, _)| match name.split_once('.') {
            Some((variable, _)) => variable.ends_with("losses"),
            None => LOSSES.iter().any(|end| name.ends_with(end)),
        });
        if let Some((name, _)) = untold {
            bail!("nobody is told of the losses in {name}");
        }
        let bss = object
            .maps()
            .find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let bss = MapHandle::try_from(&bss.context("the BPF object has no .bss")?)?;
        Ok(Self { bss, all })
    }

    /// Adds every counter as it stands now.
    ///
    /// # Errors
    ///
    /// When the kernel does not hand them out.
    pub fn count(&self, losses: &mut Losses) -> Result<()> {
        let bytes = self
            .bss
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .context("read map .bss")?;
        let bytes = bytes.context("no global variables")?;
        let number = |at: usize| {
            let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
            word.copied()
                .map(u64::from_ne_bytes)
                .context("a short section")
        };
        for counter in &self.all {
            let (key, what) = (counter.key, counter.what);
            match counter.time_at {
                Some(time_at) => losses.time(key, what, number(counter.at)?, number(time_at)?),
                None => losses.count(key, what, number(counter.at)?),
            }
        }
        Ok(())
    }
}

/// A counter's name, and the word for it in JSON.
fn names(name: &'static str) -> (&'static str, &'static str) {
    let member = || name.rsplit_once('.').map_or(name, |(_, member)| member);
    name.split_once(" as ").unwrap_or_else(|| (name, member()))
}

/// Byte offset of a counter, which is told only once.
fn take(found: &mut Vec<(String, usize)>, name: &str) -> Option<usize> {
    let place = found.iter().position(|(other, _)| other == name)?;
    Some(found.swap_remove(place).1)
}

/// Names and byte offsets of all global variables that begin as zero, and of the members of those that are structures.
fn offsets(object: &Object) -> Result<Vec<(String, usize)>> {
    // SAFETY: libbpf's own object, which lives as long as `object`; it is only read.
    let raw = unsafe { object.as_libbpf_object().as_ref() };
    let btf = Btf::from_bpf_object(raw)?.context("the BPF object has no type information")?;
    let section: types::DataSec<'_> = btf
        .type_by_name(".bss")
        .context("the BPF object has no .bss")?;
    let mut found = Vec::new();
    for variable in section.iter() {
        let at = variable.offset as usize;
        let of_it: BtfType<'_> = btf
            .type_by_id(variable.ty)
            .context("a variable without type")?;
        let name = of_it
            .name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let of_it = of_it
            .next_type()
            .context("a variable without type")?
            .skip_mods_and_typedefs();
        if let Ok(members) = types::Struct::try_from(of_it) {
            for member in members.iter() {
                let member_name = member.name.unwrap_or_default().to_string_lossy();
                let types::MemberAttr::Normal { offset } = member.attr else {
                    continue;
                };
                found.push((format!("{name}.{member_name}"), at + offset as usize / 8));
            }
        }
        found.push((name, at));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn json_has_the_last_name_or_another() {
        assert_eq!(names("groups_full"), ("groups_full", "groups_full"));
        assert_eq!(names("losses.unseen"), ("losses.unseen", "unseen"));
        let other = ("futex_losses.unseen", "futex_unseen");
        assert_eq!(names("futex_losses.unseen as futex_unseen"), other);
    }
}
