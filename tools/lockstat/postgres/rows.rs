//! Rows of waits of PostgreSQL's processes: one for each event of a server.

use std::sync::Arc;

use profile::frame::Frame;
use stacks::StackTable;

use crate::lockstat::futex::{Call, calls};
use crate::lockstat::row::LeftOut;
use crate::lockstat::row::{For, LockName, LockRow, Side};

use super::events::{self, Class};
use super::servers::Servers;

/// `LOCK_OF_SERVER` of the BPF side.
const OF_SERVER: u8 = 0xfe;

/// Beginnings of functions in which a server's processes wait, whatever for: who calls them says more.
const WAITING: [&str; 14] = [
    "ConditionVariable",
    "DoLockModesConflict",
    "File",
    "LWLock",
    "LockAcquire",
    "LockTuple",
    "PGSemaphore",
    "ProcSleep",
    "ProcWaitForSignal",
    "WaitEventSet",
    "WaitLatch",
    "XactLockTableWait",
    "mdread",
    "pg_",
];
/// Frames that are looked at.
const MAX_FRAMES: usize = 32;

/// Takes the rows of servers' processes out of all.
pub(crate) fn take(rows: &mut Vec<LockRow>) -> Vec<LockRow> {
    let is_ours =
        |row: &LockRow| row.identity.side == Side::User && row.identity.class == OF_SERVER;
    let (ours, others) = std::mem::take(rows).into_iter().partition(is_ours);
    *rows = others;
    ours
}

/// Names them. Those that wait for work, and whose classes were not asked for, come as sums.
pub(crate) fn name(
    rows: Vec<LockRow>,
    servers: &Servers,
    asked: &[Class],
    stacks: &mut StackTable,
) -> (Vec<LockRow>, Vec<LeftOut>) {
    let mut shown = Vec::new();
    let mut left_out: Vec<LeftOut> = Vec::new();
    for mut row in rows {
        let class = Class::of(event_of(&row));
        if what(&row, servers) != For::Work || asked.contains(&class) {
            name_one(&mut row, servers, stacks);
            shown.push(row);
            continue;
        }
        let (waits, total_ns) = (row.contentions, row.total_ns);
        match left_out.iter_mut().find(|sum| sum.class == class.word()) {
            Some(sum) => {
                sum.waits += waits;
                sum.total_ns += total_ns;
            }
            None => left_out.push(LeftOut {
                class: class.word(),
                waits,
                total_ns,
                unended_ns: 0,
            }),
        }
    }
    (shown, left_out)
}

/// Its number: no larger ones come from the BPF side.
fn event_of(row: &LockRow) -> u32 {
    row.identity.address as u32
}

fn what(row: &LockRow, servers: &Servers) -> For {
    events::what(servers.release(row.identity.tgid), event_of(row))
}

fn name_one(row: &mut LockRow, servers: &Servers, stacks: &mut StackTable) {
    let (event, server) = (event_of(row), row.identity.tgid);
    let class = Class::of(event);
    let name = events::name(servers.release(server), event);
    row.class = class.word();
    row.what = what(row, servers);
    row.confidence = 100;
    row.name = LockName {
        own: match servers.are_several() {
            true => format!("{name} of server {server}"),
            false => name,
        },
        kind: String::new(),
    };
    for waiter in &mut row.waiters {
        waiter.caller = caller(&stacks.user_names(waiter.user));
    }
    row.first_caller = row.waiters.iter().find_map(|waiter| waiter.caller.clone());
}

/// First function of the server's that has a name and is not there to wait.
fn caller(frames: &[Frame]) -> Option<Arc<str>> {
    let is_caller = |(name, file): &Call<'_>| {
        let base = file.and_then(|file| file.rsplit('/').next());
        let is_library = base.is_some_and(|base| base.contains(".so") || base.starts_with('['));
        let is_nameless = name.contains("+0x") || name.starts_with('[');
        let is_wait = WAITING.iter().any(|wait| name.starts_with(wait));
        !is_library && !is_nameless && !is_wait
    };
    let mut calls = calls(frames).take(MAX_FRAMES);
    calls.find(is_caller).map(|(name, _)| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lockstat::row::tests::row;
    use crate::made_up::frame;

    fn of_server(event: u32, total_ns: u64) -> LockRow {
        let mut row = row(total_ns);
        row.identity.side = Side::User;
        row.identity.class = OF_SERVER;
        row.identity.address = event.into();
        row.identity.tgid = 7;
        row
    }

    #[test]
    fn only_rows_of_servers_are_taken() {
        let mut futex = row(3);
        futex.identity.side = Side::User;
        futex.identity.class = 0;
        let mut rows = vec![row(1), of_server(0x0300_0005, 2), futex];
        let ours = take(&mut rows);
        let times =
            |rows: &[LockRow]| -> Vec<u64> { rows.iter().map(|row| row.total_ns).collect() };
        assert_eq!((times(&ours), times(&rows)), (vec![2], vec![1, 3]));
    }

    #[test]
    fn functions_that_only_wait_are_passed_over() {
        let stack = |names: &[(&str, &str)]| -> Vec<Frame> {
            let frames = names.iter().map(|(name, module)| Frame {
                module: Some((*module).into()),
                ..frame(name)
            });
            frames.collect()
        };
        let program = "/usr/lib/postgresql/15/bin/postgres";
        let frames = stack(&[
            ("main", program),
            ("heap_update", program),
            ("XactLockTableWait", program),
            ("LockAcquireExtended", program),
            ("postgres+0x3f2a10", program),
            ("ProcSleep", program),
            ("WaitEventSetWait", program),
            ("epoll_wait", "/lib/x86_64-linux-gnu/libc.so.6"),
        ]);
        assert_eq!(caller(&frames).as_deref(), Some("heap_update"));
        assert_eq!(caller(&frames[2..]), None);
        assert_eq!(caller(&[]), None);
    }
}
