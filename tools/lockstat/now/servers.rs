//! Processes of PostgreSQL's at one moment: what they say that they wait for, and behind whom, as the server's own table of locks has it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use symbols::memory;
use symbols::places::Places;

use super::lock::{Holder, Identity, Told, Wait, Waited};
use super::thread::{Thread, Threads};
use crate::lockstat::postgres::{self, Backend, Blocked, Class, Servers};

/// Pieces of servers' memory that are read.
const MOST: u32 = 1 << 16;
/// From 1970 to 2000, where the server's time begins.
const EPOCH: Duration = Duration::from_secs(946_684_800);

/// A server, and an address and a length in the memory of its processes.
type Piece = (u32, u64, usize);

/// All servers' processes.
#[derive(Default)]
pub(crate) struct Backends {
    by_tgid: HashMap<u32, Backend>,
    servers: Servers,
    /// Address of the variable that has a statement's, by server; none where statements were not asked for.
    statements_at: HashMap<u32, u64>,
    /// What was read of the memory that a server's processes share, once for all.
    memory: RefCell<HashMap<Piece, Option<Vec<u8>>>>,
    reads: Cell<u32>,
}

impl Backends {
    /// Those that there are now; `with_statements`: they may be asked for theirs.
    pub(super) fn find(with_statements: bool) -> Self {
        let mut found = Self::default();
        let mut places = Places::default();
        for backend in postgres::backends(&mut places) {
            found.servers.learn(backend.server);
            if with_statements && !found.statements_at.contains_key(&backend.server) {
                let at = places.variable_of_program(backend.server, postgres::STATEMENT);
                found
                    .statements_at
                    .extend(at.map(|at| (backend.server, at)));
            }
            found.by_tgid.insert(backend.tgid, backend);
        }
        found
    }

    /// Looks whether a thread asked for is of a server that does not say what its processes wait for.
    pub(super) fn are_silent(&self, threads: &Threads) -> bool {
        let is_silent = |thread: &Thread| {
            let backend = self.by_tgid.get(&thread.task.tgid);
            thread.wanted && backend.is_some_and(|backend| backend.pointer_at.is_none())
        };
        threads.all.iter().any(is_silent)
    }

    /// The wait of the thread with this index for others; `None`: it is of no server, or says that it waits for something else.
    pub(super) fn wait(
        &self,
        threads: &Threads,
        index: usize,
        locked: &HashSet<u64>,
    ) -> Option<Wait> {
        let thread = &threads.all[index];
        let (backend, at, event) = self.event(thread, locked)?;
        let class = Class::of(event);
        matches!(class, Class::Lock | Class::Lwlock | Class::BufferPin).then_some(())?;
        let read = |at: u64, buffer: &mut [u8]| self.read(backend, at, buffer);
        let kind = (event & 0xff) as u8;
        let is_lock = class == Class::Lock;
        let blocked = is_lock.then(|| postgres::blocked(at, kind, thread.own_tid, &read));
        let blocked = blocked.flatten();
        let event = postgres::event_name(self.servers.release(backend.server), event);
        let (holder, also) = blocked.as_ref().map_or_else(
            || (Holder::Unrecorded, Vec::new()),
            |blocked| in_the_way(threads, thread, blocked),
        );
        let hidden = Identity::Hidden {
            waiter: index,
            space: thread.space,
        };
        Some(Wait {
            waiter: index,
            kind: Waited::Server(class),
            lock: blocked.as_ref().map_or(hidden, |blocked| {
                Identity::Server(backend.server, blocked.tag)
            }),
            name: blocked
                .as_ref()
                .map_or(event, |blocked| blocked.tag.to_string()),
            holder,
            // The server looks for deadlocks itself, by and by.
            timed: is_lock,
            private: false,
            is_over: false,
            told: Told {
                since_ns: blocked.and_then(|blocked| since_ns(blocked.since_us)),
                also,
            },
        })
    }

    /// What a thread says that it waits for: `client ClientRead`; `None`: nothing, or it is of no server.
    pub(super) fn says(&self, thread: &Thread, locked: &HashSet<u64>) -> Option<String> {
        let (backend, _, event) = self.event(thread, locked)?;
        let name = postgres::event_name(self.servers.release(backend.server), event);
        (event != 0).then(|| format!("{} {name}", Class::of(event).word()))
    }

    /// The statement that a thread is at, without its data; `None`: it is at none, or statements were not asked for.
    pub(super) fn statement(&self, thread: &Thread, locked: &HashSet<u64>) -> Option<String> {
        let backend = self.asleep(thread, locked)?;
        let at = self.statements_at.get(&backend.server)?;
        postgres::statement(backend.tgid, *at)
    }

    fn event(&self, thread: &Thread, locked: &HashSet<u64>) -> Option<(&Backend, u64, u32)> {
        let backend = self.asleep(thread, locked)?;
        let (at, event) = postgres::event(backend.tgid, backend.pointer_at?)?;
        Some((backend, at, event))
    }

    /// A sleeping process of a server's whose memory may be read.
    fn asleep(&self, thread: &Thread, locked: &HashSet<u64>) -> Option<&Backend> {
        let is_its = thread.task.tid == thread.task.tgid && thread.is_asleep();
        let is_readable = is_its && !locked.contains(&thread.space);
        self.by_tgid.get(&thread.task.tgid).filter(|_| is_readable)
    }

    fn read(&self, backend: &Backend, at: u64, buffer: &mut [u8]) -> bool {
        let fresh = || {
            let reads = self.reads.get() + 1;
            self.reads.set(reads);
            let mut bytes = vec![0; buffer.len()];
            let read = (reads <= MOST).then(|| memory::read(backend.tgid, at, &mut bytes).ok());
            (read.flatten() == Some(bytes.len())).then_some(bytes)
        };
        let mut known = self.memory.borrow_mut();
        let piece = (backend.server, at, buffer.len());
        let bytes = known.entry(piece).or_insert_with(fresh);
        let read = bytes.as_ref().map(|bytes| buffer.copy_from_slice(bytes));
        read.is_some()
    }
}

/// Who has the lock, and all others in the way; PIDs are as the waiter's own.
fn in_the_way(threads: &Threads, waiter: &Thread, blocked: &Blocked) -> (Holder, Vec<usize>) {
    let of = |pids: &[u32]| {
        let known = pids
            .iter()
            .filter_map(|pid| threads.as_known_to(waiter, *pid));
        known.collect::<Vec<usize>>()
    };
    let (hard, soft) = (of(&blocked.hard), of(&blocked.soft));
    let holder = match (hard.first(), soft.first()) {
        (Some(first), _) => Holder::Thread(*first),
        (None, Some(first)) => Holder::Ahead(*first),
        (None, None) => Holder::Unrecorded,
    };
    let all = hard.into_iter().chain(soft);
    (holder, all.skip(1).collect())
}

/// Time since then; `None`: the server does not say, or its clock was another.
fn since_ns(since_us: i64) -> Option<u64> {
    let since = Duration::from_micros(u64::try_from(since_us).ok().filter(|since| *since > 0)?);
    let began = SystemTime::UNIX_EPOCH
        .checked_add(EPOCH)?
        .checked_add(since)?;
    let passed = SystemTime::now().duration_since(began).ok()?;
    u64::try_from(passed.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_began_after_2000_and_before_now() {
        let since_2000 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + EPOCH);
        let now_us = i64::try_from(since_2000.unwrap().as_micros()).unwrap();
        let passed = since_ns(now_us - 3_000_000).unwrap();
        assert!(
            (3_000_000_000..60_000_000_000).contains(&passed),
            "{passed}"
        );
        for nonsense in [0, -1, i64::MAX, now_us + 60_000_000] {
            assert_eq!(since_ns(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn who_has_a_lock_comes_before_who_is_to_have_it() {
        let mut threads = Threads::default();
        for tid in [10, 11, 12] {
            let mut thread = Thread::made_up("postgres");
            thread.own_tid = tid;
            threads.push(thread);
        }
        let blocked = |hard: &[u32], soft: &[u32]| Blocked {
            tag: postgres::Tag::default(),
            since_us: 0,
            hard: hard.into(),
            soft: soft.into(),
        };
        let of = |hard, soft| in_the_way(&threads, &threads.all[0], &blocked(hard, soft));
        assert_eq!(of(&[11, 9], &[12]), (Holder::Thread(1), vec![2]));
        assert_eq!(of(&[], &[12]), (Holder::Ahead(2), vec![]));
        // A PID of nobody's.
        assert_eq!(of(&[9], &[]), (Holder::Unrecorded, vec![]));
    }
}
