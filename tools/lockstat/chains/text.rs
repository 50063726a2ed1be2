//! Chains for people. At most 80 columns.

use std::collections::HashMap;
use std::io::{self, Write};

use profile::escape::terminal;
use profile::rank::Rank;
use profile::style::Style;
use profile::table::{Column, Table};
use profile::text::{WIDTH, comm, cut, sentence};
use profile::units;

use super::{Chain, Link};

/// Chains that are shown.
const SHOWN: usize = 5;
/// Of the lines behind the first.
const INDENT: usize = 8;

/// Chains alike but for the threads.
#[derive(Clone)]
struct Group {
    waits: u64,
    links: Vec<Link>,
    /// Threads at its beginning.
    threads: usize,
}

/// Writes the most expensive ones; what is the tail of a longer one is told there.
pub(crate) fn write(chains: &[Chain], style: Style, out: &mut impl Write) -> io::Result<()> {
    let groups = whole(together(chains));
    if groups.is_empty() {
        return Ok(());
    }
    let (title, lines) = beginnings(&groups).lines(WIDTH);
    writeln!(out, "\n{}", style.bold(title))?;
    for (group, line) in groups.iter().zip(lines) {
        writeln!(out, "{line}")?;
        write_rest(group, out)?;
    }
    if groups.len() > SHOWN {
        let more = units::counted((groups.len() - SHOWN) as u64, "other chains");
        writeln!(out, "{:>INDENT$}{more}", "")?;
    }
    Ok(())
}

/// What makes chains alike: names of the locks and of the threads.
fn path(links: &[Link]) -> Vec<(&str, &str, &str)> {
    links
        .iter()
        .map(|link| {
            let holder = link.holder.as_ref().map_or("", |task| &*task.comm);
            (&*link.lock.name, &*link.waiter.comm, holder)
        })
        .collect()
}

fn together(chains: &[Chain]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<Vec<(&str, &str, &str)>, usize> = HashMap::new();
    for chain in chains {
        let at = *known.entry(path(&chain.links)).or_insert(groups.len());
        let Some(group) = groups.get_mut(at) else {
            groups.push(Group {
                waits: chain.waits,
                links: chain.links.clone(),
                threads: 1,
            });
            continue;
        };
        group.waits += chain.waits;
        group.threads += 1;
        for (sum, link) in group.links.iter_mut().zip(&chain.links) {
            sum.ns += link.ns;
        }
    }
    groups.rank_by_key(|group| std::cmp::Reverse(group.links[0].ns));
    groups
}

/// Without those that are mostly part of a longer one.
fn whole(groups: Vec<Group>) -> Vec<Group> {
    let mut tails: HashMap<Vec<(&str, &str, &str)>, u64> = HashMap::new();
    for long in &groups {
        for at in 1..long.links.len() {
            let ns = tails.entry(path(&long.links[at..])).or_default();
            *ns = long.links[at].ns.max(*ns);
        }
    }
    let is_tail = |one: &Group| {
        let in_longer = tails.get(&path(&one.links));
        in_longer.is_some_and(|ns| ns * 2 >= one.links[0].ns)
    };
    groups.iter().filter(|one| !is_tail(one)).cloned().collect()
}

fn beginnings(groups: &[Group]) -> Table<'_> {
    let mut table = Table::new([
        Column::right("WAITED", 7),
        Column::right("WAITS", 6),
        Column::left("WHO WAITED FOR WHOM", 0),
    ]);
    for group in groups.iter().take(SHOWN) {
        let first = &group.links[0];
        let who = match group.threads {
            1 => format!("{} {}", comm(&first.waiter.comm), first.waiter.tid),
            n => format!("{}, {n} chains", comm(&first.waiter.comm)),
        };
        let numbers = [units::duration(first.ns), units::count(group.waits)];
        table.fitted(numbers, move |room| {
            cut(&format!("{who} for {}", lock(first)), room)
        });
    }
    table
}

/// Who waited for whom behind the first.
fn write_rest(group: &Group, out: &mut impl Write) -> io::Result<()> {
    for (at, link) in group.links.iter().enumerate() {
        let next = group.links.get(at + 1);
        let next = next.map(|next| {
            let meanwhile = units::duration(next.ns);
            format!("who waited {meanwhile} of it for {}", lock(next))
        });
        let parts: Vec<String> = [held(link, group.threads)]
            .into_iter()
            .chain(next)
            .collect();
        for line in sentence(&parts, ",", WIDTH - INDENT) {
            writeln!(out, "{:>INDENT$}{}", "", cut(&line, WIDTH - INDENT))?;
        }
    }
    Ok(())
}

fn lock(link: &Link) -> String {
    format!("{} {}", link.lock.class, terminal(&link.lock.name))
}

fn held(link: &Link, threads: usize) -> String {
    match &link.holder {
        Some(task) if threads == 1 => format!("held by {} {}", comm(&task.comm), task.tid),
        Some(task) => format!("held by {}", comm(&task.comm)),
        None => "holder not recorded".into(),
    }
}
