//! Turns of looks and walks, until a wait of Python's lasts for one.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use bpf::lockstat_now::LockstatNowSkel;
use loader::iterate;
use stacks::unwind::Method;
use symbols::Symbolizer;

use super::servers::Backends;
use super::snapshot::{Looks, Snapshot};
use super::thread::Threads;
use super::walks;

/// Times to look at waits of Python's that are over before their stacks have been read, and time after which no more is begun.
const MOST_LOOKS: usize = 20;
const LONGEST: Duration = Duration::from_secs(1);

/// Looks; `method`: how user stacks are walked. Where waits of Python's ended before that was done, once more: by then whatever takes long
/// is known.
pub(crate) fn take(
    skel: &LockstatNowSkel<'_>,
    symbolizer: Symbolizer,
    method: Method,
    with_statements: bool,
) -> Result<Snapshot> {
    let servers = Backends::find(with_statements);
    let look = || Threads::decode(&iterate::run(skel.links.look.as_ref())?);
    let begun = Instant::now();
    let looks = Looks::take(skel, &servers, look)?;
    let mut table = walks::table(skel, symbolizer, method, &looks)?;
    let mut best = walks::settle(looks, &mut table, look)?;
    let mut is_complete = best.moved == 0;
    for _ in 1..MOST_LOOKS {
        if is_complete || begun.elapsed() > LONGEST {
            break;
        }
        let next = walks::settle(Looks::take(skel, &servers, look)?, &mut table, look)?;
        // None at one moment are luck where waits come and go.
        is_complete = next.moved == 0 && next.shown.0 > 0;
        if next.rank() > best.rank() {
            best = next;
        }
    }
    let mut snapshot = best.snapshot;
    let holders = snapshot
        .waits
        .iter()
        .filter_map(|wait| wait.holder.thread());
    let said = holders.filter_map(|holder| {
        let thread = &snapshot.threads.all[holder];
        Some((holder, servers.says(thread, &best.locked)?))
    });
    snapshot.said = said.collect();
    snapshot.statements = statements(&snapshot, &servers, &best.locked);
    table.count_losses(&mut snapshot.losses);
    snapshot.unnamed = table.describe_unnamed();
    Ok(snapshot)
}

/// Statements of all who wait and who are waited for.
fn statements(
    snapshot: &Snapshot,
    servers: &Backends,
    locked: &HashSet<u64>,
) -> HashMap<usize, String> {
    let waits = snapshot.waits.iter();
    let involved = waits.flat_map(|wait| {
        let others = wait.holder.thread().into_iter();
        others.chain([wait.waiter]).chain(wait.told.also.clone())
    });
    let involved: HashSet<usize> = involved.collect();
    let statement = |thread: usize| {
        let said = servers.statement(&snapshot.threads.all[thread], locked)?;
        Some((thread, said))
    };
    involved.into_iter().filter_map(statement).collect()
}
