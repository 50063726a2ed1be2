//! The file or connection that a wait is for: descriptors of every kind, in calls of every kind, against a model.

#[path = "host/poll_calls.rs"]
mod calls;
#[expect(dead_code, reason = "it has machines for tools, too")]
mod host;

use std::collections::HashMap;

use calls::Call;
use fastrand::Rng;
use host::Host;

/// `MAX_ENDPOINTS`
const MOST: u64 = 1024;
/// Numbers of system calls: one on a descriptor, and one that does neither that nor poll.
const ON_FD: u64 = 500;
const OTHER: u64 = 501;
/// `HOST_FD` of host/offcputime_endpoints.c: the one descriptor that is open.
const FD: u64 = 3;

const FILE: u8 = 1;
const UNIX: u8 = 2;
const IPV4: u8 = 3;
const IPV6: u8 = 4;

const TCP: u16 = 6;
const UDP: u16 = 17;
const SCTP: u16 = 132;
const MPTCP: u16 = 262;

const REGULAR: u32 = 8;
const SOCKET: u32 = 12;

/// `struct host_end` of host/offcputime_endpoints.c.
#[derive(Clone, Debug, Default)]
#[repr(C)]
struct End {
    inode: u64,
    address: [u64; 2],
    device: u32,
    mode: u32,
    family: u16,
    kind: u16,
    protocol: u16,
    own_port: u16,
    other_port: u16,
    backlog: u16,
    own_name: u16,
    other_name: u16,
    namesakes: u16,
    is_for_disk: u16,
    generation: u32,
    name: u32,
    sent: u32,
    received: u32,
    is_paired: u32,
    has_bytes: u32,
}

/// `struct endpoint`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Endpoint {
    address: [u64; 2],
    port: u16,
    protocol: u8,
    kind: u8,
    is_accepted: u8,
    pad: [u8; 3],
}

/// `enum polled_kind`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polling {
    Work,
    Wakeup,
    Peer,
}

/// `struct host_told` of host/offcputime_endpoints.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Told {
    /// Its poll: while it is current, later, as long as nobody has told more, and then.
    polled: u64,
    polled_untold: u64,
    polled_told: u64,
    is_known: u64,
    /// Its number, which no other endpoint has.
    hash: u64,
    endpoint: Endpoint,
    path: u64,
}

impl End {
    fn random(rng: &mut Rng) -> Self {
        Self {
            inode: rng.u64(1..30),
            address: [rng.u64(..4), rng.u64(..2)],
            device: rng.u32(..3),
            mode: [1, 2, 4, 6, REGULAR, SOCKET, SOCKET, SOCKET, SOCKET][rng.usize(..9)],
            family: [1, 2, 10, 16][rng.usize(..4)],
            kind: [1, 2, 5][rng.usize(..3)],
            protocol: [SCTP, TCP, UDP, MPTCP][rng.usize(..4)],
            own_port: rng.u16(..3),
            other_port: rng.u16(..3) << 8,
            backlog: rng.u16(..2),
            own_name: rng.u16(..8),
            other_name: rng.u16(..8),
            namesakes: rng.u16(1..3),
            is_for_disk: u16::from(rng.u32(..4) == 0),
            generation: rng.u32(..2),
            name: rng.u32(..2),
            // The clock goes round.
            sent: u32::MAX.wrapping_add(rng.u32(..3)),
            received: u32::MAX.wrapping_add(rng.u32(..3)),
            is_paired: rng.u32(..2),
            has_bytes: rng.u32(..4),
        }
    }

    /// It has been told where to, by the Internet; or it is a stream, whose other end is always there.
    fn has_peer(&self) -> bool {
        match self.family {
            1 => self.kind == 1,
            2 | 10 => [1, 2].contains(&self.kind) && self.other_port > 0,
            _ => false,
        }
    }

    fn is_connected(&self) -> bool {
        self.has_peer() && (self.family != 1 || self.other_name > 0)
    }

    /// The other end of its pipe is nowhere.
    fn polled(&self, for_output: bool) -> Polling {
        if self.mode != SOCKET || !self.has_peer() {
            return Polling::Work;
        }
        let is_owed = match self.has_bytes {
            0 | 1 => true,
            2 => false,
            _ => self.sent.wrapping_sub(self.received) as i32 >= 0,
        };
        let is_owed = self.protocol != TCP || is_owed;
        match self.family {
            1 if self.is_paired > 0 && !for_output => Polling::Wakeup,
            1 => Polling::Work,
            _ if self.is_accepted() => Polling::Work,
            _ if for_output || is_owed => Polling::Peer,
            _ => Polling::Work,
        }
    }

    /// accept(2) gave it: TCP's keep the backlog of the socket that listens, Unix sockets its name.
    fn is_accepted(&self) -> bool {
        match self.family {
            2 | 10 => self.backlog > 0,
            1 => {
                let is_shared = self.namesakes > 1 || self.other_name == 0;
                self.kind != 2 && self.own_name > 0 && is_shared
            }
            _ => false,
        }
    }

    /// `place`: where the kernel has a name by its number.
    fn socket(&self, place: impl Fn(u16) -> u64) -> Option<Told> {
        let is_accepted = self.is_accepted();
        let mut endpoint = Endpoint {
            is_accepted: is_accepted.into(),
            ..Endpoint::default()
        };
        let mut path = 0;
        match self.family {
            1 => {
                let name = [self.other_name, self.own_name][usize::from(is_accepted)];
                endpoint.kind = UNIX;
                endpoint.address[0] = place(name);
                path = u64::from_ne_bytes([b'/', b'a' + name as u8, 0, 0, 0, 0, 0, 0]);
                (name > 0).then_some(())?;
            }
            family @ (2 | 10) => {
                endpoint.kind = if family == 2 { IPV4 } else { IPV6 };
                // SCTP has no name here.
                endpoint.protocol = match self.protocol {
                    TCP | MPTCP => 6,
                    UDP => 17,
                    _ => return None,
                };
                endpoint.port = [self.other_port, self.own_port][usize::from(is_accepted)];
                endpoint.address = match (is_accepted, family) {
                    (true, _) => [0; 2],
                    (_, 2) => [self.address[0] & u64::from(u32::MAX), 0],
                    _ => self.address,
                };
                (endpoint.port > 0).then_some(())?;
            }
            _ => return None,
        }
        Some(Told {
            is_known: 1,
            endpoint,
            path,
            ..Told::default()
        })
    }

    fn told(&self, place: impl Fn(u16) -> u64) -> Option<Told> {
        let file = || Told {
            is_known: 1,
            endpoint: Endpoint {
                address: [self.inode, self.device.into()],
                kind: FILE,
                ..Endpoint::default()
            },
            path: self.inode,
            ..Told::default()
        };
        match self.mode {
            SOCKET if self.is_for_disk == 0 => self.socket(place),
            4 | 6 | REGULAR => Some(file()),
            _ => None,
        }
    }
}

fn load() -> Host {
    let object = host::compile("offcputime_endpoints");
    let host = Host::load(&object);
    let mut on_fd = [0_u64; 8];
    on_fd[ON_FD as usize / 64] |= 1 << (ON_FD % 64);
    host.tell("host_calls", (&on_fd,));
    host
}

#[test]
fn a_wait_is_for_what_its_descriptor_is_of() {
    let (host, mut rng) = (load(), Rng::with_seed(1));
    let place = |number: u16| host.ask::<u64>("host_place", (u32::from(number),));
    let mut known = HashMap::new();
    let mut waits = 0;
    for step in 0..150_000 {
        let end = End::random(&mut rng);
        let call = Call::random(&end, &mut rng);
        let told = end.told(place).filter(|_| call.is_for_file());
        let expected = Told {
            polled: call.polled,
            polled_untold: if call.is_told_by_memory {
                0
            } else {
                call.polled
            },
            polled_told: call.polled,
            ..told.unwrap_or_default()
        };
        let mut told = host.told::<Told>("host_waits", (&end, call.number, &call.arguments));
        if told.is_known == 1 {
            waits += 1;
            let file = (end.mode != SOCKET).then_some((end.generation, end.name));
            let expected = (expected.endpoint, expected.path, file);
            let one = known.entry(told.hash).or_insert(expected);
            assert_eq!(*one, expected, "step {step}, {end:?}");
        }
        told.hash = 0;
        // Above a file's device is whatever tells it from others.
        if told.endpoint.kind == FILE {
            told.endpoint.address[1] &= u64::from(u32::MAX);
        }
        assert_eq!(told, expected, "step {step}, {call:?}, {end:?}");
    }
    assert!(waits > 10_000 && known.len() > 100, "{waits}");
    assert_eq!(host.ask::<u64>("host_full", ()), 0);
}

/// Unix sockets are so only as streams whose other end has a name: it was asked for.
#[test]
fn a_stream_with_another_end_is_connected() {
    let (host, mut rng) = (load(), Rng::with_seed(2));
    for _ in 0..10_000 {
        let end = End::random(&mut rng);
        let expected = end.is_connected();
        let found = host.ask::<bool>("host_is_connected", (&end,));
        assert_eq!(found, expected, "{end:?}");
    }
}

#[test]
fn waits_for_files_beyond_the_tables_room_are_counted() {
    let host = load();
    let mut beyond = 0;
    for inode in 1..=MOST + 100 {
        let end = End {
            inode,
            mode: REGULAR,
            ..End::default()
        };
        let told = host.told::<Told>("host_waits", (&end, ON_FD, &[FD, 0, 0, 0, 0]));
        beyond += 1 - told.is_known;
    }
    assert_eq!((beyond, host.ask::<u64>("host_full", ())), (100, 100));
}
