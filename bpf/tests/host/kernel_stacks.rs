//! Kernel stacks that offcputime recognises: threads that block in the same place again and again are walked once, and each stack
//! is the one that a walk gives.

use std::collections::HashMap;

use fastrand::Rng;

use crate::host::{self, Host};

/// Code, modules and BPF programs lie above.
const CODE: u64 = 0xffff_ffff_8000_0000;
const DISPATCHER: u64 = CODE + 0x12_3000;
/// Addresses further apart are not both the dispatcher's.
const DISPATCHER_BYTES: u64 = 4096;
/// Words that are looked at.
const WINDOW: usize = 256;
/// No system call.
const NONE: u64 = u64::MAX;
/// Words of user registers, at the top of a stack.
const REGISTERS: usize = 21;

/// `struct host_absence` of host/offcputime_stacks.c.
#[repr(C)]
struct Absence {
    words: *const u64,
    frames: *const u64,
    count: u32,
    depth: i32,
    syscall: u64,
    is_kernel_thread: bool,
    is_unreadable: bool,
    is_ring_full: bool,
}

/// A place in the kernel where threads block.
#[derive(Clone)]
struct Place {
    syscall: u64,
    is_kernel_thread: bool,
    /// Words below each return address.
    holes: Vec<usize>,
    /// Return addresses, leaf first.
    frames: Vec<u64>,
    /// The last ones of them are the dispatcher's and its caller's.
    is_dispatched: bool,
}

/// Numbers of system calls. Their lowest bits differ: only those tell numbers from lengths where the two are mixed.
const CALLS: [u64; 5] = [0, 1, 3, 511, 517];

/// An address in a function.
fn code(rng: &mut Rng) -> u64 {
    CODE + 0x100_0000 + rng.u64(..16) * 0x1_0000
}

impl Place {
    fn random(rng: &mut Rng) -> Self {
        let (syscall, is_kernel_thread) = match rng.u32(..6) {
            0 => (NONE, true),
            1 => (NONE, false),
            _ => (rng.choice(CALLS).expect("some"), false),
        };
        let depth = rng.usize(1..5);
        let mut place = Self {
            syscall,
            is_kernel_thread,
            holes: (0..depth + 2).map(|_| rng.usize(..4)).collect(),
            frames: (0..depth).map(|_| code(rng)).collect(),
            is_dispatched: syscall != NONE,
        };
        if rng.u32(..20) == 0 {
            place.holes[0] = rng.usize(WINDOW - 40..WINDOW + 40);
        }
        if place.is_dispatched {
            // One system call is not behind the same dispatcher.
            let is_far = syscall == 3 && rng.u32(..4) == 0;
            let far = if is_far {
                rng.u64(..3 * DISPATCHER_BYTES)
            } else {
                0
            };
            let call = far + *rng.choice(&[0x100, 0x180, 0x700]).expect("some");
            // Each of its calls is of another function.
            *place.frames.last_mut().expect("a leaf") = CODE + 0x80_0000 + call;
            place.frames.push(DISPATCHER + call);
        }
        place.frames.push(CODE + 0x20 + syscall % 1000);
        place
    }

    /// A place that is not quite another.
    fn beside(&self, rng: &mut Rng) -> Self {
        let mut place = self.clone();
        match rng.u32(..3) {
            0 if place.frames.len() > 3 => place.frames[0] = code(rng),
            1 => place.holes.swap(0, 1),
            _ if self.is_dispatched => {
                place.syscall = (place.syscall + 1) % 512;
                *place.frames.last_mut().expect("the caller") = CODE + 0x20 + place.syscall;
            }
            _ => {}
        }
        place
    }

    /// The words of a thread that blocks there. Those beside return addresses are of no account.
    fn words(&self, rng: &mut Rng, gap: usize) -> Vec<u64> {
        let mut words = Vec::new();
        for (at, (hole, frame)) in self.holes.iter().zip(&self.frames).enumerate() {
            if self.is_dispatched && at + 1 == self.frames.len() {
                for _ in 0..gap {
                    let leftover = [data(rng), code(rng), DISPATCHER + 0x100];
                    words.push(*rng.choice(&leftover).expect("some"));
                }
            }
            for _ in 0..*hole {
                words.push(match rng.u32(..400) {
                    // Left by another call: no place is the same but for that.
                    0 => code(rng) + 0x1000_0000,
                    _ => data(rng),
                });
            }
            words.push(*frame);
        }
        for _ in 0..REGISTERS {
            words.push(data(rng));
        }
        words
    }
}

fn data(rng: &mut Rng) -> u64 {
    let heap = 0xffff_8881_0000_0000 | rng.u64(..) >> 32;
    let user = 0x7fff_0000_0000 | rng.u64(..) >> 40;
    let any = [heap, user, rng.u64(1..100), CODE - 1, 0];
    *rng.choice(&any).expect("some")
}

/// All that tells stacks apart: the system call, and code with its place, up to the dispatcher.
type Look = (u64, Vec<u64>);

#[derive(Default)]
struct Model {
    known: HashMap<Look, u64>,
    dispatcher: Option<(u64, u64)>,
    walks: u64,
    is_full: bool,
    /// Stacks are looked at. Otherwise all are walked, as on arm64.
    looks: bool,
}

impl Model {
    fn look(&self, syscall: u64, words: &[u64]) -> Look {
        let is_end = |word: &u64| {
            self.dispatcher
                .is_some_and(|(low, high)| (low..=high).contains(word))
        };
        let code = words.iter().take_while(|word| !is_end(word));
        let code = code.map(|word| if *word >= CODE { *word } else { 0 });
        (syscall, code.collect())
    }

    fn learn(&mut self, address: u64) {
        let (low, high) = self.dispatcher.unwrap_or((address, address));
        let (lowest, highest) = (low.min(address), high.max(address));
        if highest - lowest < DISPATCHER_BYTES {
            self.dispatcher = Some((lowest, highest));
        }
    }

    fn resume(&mut self, place: &Place, words: &[u64], id: u64, absence: &Absence) -> u64 {
        let look = (self.looks && words.len() <= WINDOW && !absence.is_unreadable)
            .then(|| self.look(place.syscall, words));
        if let Some(known) = look.as_ref().and_then(|look| self.known.get(look)) {
            return *known;
        }
        self.walks += 1;
        if absence.depth <= 0 || absence.is_ring_full {
            return 0;
        }
        if place.syscall < 512 && place.frames.len() >= 3 {
            self.learn(place.frames[place.frames.len() - 2]);
        }
        if let Some(look) = look.filter(|_| !self.is_full) {
            self.known.insert(look, id);
        }
        id
    }
}

/// An absence that may fail to be walked.
fn absence(place: &Place, words: &[u64], rng: &mut Rng) -> Absence {
    Absence {
        words: words.as_ptr(),
        frames: place.frames.as_ptr(),
        count: words.len() as u32,
        depth: match rng.u32(..30) {
            0 => -14,
            1 => 0,
            _ => place.frames.len() as i32,
        },
        syscall: place.syscall,
        is_kernel_thread: place.is_kernel_thread,
        is_unreadable: rng.u32(..30) == 0,
        is_ring_full: rng.u32(..30) == 0,
    }
}

/// Stacks that the programs tell: of the absence, and what a walk gives.
fn resume(host: &Host, place: &Place, absence: &Absence) -> (u64, u64) {
    let depth = place.frames.len() as u32;
    (
        host.ask::<u64>("host_resume", (absence,)),
        host.ask::<u64>("host_id", (place.frames.as_ptr(), depth)),
    )
}

/// Walks, stacks that are remembered, and the dispatcher's lowest and highest address.
fn cache(host: &Host) -> [u64; 4] {
    host.told::<[u64; 4]>("host_cache", ())
}

fn assert_recognised(host: &Host, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut places: Vec<Place> = (0..20).map(|_| Place::random(&mut rng)).collect();
    for at in 0..20 {
        let place = places[at].beside(&mut rng);
        places.push(place);
    }
    let has_gap = rng.bool();
    let mut model = Model {
        looks: host.ask::<bool>("host_looks", ()),
        ..Model::default()
    };
    for step in 0..2_000 {
        if step == 1_500 {
            host.tell("host_fill", ());
            model.is_full = true;
        }
        let place = rng.choice(&places).expect("some");
        let gap = if has_gap { rng.usize(..4) * 2 } else { 0 };
        let words = place.words(&mut rng, gap);
        let absence = absence(place, &words, &mut rng);
        let (told, walked) = resume(host, place, &absence);
        assert!(
            told == 0 || told == walked,
            "seed {seed}, step {step}: another's stack, {words:x?}"
        );
        let truth = model.resume(place, &words, walked, &absence);
        assert_eq!(told, truth, "seed {seed}, step {step}, {words:x?}");
        let (low, high) = model.dispatcher.unwrap_or_default();
        let known = model.known.len() as u64;
        let truth = [model.walks, known, low, high];
        assert_eq!(cache(host), truth, "seed {seed}, step {step}, {words:x?}");
    }
    assert!(!model.looks || model.walks < 1_500, "{} walks", model.walks);
}

#[test]
fn stacks_are_recognised_where_nothing_differs() {
    let object = host::compile("offcputime_stacks");
    for seed in 0..50 {
        assert_recognised(&Host::load(&object), seed);
    }
}
