//! Calls that poll, and others, with what each is for.

use fastrand::Rng;

use crate::{End, FD, ON_FD, OTHER, Polling};

/// `MOST_POLLED`
const MOST_POLLED: usize = 4;
/// `POLL_INPUT` and `POLL_OUTPUT`
const INPUT: i16 = 0x41;
const OUTPUT: i16 = 4;
/// `HOST_PIPE`: the other one, of a pipe.
const PIPE: u64 = 2;
/// `POLLS_OTHER`, `POLLS_OUTPUT`, `POLLS_PEERS` and `POLLS_NOTHING` of include/waits.bpf.h
const POLLS_OTHER: u64 = 1 << 31;
const POLLS_OUTPUT: u64 = 1 << 30;
const POLLS_PEERS: u64 = 1 << 29;
const POLLS_NOTHING: u64 = u32::MAX as u64;

/// `struct pollfd`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Polled {
    fd: i32,
    events: i16,
    returned: i16,
}

/// A call with its memory.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
    array: [Polled; MOST_POLLED + 1],
    set: u64,
    pub(crate) arguments: [u64; 5],
    /// Its poll, as `polled_by_arguments` has it.
    pub(crate) polled: u64,
    pub(crate) is_told_by_memory: bool,
}

impl Call {
    pub(crate) fn random(end: &End, rng: &mut Rng) -> Box<Self> {
        let array = std::array::from_fn(|_| Polled {
            fd: [FD as i32, PIPE as i32, PIPE as i32, -1, 4][rng.usize(..5)],
            events: [1, 1, 4, 5, 0x40, 0x2010][rng.usize(..6)],
            returned: rng.i16(..),
        });
        let mut call = Box::new(Self {
            number: [ON_FD, ON_FD, OTHER, u64::from(u32::MAX)][rng.usize(..4)],
            array,
            set: 0,
            arguments: [[FD, rng.u64(1..5)][rng.usize(..2)], 0, 0, 0, 0],
            polled: 0,
            is_told_by_memory: false,
        });
        match rng.u32(..3) {
            0 => call.poll(end, rng),
            1 => call.select(end, rng),
            _ => (),
        }
        call
    }

    /// Its memory may be gone.
    fn poll(&mut self, end: &End, rng: &mut Rng) {
        self.number = libc::SYS_ppoll as u64;
        let memory = [&raw const self.array as u64, 8][usize::from(rng.u32(..8) == 0)];
        let count = rng.usize(..=MOST_POLLED + 1);
        let timeout = rng.u64(..2);
        let garbage = rng.u64(..2) << 32;
        self.arguments = [memory, count as u64 | garbage, timeout, 0, 0];
        self.is_told_by_memory = (1..=MOST_POLLED).contains(&count);
        let entries = self.array[..count].iter().filter(|entry| entry.fd >= 0);
        let entries = entries.map(|entry| (entry.fd as u64, entry.events));
        self.polled = match count {
            0 => nothing(timeout),
            _ if !self.is_told_by_memory => POLLS_OTHER,
            _ if memory == 8 => 0,
            _ => polled(end, &entries.collect::<Vec<_>>(), timeout),
        };
    }

    /// Sets for both directions, or for what is exceptional, tell nothing; high descriptors are not looked for.
    fn select(&mut self, end: &End, rng: &mut Rng) {
        self.number = libc::SYS_pselect6 as u64;
        let bits = [1 << FD, 1 << FD, 1 << PIPE, 1 << 63, 0];
        self.set = bits[rng.usize(..5)] | bits[rng.usize(..5)] | bits[rng.usize(..5)];
        let highest = u64::from(u64::BITS - self.set.leading_zeros());
        let count = rng.choice([highest, 1, 4, 64, 65, 0]).expect("some");
        let set = &raw const self.set as u64;
        let sets = [
            [set, 0, 0],
            [0, set, 0],
            [set, set, 0],
            [0; 3],
            [set, 0, set],
        ];
        let [input, output, exceptional] = sets[[0, 0, 1, 2, 3, 4][rng.usize(..6)]];
        let timeout = rng.u64(..2);
        let garbage = rng.u64(..2) << 32;
        self.arguments = [count | garbage, input, output, exceptional, timeout];
        let is_one = exceptional == 0 && (input == 0) != (output == 0);
        self.is_told_by_memory = (1..=64).contains(&count) && is_one;
        let asked = |fd: &u64| *fd < count && self.set >> fd & 1 == 1;
        let events = if input > 0 { INPUT } else { OUTPUT };
        let entries = (0..64).filter(asked).map(|fd| (fd, events));
        self.polled = if count == 0 || [input, output, exceptional] == [0; 3] {
            nothing(timeout)
        } else if !is_one {
            POLLS_OTHER
        } else if count > 64 {
            0
        } else {
            polled(end, &entries.collect::<Vec<_>>(), timeout)
        };
    }

    /// Its descriptor is the open one.
    pub(crate) fn is_for_file(&self) -> bool {
        let on_fd = self.number == ON_FD && self.arguments[0] == FD;
        on_fd || self.polled & !(POLLS_OTHER | POLLS_OUTPUT | POLLS_PEERS) == FD + 1
    }
}

/// Without a timeout it waits for a signal.
fn nothing(timeout: u64) -> u64 {
    [POLLS_OTHER, POLLS_NOTHING][timeout as usize]
}

/// Descriptors and events: what they are polled for.
fn polled(end: &End, entries: &[(u64, i16)], timeout: u64) -> u64 {
    let kind = |(fd, events): &(u64, i16)| match (*fd, events & OUTPUT > 0) {
        (FD, for_output) => end.polled(for_output),
        (PIPE, false) => Polling::Wakeup,
        _ => Polling::Work,
    };
    match entries {
        [] => nothing(timeout),
        [(fd, events)] if events & OUTPUT > 0 => (fd + 1) | POLLS_OUTPUT,
        [(fd, events)] if events & INPUT > 0 => fd + 1,
        [_] => POLLS_OTHER,
        several if several.iter().any(|entry| kind(entry) == Polling::Work) => POLLS_OTHER,
        several => {
            let peers = several.iter().filter(|entry| kind(entry) == Polling::Peer);
            match peers.collect::<Vec<_>>()[..] {
                [] => POLLS_OTHER,
                [(fd, _)] => fd + 1,
                _ => POLLS_PEERS,
            }
        }
    }
}
