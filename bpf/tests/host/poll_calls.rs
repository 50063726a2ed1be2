//! Calls that poll, and others, with what each is for.

use fastrand::Rng;

use crate::{End, FD, ON_FD, OTHER, Polling};

/// `MOST_POLLED`
const MOST_POLLED: usize = 4;
/// `HOST_PIPE`: the other one, of a pipe.
const PIPE: u64 = 2;
/// `POLLS_OTHER`, `POLLS_OUTPUT` and `POLLS_NOTHING` of include/waits.bpf.h
const POLLS_OTHER: u64 = 1 << 31;
const POLLS_OUTPUT: u64 = 1 << 30;
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
    pub(crate) arguments: [u64; 4],
    /// As `polled_by_arguments` has it.
    pub(crate) polled: u64,
    pub(crate) is_told_by_memory: bool,
}

impl Call {
    pub(crate) fn random(end: &End, rng: &mut Rng) -> Box<Self> {
        let array = std::array::from_fn(|_| Polled {
            fd: [FD as i32, PIPE as i32, PIPE as i32, -1, 4][rng.usize(..5)],
            events: [1, 4, 5, 0x2001][rng.usize(..4)],
            returned: rng.i16(..),
        });
        let mut call = Box::new(Self {
            number: [ON_FD, ON_FD, OTHER, u64::from(u32::MAX)][rng.usize(..4)],
            array,
            set: 0,
            arguments: [[FD, rng.u64(1..5)][rng.usize(..2)], 0, 0, 0],
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
        self.arguments = [memory, count as u64, 0, 0];
        self.is_told_by_memory = (1..=MOST_POLLED).contains(&count);
        let entries = self.array[..count].iter().filter(|entry| entry.fd >= 0);
        let entries = entries.map(|entry| (entry.fd as u64, entry.events & 4 > 0));
        self.polled = match count {
            0 => POLLS_NOTHING,
            _ if !self.is_told_by_memory => POLLS_OTHER,
            _ if memory == 8 => 0,
            _ => polled(end, &entries.collect::<Vec<_>>()),
        };
    }

    /// Whoever looks for input and output waits for anything; high descriptors are not looked for.
    fn select(&mut self, end: &End, rng: &mut Rng) {
        self.number = libc::SYS_pselect6 as u64;
        let bits = [1 << FD, 1 << FD, 1 << PIPE, 1 << 63, 0];
        self.set = bits[rng.usize(..5)] | bits[rng.usize(..5)] | bits[rng.usize(..5)];
        let highest = u64::BITS - self.set.leading_zeros();
        let count = rng
            .choice([u64::from(highest), 1, 4, 64, 65, 0])
            .expect("some");
        let set = &raw const self.set as u64;
        let sets: [u64; 3] = std::array::from_fn(|_| [set, 0, 0][rng.usize(..3)]);
        self.arguments = [count | rng.u64(..2) << 32, sets[0], sets[1], sets[2]];
        let is_one = (sets[0] == 0) != (sets[1] == 0);
        self.is_told_by_memory = (1..=64).contains(&count) && is_one;
        let asked = |fd: &u64| *fd < count && self.set >> fd & 1 == 1;
        let entries = (0..64).filter(asked).map(|fd| (fd, sets[0] == 0));
        self.polled = if count == 0 || sets == [0; 3] {
            POLLS_NOTHING
        } else if !is_one {
            POLLS_OTHER
        } else if count > 64 {
            0
        } else {
            polled(end, &entries.collect::<Vec<_>>())
        };
    }

    /// Its descriptor is the open one.
    pub(crate) fn is_for_file(&self) -> bool {
        let on_fd = self.number == ON_FD && self.arguments[0] == FD;
        on_fd || self.polled & !(POLLS_OTHER | POLLS_OUTPUT) == FD + 1
    }
}

/// Descriptors, for output, too, or not: what they are polled for.
fn polled(end: &End, entries: &[(u64, bool)]) -> u64 {
    let kind = |(fd, for_output): &(u64, bool)| match *fd {
        FD => end.polled(*for_output),
        PIPE => Polling::Wakeup,
        _ => Polling::Work,
    };
    match entries {
        [] => POLLS_NOTHING,
        [(fd, for_output)] => (fd + 1) | if *for_output { POLLS_OUTPUT } else { 0 },
        several if several.iter().any(|entry| kind(entry) == Polling::Work) => POLLS_OTHER,
        several => {
            let mut peers = several.iter().filter(|entry| kind(entry) == Polling::Peer);
            peers.next().map_or(POLLS_OTHER, |(fd, _)| fd + 1)
        }
    }
}
