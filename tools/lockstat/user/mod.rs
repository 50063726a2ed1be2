//! Locks of programs: what those of an interval are, what they are called, and who held them.

mod arrivals;
mod calls;
mod holder;
mod identity;
mod idle;
mod java;
mod open;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use bpf::lockstat::LockstatSkel;
use bpf::lockstat::types::{futex_lock, lock_id};
use loader::maps;
use profile::frame::Frame;
use profile::rank::Rank;
use stacks::StackTable;

use crate::lockstat::futex::{
    self, BY_NAME, Class, Evidence, Role, Rules, Verdict, calls, classify, python,
};
use crate::lockstat::known::forget_unused;
use crate::lockstat::merge;
use crate::lockstat::names::Names;
use crate::lockstat::row::{For, Holder, HolderKind, Identity, LeftOut, LockRow, SURE, Side};
use crate::lockstat::turns::{is_kept, take_turns};
use identity::Lock;
use idle::{Depth, Seen};
use java::Object;
pub(crate) use open::add_stacks as add_open_stacks;

/// Waits for work, which are not shown: sums by class, and those that a rule, or what is known of a queue, says so of.
pub(crate) struct Idle {
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) known: Vec<LockRow>,
}

/// Judges and names the programs' locks among `rows`, puts together what is one lock, and takes out the waits for work that were not asked for.
pub(crate) fn name(
    rows: &mut Vec<LockRow>,
    skel: &LockstatSkel<'_>,
    stacks: &mut StackTable,
    names: &mut Names,
    window_ns: u64,
) -> Result<Idle> {
    let known = maps::entries::<lock_id, futex_lock>(&skel.maps.futex_locks)?;
    let used = rows.iter().map(|row| row.identity);
    forget_unused(&skel.maps.futex_locks, &known, used);
    let known: HashMap<Identity, futex_lock> = known
        .into_iter()
        .map(|(id, lock)| (Identity::from(&id), lock))
        .collect();
    let (users, others): (Vec<LockRow>, Vec<LockRow>) = std::mem::take(rows)
        .into_iter()
        .partition(|row| row.identity.side == Side::User);
    let (called, futexes): (Vec<LockRow>, Vec<LockRow>) =
        users.into_iter().partition(calls::is_one);
    let judged = futexes
        .into_iter()
        .map(|row| {
            let known = known.get(&row.identity);
            judge(row, known, stacks, names)
        })
        .collect();
    let mut united = identity::unite(judged);
    united.extend(calls::judge(called, skel, stacks, &names.rules)?);
    for (class, _, row) in &mut united {
        holder::settle(row, *class, stacks);
        if *class == Class::Barrier {
            row.last = arrivals::last(row, &names.rules, stacks);
        }
    }
    say_what_for(&mut united, stacks, window_ns);
    let all = united.iter().map(|(_, _, row)| row);
    names.runtimes.look_at(all, &names.rules, stacks);
    let (shown, hidden): (Vec<_>, Vec<_>) = united
        .into_iter()
        .partition(|(class, _, row)| row.what != For::Work || names.classes.contains(class));
    *rows = others;
    rows.extend(shown.into_iter().map(|(_, _, row)| row));
    let left_out = left_out(&hidden);
    let is_known = |role: Role, row: &LockRow| role == Role::Work && row.confidence >= SURE;
    let hidden = hidden.into_iter();
    let known = hidden.filter(|(_, role, row)| is_known(*role, row));
    Ok(Idle {
        left_out,
        known: known.map(|(_, _, row)| row).collect(),
    })
}

/// Tells waits for work from those for others, by all waits of each thread.
fn say_what_for(locks: &mut [(Class, Role, LockRow)], stacks: &mut StackTable, window_ns: u64) {
    for (class, role, row) in locks.iter_mut() {
        row.in_turns = take_turns(row, window_ns);
        // Made of what queues of work are made of, too, but known to be none.
        row.in_turns |=
            *role == Role::Trouble && matches!(class, Class::Cond | Class::Sem | Class::Park);
    }
    let mut seen = Vec::new();
    for (class, role, row) in locks.iter() {
        let depths = row.waiters.iter().map(|waiter| depth(waiter.user, stacks));
        let (class, role) = (*class, *role);
        let depths = depths.collect();
        seen.push(Seen {
            row,
            class,
            role,
            depths,
        });
    }
    let what = idle::judge(&seen, window_ns);
    for ((_, _, row), what) in locks.iter_mut().zip(what) {
        row.what = what;
    }
}

fn depth(stack: u64, stacks: &mut StackTable) -> Option<Depth> {
    let own = stacks.own_depth(stack)?;
    let frames = stacks.user_names(stack);
    let all = frames.iter().filter(|frame| !frame.inlined).count();
    Some(Depth { own, all })
}

/// Class, name and callers of one futex.
fn judge(
    mut row: LockRow,
    known: Option<&futex_lock>,
    stacks: &mut StackTable,
    names: &Names,
) -> Lock {
    let evidence = evidence(&row, known);
    let first_walked = known.map_or(0, |known| known.user_stack);
    let rules = &names.rules;
    let futex = row.identity;
    let heaviest = row.waiters.first().map_or(0, |waiter| waiter.user);
    let frames = stacks.user_names(heaviest);
    let java = Object::of(futex, names).filter(|object| object.fits(&frames));
    let gil = stacks.python_lock(futex.tgid, futex.address);
    let verdict = match (gil, &java) {
        (Some(_), _) => python::gil(),
        (_, Some(object)) => of_java(rules, &row, object, &frames),
        _ => verdict(rules, &row, &evidence, first_walked, stacks),
    };
    let meaning = verdict.meaning;
    let caller = |stack, stacks: &mut StackTable| match java {
        Some(_) => java::caller(&stacks.user_names(stack)).map(Into::into),
        None => caller(rules, stack, meaning.class, stacks),
    };
    if gil.is_some() {
        // A thread that begins to wait for it has just given it away: the next one is not there yet.
        row.holders.iter_mut().for_each(Holder::forget_state);
    }
    for waiter in &mut row.waiters {
        waiter.caller = caller(waiter.user, stacks);
    }
    let mut callers = row
        .waiters
        .iter()
        .filter_map(|waiter| waiter.caller.clone());
    let first = || caller(first_walked, stacks);
    row.first_caller = callers.next().or_else(first);
    row.class = meaning.word;
    row.confidence = verdict.confidence;
    let stacks_of_row = row.waiters.iter().map(|waiter| waiter.user);
    let ids = stacks_of_row.chain([first_walked]).filter(|id| *id != 0);
    let in_glibc = ids.clone().next().is_some_and(|id| is_glibc(id, stacks));
    let is_hidden = match meaning.class {
        Class::Go => ids.clone().any(|id| go_caller(id, stacks).is_some()),
        _ => java
            .as_ref()
            .map_or(meaning.is_own, |object| !object.is_seen),
    };
    let is_python = ids
        .clone()
        .any(|id| python::judge(&stacks.user_names(id)).is_some());
    Lock {
        in_glibc: in_glibc && java.is_none(),
        is_hidden,
        is_python,
        java,
        behind: gil.map_or(meaning.behind.into(), |start| futex.address - start),
        place: known
            .and_then(|known| names.places.get(known.address_id))
            .cloned(),
        class: meaning.class.family(),
        role: meaning.role,
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

/// The verdict on the heaviest stack that says anything, or, without one, on the call alone.
fn verdict(
    rules: &Rules,
    row: &LockRow,
    evidence: &Evidence,
    first: u64,
    stacks: &mut StackTable,
) -> Verdict {
    let mut best: Option<Verdict> = None;
    let ids = row.waiters.iter().map(|waiter| waiter.user).chain([first]);
    for id in ids.filter(|id| *id != 0) {
        let frames = stacks.user_names(id);
        let by_rules = || classify(rules, evidence, calls(&frames));
        let of_python = || python::judge(&frames).map(|verdict| verdict.made_into(rules, &frames));
        let verdict = of_python().unwrap_or_else(by_rules);
        if verdict.confidence >= BY_NAME {
            return verdict;
        }
        if best.is_none_or(|best| verdict.confidence > best.confidence) {
            best = Some(verdict);
        }
    }
    best.unwrap_or_else(|| classify(rules, evidence, [].into_iter()))
}

/// The verdict on an object of Java's, which a function of the program may know better; `frames` are those of the heaviest stack.
fn of_java(rules: &Rules, row: &LockRow, object: &Object, frames: &[Frame]) -> Verdict {
    let functions = object.calls().chain(calls(frames));
    let mut verdict = classify(rules, &Evidence::default(), functions);
    let has_owner = row
        .holders
        .iter()
        .any(|holder| holder.kind == HolderKind::Owner);
    let is_unsaid = verdict.meaning.role == Role::Unsaid;
    if is_unsaid && has_owner {
        verdict = Verdict::owned();
    }
    if is_unsaid && object.is_work {
        verdict.meaning.role = Role::Work;
    } else if is_unsaid && passes_on(row, verdict.meaning.class) {
        verdict.meaning.role = Role::Trouble;
    }
    verdict
}

/// Looks whether threads pass something on that is no work: a permit, a connection of a pool. Takers from a queue wake each other, too, but
/// keep what they took for no longer than that takes.
fn passes_on(row: &LockRow, class: Class) -> bool {
    match class {
        Class::Cond => idle::release_each_other(row) && is_kept(row),
        Class::Sem | Class::Named => idle::release_each_other(row),
        _ => false,
    }
}

fn caller(rules: &Rules, stack: u64, class: Class, stacks: &mut StackTable) -> Option<Arc<str>> {
    if class == Class::Go
        && let Some(caller) = go_caller(stack, stacks)
    {
        return Some(caller);
    }
    let frames = stacks.user_names(stack);
    let is_gil = class == Class::Gil;
    if (is_gil || python::judge(&frames).is_some())
        && let Some(caller) = python::caller(&frames, !is_gil)
    {
        return Some(caller.into());
    }
    futex::first_caller(rules, calls(&frames)).map(Into::into)
}

fn go_caller(stack: u64, stacks: &mut StackTable) -> Option<Arc<str>> {
    let frames = stacks.user_names(stack);
    futex::go_caller(frames.iter().rev().map(|frame| &*frame.name)).map(Into::into)
}

fn is_glibc(stack: u64, stacks: &mut StackTable) -> bool {
    let frames = stacks.user_names(stack);
    let file = frames.last().map_or("", Frame::file_name);
    file.starts_with("libc.so") || file.starts_with("libpthread")
}

fn left_out(hidden: &[(Class, Role, LockRow)]) -> Vec<LeftOut> {
    let mut classes: HashMap<&str, LeftOut> = HashMap::new();
    for (class, role, row) in hidden {
        let sum = classes.entry(row.class).or_insert(LeftOut {
            class: row.class,
            waits: 0,
            total_ns: 0,
            unended_ns: 0,
        });
        // The end of a thread is no lock.
        let may_be_lock = *role == Role::Unsaid && *class != Class::Join;
        if may_be_lock && row.open > 0 && row.open >= row.contentions {
            sum.unended_ns += row.total_ns;
        }
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
