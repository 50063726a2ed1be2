//! The peer that an epoll is for: sets of every kind, ended by every kind of file, or by none, against a model.

#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;

use std::collections::HashMap;

use fastrand::Rng;
use host::Host;

/// `POLLS_PEERS`
const POLLS_PEERS: u64 = 1 << 29;
/// `WATCHED_LEVELS`
const LEVELS: u32 = 5;
/// `HOST_CONNECTIONS` of host/offcputime_epolls.c
const CONNECTIONS: usize = 8;

/// `enum host_kind` of host/offcputime_epolls.c
const EVENTFD: u32 = 0;
const TIMERFD: u32 = 1;
const LISTENER: u32 = 3;
const ACCEPTED: u32 = 4;
const PEER: u32 = 5;
const UDP: u32 = 6;
const PAIR: u32 = 7;
const KINDS: u32 = 9;

/// One end of a connection: the ticks at which it sent and received last, the number of its last byte, how many bytes, and when it asked,
/// us.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct End {
    sent_at: u32,
    received_at: u32,
    write_seq: u32,
    is_gone: u32,
    sent: u64,
    received: u64,
    asked_us: u64,
}

/// `struct host_item` of host/offcputime_epolls.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Item {
    kind: u32,
    connection: u32,
    parent: u32,
    is_right: u32,
    end: End,
}

/// `struct host_wait` of host/offcputime_epolls.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Wait {
    count: u64,
    ready: u64,
    number: u64,
    began_ns: u64,
    now_ns: u64,
    is_over: u64,
}

impl Wait {
    fn random(count: usize, rng: &mut Rng) -> Self {
        let calls = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
        let began_ns = 1_000 * rng.u64(1..6);
        Self {
            count: count as u64,
            ready: rng.u64(..=count as u64),
            number: calls[rng.usize(..2)] as u64,
            began_ns,
            now_ns: began_ns + 1_000 * rng.u64(1..6),
            is_over: rng.u64(..2),
        }
    }

    /// It had begun, and more than half of it was over when somebody asked.
    fn was_asked_late(&self, end: &End) -> bool {
        let asked_ns = (1_000 * end.asked_us).clamp(self.began_ns, self.now_ns);
        2 * asked_ns > self.began_ns + self.now_ns
    }
}

impl End {
    fn random(rng: &mut Rng) -> Self {
        Self {
            // The clock goes round.
            sent_at: u32::MAX.wrapping_add(rng.u32(..3)),
            received_at: u32::MAX.wrapping_add(rng.u32(..3)),
            write_seq: 0,
            is_gone: u32::from(rng.u32(..16) == 0),
            sent: rng.u64(..2),
            received: rng.u64(..2),
            asked_us: rng.u64(..10),
        }
    }

    fn later(&self) -> i32 {
        self.sent_at.wrapping_sub(self.received_at) as i32
    }

    /// The other end has sent something since this one did.
    fn was_told(&self) -> bool {
        self.received > 0 && (self.later() < 0 || self.sent == 0)
    }

    fn has_told(&self) -> bool {
        self.received == 0 || (self.sent > 0 && self.later() > 0)
    }
}

impl Item {
    fn random(ends: &[End], rng: &mut Rng) -> Self {
        let kinds = [
            0, 0, 1, LISTENER, ACCEPTED, ACCEPTED, PEER, PEER, PEER, UDP, PAIR,
        ];
        let any = rng.u32(..KINDS);
        let kind = [kinds[rng.usize(..kinds.len())], any][usize::from(rng.u32(..16) == 0)];
        let connection = rng.usize(..CONNECTIONS);
        let end = match kind {
            PEER => ends[connection],
            _ => End::random(rng),
        };
        Self {
            kind,
            connection: connection as u32,
            end,
            ..Self::default()
        }
    }

    fn may_have_work(&self) -> bool {
        let is_known = [EVENTFD, TIMERFD, PEER, UDP, PAIR].contains(&self.kind);
        !is_known || self.end.is_gone > 0
    }

    fn is_request(&self) -> bool {
        self.kind == ACCEPTED && self.end.is_gone == 0 && self.end.was_told()
    }
}

/// Descriptor of the item at a place, and 1.
fn told(at: usize) -> u64 {
    6 + 2 * at as u64
}

/// Hangs the items into a tree of any shape; tells how many levels it has.
fn hang(items: &mut [Item], rng: &mut Rng) -> u32 {
    let mut free = vec![(0, 0, 1)];
    let mut levels = 0;
    for (at, item) in items.iter_mut().enumerate() {
        let (parent, is_right, level) = free.swap_remove(rng.usize(..free.len()));
        (item.parent, item.is_right) = (parent, is_right);
        levels = levels.max(level);
        free.extend([0, 1].map(|right| (at as u32 + 1, right, level + 1)));
        // Flat trees hold more.
        free.sort_by_key(|(.., level)| u32::MAX - level);
        if rng.u32(..4) > 0 {
            let shallow = free.len() - 1;
            free.swap(0, shallow);
        }
    }
    levels
}

/// Knowledge of connections: the last byte that each had sent when it was told something.
#[derive(Default)]
struct Model(HashMap<u32, u32>);

impl Model {
    /// It was ended by this one.
    fn ended(&mut self, wait: &Wait, item: &Item, at: usize) -> u64 {
        if item.kind != PEER || item.end.is_gone > 0 {
            return 0;
        }
        let has_asked = self.0.get(&item.connection) != Some(&item.end.write_seq);
        if wait.is_over > 0 {
            self.0.insert(item.connection, item.end.write_seq);
        }
        [0, told(at)][usize::from(has_asked && !wait.was_asked_late(&item.end))]
    }

    /// An answer is due, by what is known and the ticks; of a new connection by these alone, and that is known from now on.
    fn owes(&mut self, item: &Item) -> bool {
        let end = &item.end;
        if let Some(before) = self.0.get(&item.connection) {
            return *before != end.write_seq && !end.was_told();
        }
        let owes = end.has_told();
        let before = end.write_seq.wrapping_sub(u32::from(owes));
        self.0.insert(item.connection, before);
        owes
    }

    /// Nobody has ended it.
    fn open(&mut self, wait: &Wait, items: &[Item]) -> u64 {
        let mut owing = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let is_peer = item.kind == PEER && item.end.is_gone == 0;
            if is_peer && self.owes(item) && !wait.was_asked_late(&item.end) {
                owing.push(told(at));
            }
        }
        let serves = items.iter().any(Item::may_have_work);
        match owing[..] {
            _ if serves && !items.iter().any(Item::is_request) => 0,
            [] => 0,
            [one] => one,
            _ => POLLS_PEERS,
        }
    }
}

#[test]
fn an_epoll_is_for_whom_it_ended_by_or_for_the_peer_that_owes_an_answer() {
    let object = host::compile("offcputime_epolls");
    let (host, mut rng) = (Host::load(&object), Rng::with_seed(1));
    let mut model = Model::default();
    let mut ends = [End::default(); CONNECTIONS];
    let (mut peers, mut several, mut deep) = (0, 0, 0);
    for step in 0..200_000 {
        let end = &mut ends[rng.usize(..CONNECTIONS)];
        let write_seq = end.write_seq + rng.u32(..2);
        *end = End {
            write_seq,
            ..End::random(&mut rng)
        };
        let count = [rng.usize(1..5), rng.usize(1..41)][usize::from(rng.u32(..8) == 0)];
        let mut items: Vec<_> = (0..count).map(|_| Item::random(&ends, &mut rng)).collect();
        // Each connection has one descriptor.
        let mut seen = [false; CONNECTIONS];
        items.retain(|item| {
            item.kind != PEER || !std::mem::replace(&mut seen[item.connection as usize], true)
        });
        let levels = hang(&mut items, &mut rng);
        let wait = Wait::random(items.len(), &mut rng);
        let expected = match wait.ready.checked_sub(1) {
            Some(at) => model.ended(&wait, &items[at as usize], at as usize),
            None if levels > LEVELS => 0,
            None => model.open(&wait, &items),
        };
        let found = host.ask::<u64>("host_epolls", (items.as_ptr(), &wait));
        assert_eq!(found, expected, "step {step}, {wait:?}: {items:#?}");
        peers += u32::from(found > 0);
        several += u32::from(found == POLLS_PEERS);
        deep += u32::from(wait.ready == 0 && levels > LEVELS);
    }
    assert!(
        peers > 10_000 && several > 200 && deep > 100,
        "{peers} {several} {deep}"
    );
}

#[test]
fn another_call_is_no_epoll() {
    let object = host::compile("offcputime_epolls");
    let host = Host::load(&object);
    let items = [Item {
        kind: PEER,
        ..Item::default()
    }];
    let mut wait = Wait {
        count: 1,
        ready: 1,
        number: libc::SYS_read as u64,
        ..Wait::default()
    };
    let mut ask = |number| {
        wait.number = number as u64;
        host.ask::<u64>("host_epolls", (items.as_ptr(), &wait))
    };
    assert_eq!(
        [libc::SYS_read, libc::SYS_epoll_pwait].map(&mut ask),
        [0, told(0)]
    );
}
