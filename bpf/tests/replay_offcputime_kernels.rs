//! Threads and their waits as kernels of all ages tell of them, and as offcputime understands that.

#[expect(dead_code, reason = "it has more for tests of machines")]
mod host;

use fastrand::Rng;
use host::Host;

/// Bits of what kernels lack, by the names in host/offcputime_kernels.c.
mod lacks {
    pub(super) const STATE: u32 = 1;
    pub(super) const CPU: u32 = 1 << 1;
    pub(super) const DELAYED: u32 = 1 << 3;
    pub(super) const THROTTLED: u32 = 1 << 4;
    pub(super) const QUEUE: u32 = 1 << 5;
    pub(super) const BLOCKED_ON: u32 = 1 << 6;
    pub(super) const BLOCKER: u32 = 1 << 7;
    pub(super) const TRUSTED: u32 = 1 << 9;
    pub(super) const ALL: u32 = (1 << 10) - 1;
}

/// `SYSCALLS_MAX`
const SYSCALLS: u64 = 512;
const KERNEL_THREAD: u32 = 0x0020_0000;
const FILES: usize = 4;
/// `POLLS_OTHER`, `POLLS_OUTPUT`, `POLLS_NOTHING`, `FILE_OTHER` and `FILE_NOTHING` of include/waits.bpf.h
const POLLS_OTHER: u32 = 1 << 31;
const POLLS_OUTPUT: u32 = 1 << 30;
const POLLS_NOTHING: u32 = u32::MAX;
const OTHER: u32 = 21;
const NOTHING: u32 = 22;
/// `TYPE_SOCKET`: none here is connected.
const SOCKET: u32 = 12;

/// `struct host_kernel` of host/offcputime_kernels.c.
#[derive(Debug)]
#[repr(C)]
struct Kernel {
    number: u64,
    arguments: [u64; 3],
    takes_fd: [u64; 8],
    lacks: u32,
    flag_bytes: u32,
    futex_syscall: i32,
    state: u32,
    state_in_place: u32,
    old_word: u32,
    cpu_in_place: u32,
    on_cpu: u32,
    on_rq: u32,
    flags: u32,
    signal: u32,
    throttle_count: i32,
    max_fds: u32,
    polled: u32,
    has_files: bool,
    is_compat: bool,
    is_preempted: bool,
    is_delayed: bool,
    is_throttled: bool,
    is_real_time: bool,
    has_queue: bool,
    is_io: bool,
    is_blocked_on: bool,
    is_blocker: bool,
    is_pi_blocked_on: bool,
    types: [u8; FILES],
}

/// `struct host_told` of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Told {
    state: u32,
    cpu: u32,
    flags: u32,
    syscall: i32,
    file_type: u32,
    futex_op: u32,
    futex_value: u32,
    is_on_cpu: bool,
    is_queued: bool,
    is_throttled: bool,
    is_trusted: bool,
    is_current: bool,
}

const STATES: [u32; 10] = [0, 1, 2, 4, 8, 0x80, 0x102, 0x402, 0x1000, 0x2001];

impl Kernel {
    fn random(rng: &mut Rng) -> Self {
        let near = SYSCALLS - 4 + rng.u64(..8);
        let any = rng.u64(..SYSCALLS);
        // The kernel looks at 32 bits of what the program left in the register.
        let wide = any | u64::from(rng.u32(..)) << 32;
        let number = rng.choice([u64::MAX, near, any, wide]).expect("some");
        let number_as_futex = if rng.bool() {
            number as i32
        } else {
            rng.i32(-1..512)
        };
        let flag_bytes = rng.choice([1, 4]).expect("some");
        // Another field is behind a byte.
        let beside = if flag_bytes == 1 { rng.u32(..) << 8 } else { 0 };
        let fd = rng.u64(..6) | u64::from(rng.u32(..4)) << 32;
        Self {
            number,
            arguments: [fd, rng.u64(..), rng.u64(..) >> rng.u32(..64)],
            takes_fd: std::array::from_fn(|_| rng.u64(..)),
            lacks: rng.u32(..) & rng.u32(..) & lacks::ALL,
            flag_bytes,
            futex_syscall: number_as_futex,
            state: rng.choice(STATES).expect("some"),
            state_in_place: rng.u32(..),
            old_word: rng.u32(..),
            cpu_in_place: rng.u32(..),
            on_cpu: u32::from(rng.bool()) | beside,
            on_rq: rng.u32(..3) | beside,
            flags: rng.u32(..),
            signal: rng.u32(..3),
            throttle_count: rng.i32(0..2),
            // Files are behind the table, too.
            max_fds: rng.u32(..FILES as u32),
            polled: match rng.u32(..5) {
                0 => 0,
                1 => [POLLS_OTHER, POLLS_OUTPUT | rng.u32(1..7)][rng.usize(..2)],
                2 => POLLS_NOTHING,
                _ => 1 + rng.u32(..6),
            },
            has_files: rng.u32(..8) > 0,
            is_compat: rng.u32(..4) == 0,
            is_preempted: rng.u32(..4) == 0,
            is_delayed: rng.bool(),
            is_throttled: rng.bool(),
            is_real_time: rng.u32(0..4) == 0,
            has_queue: rng.u32(..4) > 0,
            is_io: rng.bool(),
            is_blocked_on: rng.u32(..4) == 0,
            is_blocker: rng.u32(..4) == 0,
            is_pi_blocked_on: rng.u32(..4) == 0,
            types: std::array::from_fn(|_| rng.u8(..=16)),
        }
    }

    fn has(&self, what: u32) -> bool {
        self.lacks & what == 0
    }

    fn is_set(&self, flag: u32) -> bool {
        flag & if self.flag_bytes == 1 { 0xff } else { u32::MAX } != 0
    }

    /// A sleeper may stay on the queue for a while.
    fn is_queued(&self) -> bool {
        self.is_set(self.on_rq) && !(self.has(lacks::DELAYED) && self.is_delayed)
    }

    fn is_throttled(&self) -> bool {
        if self.has(lacks::THROTTLED) {
            self.is_throttled
        } else {
            let is_fair = !self.is_real_time;
            is_fair && self.has(lacks::QUEUE) && self.has_queue && self.throttle_count > 0
        }
    }

    /// States that ps does not know, and sleepers whom a signal reached, are the queue's to tell.
    fn is_runnable(&self) -> bool {
        let is_asleep = self.state & 0xff != 0 && self.signal == 0;
        self.is_preempted || self.state == 0 || !is_asleep && self.is_queued()
    }

    /// `enum wait_flags`
    fn flags(&self) -> u32 {
        let is_locked = self.has(lacks::BLOCKED_ON) && self.is_blocked_on
            || self.has(lacks::BLOCKER) && self.is_blocker
            || self.is_pi_blocked_on;
        let runnable = self.is_runnable();
        let bits = [
            runnable,
            runnable && self.is_throttled(),
            !runnable && self.state & 2 != 0,
            !runnable && self.state & 0x400 != 0,
            !runnable && self.is_io,
            !runnable && is_locked,
            self.flags & KERNEL_THREAD != 0,
            !runnable && self.state & 0xc != 0,
        ];
        let bits = bits.iter().enumerate();
        bits.map(|(at, is_set)| u32::from(*is_set) << at).sum()
    }

    /// The type of a file; 0: there is none.
    fn file_type(&self, fd: u32) -> u32 {
        if !self.has_files || fd >= self.max_fds {
            return 0;
        }
        // 16 stands for a file without inode.
        u32::from(self.types[fd as usize]) % 16
    }

    fn told(&self) -> Told {
        let mut told = Told {
            state: if self.has(lacks::STATE) {
                self.state_in_place
            } else {
                self.old_word
            },
            cpu: if self.has(lacks::CPU) {
                self.cpu_in_place
            } else {
                self.old_word
            },
            flags: self.flags(),
            syscall: -1,
            is_on_cpu: self.is_set(self.on_cpu),
            is_queued: self.is_queued(),
            is_throttled: self.is_throttled(),
            is_trusted: self.has(lacks::TRUSTED),
            is_current: true,
            ..Told::default()
        };
        let number = self.number & u64::from(u32::MAX);
        if number >= SYSCALLS {
            return told;
        }
        if self.is_compat {
            told.syscall = SYSCALLS as i32;
            return told;
        }
        told.syscall = number as i32;
        let (word, bit) = (number / 64, number % 64);
        if self.takes_fd[word as usize] & 1 << bit != 0 {
            told.file_type = self.file_type(self.arguments[0] as u32);
        } else if self.polled == POLLS_NOTHING {
            told.file_type = NOTHING;
        } else if self.polled & (POLLS_OTHER | POLLS_OUTPUT) != 0 {
            // No socket here has another end.
            told.file_type = OTHER;
        } else if self.polled > 0 {
            let known = Some(self.file_type(self.polled - 1));
            let known = known.filter(|known| ![0, SOCKET].contains(known));
            told.file_type = known.unwrap_or(OTHER);
        }
        if i64::from(self.futex_syscall) == number as i64 {
            told.futex_op = self.arguments[1] as u32 & 0xff;
            told.futex_value = (self.arguments[2] as u32).min(0x100);
        }
        told
    }
}

#[test]
fn waits_are_what_the_kernel_says() {
    let object = host::compile("offcputime_kernels");
    let (host, mut rng) = (Host::load(&object), Rng::with_seed(1));
    for step in 0..100_000 {
        let kernel = Kernel::random(&mut rng);
        let told = host.told::<Told>("host_ask", (&kernel,));
        assert_eq!(told, kernel.told(), "step {step}, {kernel:?}");
    }
}

#[test]
fn ancestors_of_cgroups_are_known_by_level() {
    let object = host::compile("offcputime_kernels");
    let (host, mut rng) = (Host::load(&object), Rng::with_seed(1));
    for _ in 0..1_000 {
        let ids: [u64; 8] = std::array::from_fn(|_| rng.u64(..) & rng.u64(..2).wrapping_neg());
        let (level, is_old) = (rng.u32(..8), rng.bool());
        let id = host.ask::<u64>("host_ancestor", (&ids, 8_u32, level, is_old));
        assert_eq!(id, ids[level as usize], "{ids:?}, {level}, {is_old}");
    }
}
