//! Locks of programs: what the futexes of an interval are, what they are called, and who held them.

mod holder;
mod identity;
mod open;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{futex_lock, lock_id};
use loader::maps;
use profile::rank::Rank;
use stacks::StackTable;
use symbols::places::Places;

use crate::lockstat::chains::{Label, Labels};
use crate::lockstat::futex::{self, BY_NAME, Class, Evidence, Verdict, classify};
use crate::lockstat::known::forget_unused;
use crate::lockstat::merge;
use crate::lockstat::row::{Identity, LockRow, Side};
use identity::Lock;
pub(crate) use open::add_stacks as add_open_stacks;

/// Waits that were not asked for: not contention, as a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) class: &'static str,
    pub(crate) waits: u64,
    pub(crate) total_ns: u64,
}

/// Judges and names the futexes among `rows`, puts together what is one lock, and takes out the classes that are not shown.
/// `labels` get all of them.
pub(crate) fn name(
    rows: &mut Vec<LockRow>,
    skel: &LockstatSkel<'_>,
    stacks: &mut StackTable,
    places: &Places,
    wanted: &[Class],
    labels: &mut Labels,
) -> Result<Vec<LeftOut>> {
    let known = maps::entries::<lock_id, futex_lock>(&skel.maps.futex_locks)?;
    let used = rows.iter().map(|row| row.identity);
    forget_unused(&skel.maps.futex_locks, &known, used);
    let known: HashMap<Identity, futex_lock> = known
        .into_iter()
        .map(|(id, lock)| (Identity::from(&id), lock))
        .collect();
    let (futexes, others): (Vec<LockRow>, Vec<LockRow>) = std::mem::take(rows)
        .into_iter()
        .partition(|row| row.identity.side == Side::User);
    let judged = futexes
        .into_iter()
        .map(|row| {
            let known = known.get(&row.identity);
            judge(row, known, stacks, places)
        })
        .collect();
    let united = identity::unite(judged);
    for (class, row) in &united {
        let label = Label::of(row, class.names_holder());
        labels.extend(row.seen_as.iter().map(|seen| (*seen, label.clone())));
    }
    let (shown, hidden): (Vec<_>, Vec<_>) = united
        .into_iter()
        .partition(|(class, _)| wanted.contains(class));
    *rows = others;
    for (class, mut row) in shown {
        holder::settle(&mut row, class, stacks);
        rows.push(row);
    }
    Ok(left_out(&hidden))
}

/// Class, name and callers of one futex.
fn judge(
    mut row: LockRow,
    known: Option<&futex_lock>,
    stacks: &mut StackTable,
    places: &Places,
) -> Lock {
    let evidence = evidence(&row, known);
    let first_walked = known.map_or(0, |known| known.user_stack);
    let verdict = verdict(&row, &evidence, first_walked, stacks);
    for waiter in &mut row.waiters {
        waiter.caller = caller(waiter.user, verdict.class, stacks);
    }
    let mut callers = row
        .waiters
        .iter()
        .filter_map(|waiter| waiter.caller.clone());
    let first = || caller(first_walked, verdict.class, stacks);
    row.first_caller = callers.next().or_else(first);
    row.class = verdict.class.word();
    row.confidence = verdict.confidence;
    let stacks_of_row = row.waiters.iter().map(|waiter| waiter.user);
    let ids = stacks_of_row.chain([first_walked]).filter(|id| *id != 0);
    let in_glibc = ids.clone().next().is_some_and(|id| is_glibc(id, stacks));
    let is_hidden = match verdict.class {
        Class::ParkingLot => true,
        Class::Go => ids.clone().any(|id| go_caller(id, stacks).is_some()),
        _ => false,
    };
    Lock {
        in_glibc,
        is_hidden,
        place: known
            .and_then(|known| places.get(known.address_id))
            .cloned(),
        class: verdict.class.family(),
        evidence,
        row,
    }
}

fn evidence(row: &LockRow, known: Option<&futex_lock>) -> Evidence {
    Evidence {
        operation: row.identity.class.into(),
        shared: row.confidence & FUTEX_IS_SHARED != 0,
        realtime: row.confidence & FUTEX_IS_REALTIME != 0,
        value: known.map_or(0, |known| known.evidence.value),
        place: known.map_or(0, |known| known.evidence.place).into(),
    }
}

/// `enum futex_call_flags` of the BPF side, which come where the confidence will be.
const FUTEX_IS_SHARED: u8 = 1;
const FUTEX_IS_REALTIME: u8 = 2;

/// The verdict on the heaviest stack that says anything.
fn verdict(row: &LockRow, evidence: &Evidence, first: u64, stacks: &mut StackTable) -> Verdict {
    let mut best = classify(evidence, [].into_iter());
    let ids = row.waiters.iter().map(|waiter| waiter.user).chain([first]);
    for id in ids.filter(|id| *id != 0) {
        let frames = stacks.user_names(id);
        let functions = frames.iter().rev().map(|frame| &*frame.name);
        let verdict = classify(evidence, functions);
        if verdict.confidence >= BY_NAME {
            return verdict;
        }
        if verdict.confidence > best.confidence {
            best = verdict;
        }
    }
    best
}

fn caller(stack: u64, class: Class, stacks: &mut StackTable) -> Option<Arc<str>> {
    if class == Class::Go
        && let Some(caller) = go_caller(stack, stacks)
    {
        return Some(caller);
    }
    let frames = stacks.user_names(stack);
    let leaf_first = frames.iter().rev();
    let caller = futex::first_caller(leaf_first.map(|f| (&*f.name, f.module.as_deref())));
    caller.map(Into::into)
}

fn go_caller(stack: u64, stacks: &mut StackTable) -> Option<Arc<str>> {
    let frames = stacks.user_names(stack);
    futex::go_caller(frames.iter().rev().map(|frame| &*frame.name)).map(Into::into)
}

fn is_glibc(stack: u64, stacks: &mut StackTable) -> bool {
    let frames = stacks.user_names(stack);
    let file = frames.last().and_then(|leaf| leaf.module.as_deref());
    file.and_then(|file| file.rsplit('/').next())
        .is_some_and(|base| base.starts_with("libc.so") || base.starts_with("libpthread"))
}

fn left_out(hidden: &[(Class, LockRow)]) -> Vec<LeftOut> {
    let mut classes: HashMap<Class, LeftOut> = HashMap::new();
    for (class, row) in hidden {
        let sum = classes.entry(*class).or_insert(LeftOut {
            class: class.word(),
            waits: 0,
            total_ns: 0,
        });
        sum.waits += row.contentions;
        sum.total_ns += row.total_ns;
    }
    let mut classes: Vec<LeftOut> = classes.into_values().collect();
    // Waits that an earlier interval has counted and that go on have time only; calls that raced have neither.
    classes.retain(|sum| sum.waits > 0 || sum.total_ns > 0);
    classes.rank_by_key(|sum| Reverse((sum.total_ns, sum.class)));
    classes
}

/// Adds waits for the same lock, seen in another way.
fn add_to_same(sum: &mut LockRow, row: &LockRow) {
    let confidence = sum.confidence.max(row.confidence);
    merge::add(sum, row);
    sum.locks = 1;
    sum.confidence = confidence;
    if sum.first_caller.is_none() {
        sum.first_caller.clone_from(&row.first_caller);
    }
}
