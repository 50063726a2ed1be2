//! Stacks of offcputime's waits: whose they are, and which are walked.

#[expect(dead_code, reason = "it has more for other tests of machines")]
mod host;
#[path = "host/kernel_stacks.rs"]
mod kernel_stacks;
#[path = "host/taken_rows.rs"]
mod taken_rows;

use bpf::offcputime::types::offcputime_key;
use fastrand::Rng;
use host::machine::{Machine, State, Thread};
use oracle::Kind;
use taken_rows::{absences, add, told};

/// Sides of a thread's absence, as host/offcputime_stacks.c numbers them.
#[derive(Clone, Copy)]
enum Side {
    Kernel = 1,
    /// The kernel's, where the thread looks itself.
    Own,
    User,
}

fn stack(side: Side, tid: u32, switches: usize) -> u64 {
    (side as u64) << 60 | u64::from(tid) << 32 | switches as u64
}

fn is_kernel_thread(tid: u32) -> bool {
    tid % 4 == 3
}

/// Options that the user gives, and what the kernel has.
#[derive(Clone, Copy, Debug)]
struct Asked {
    no_user: bool,
    no_kernel: bool,
    wakers: bool,
    /// Threads say where they leave the scheduler.
    on_exit: bool,
    /// Waits shorter than this go without a user stack; 0: none.
    stacks_from_ns: u64,
}

impl Asked {
    fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let from_ns = [0, 5_000_000, 20_000_000];
        Self {
            no_user: rng.u32(..4) == 0,
            no_kernel: rng.u32(..4) == 0,
            wakers: rng.bool(),
            on_exit: rng.bool(),
            stacks_from_ns: rng.choice(from_ns).expect("some"),
        }
    }

    fn tell(self, machine: &mut Machine) {
        let Self {
            no_user,
            no_kernel,
            wakers,
            ..
        } = self;
        let asked = (
            no_user,
            no_kernel,
            wakers,
            self.on_exit,
            self.stacks_from_ns,
        );
        machine.host.tell("host_ask", asked);
        machine.tells_exits = self.on_exit;
        machine.tells_wakers = true;
    }
}

/// Keys are thread, stacks, waker and system call.
type Rows = taken_rows::Rows<5>;

fn key(told: &offcputime_key) -> [u64; 5] {
    let syscall = i64::from(told.call.syscall).cast_unsigned();
    let stacks = (told.kernel_stack, told.user_stack);
    [told.tid.into(), stacks.0, stacks.1, told.waker, syscall]
}

/// The user stack of a thread that has left its CPU so often, was away for so long and goes on.
fn user_stack(asked: Asked, tid: u32, switches: usize, ns: u64) -> u64 {
    if asked.no_user || is_kernel_thread(tid) {
        0
    } else if asked.on_exit && ns < asked.stacks_from_ns {
        1
    } else {
        stack(Side::User, tid, switches)
    }
}

/// A thread that begins has no user stack yet.
fn truth(machine: &Machine, asked: Asked) -> Rows {
    let mut rows = Rows::new();
    for absence in absences(machine) {
        let (tid, count) = (absence.tid, absence.departures);
        let ns = absence.end_ns - absence.since_ns;
        let side = if is_shielded(absence.prev) {
            Side::Own
        } else {
            Side::Kernel
        };
        let kernel = match asked.no_kernel {
            true => 0,
            false => stack(side, tid, count),
        };
        let user = match count {
            0 => 0,
            _ => user_stack(asked, tid, count, ns),
        };
        let stacks = (kernel, user);
        let waker = absence.waker.filter(|_| asked.wakers);
        let waker = waker.map_or(0, |waker| u64::from(waker) + 1);
        let syscall = if is_kernel_thread(tid) { u64::MAX } else { 0 };
        let key = [u64::from(tid), stacks.0, stacks.1, waker, syscall];
        add(&mut rows, key, [1, ns]);
    }
    rows
}

/// Threads 1 and 2, whose switches `host::machine` hides.
fn is_shielded(tid: u32) -> bool {
    (1..=2).contains(&tid)
}

fn name(tid: u32) -> [u64; 2] {
    let mut name = [0; 16];
    name[0] = b't';
    for (at, letter) in name[1..8].iter_mut().enumerate() {
        *letter = b'a' + (tid >> (4 * at)) as u8 % 16;
    }
    let (first, last) = name.split_at(8);
    [first, last].map(|half| u64::from_ne_bytes(half.try_into().expect("a half")))
}

/// The thread that woke a target last is told with two stacks of its own.
fn assert_waker(machine: &Machine, asked: Asked, case: &str) {
    let of_target = |waking: &&(u64, u32, u32)| !is_shielded(waking.1);
    let Some((ns, _, waker)) = machine.wakings.iter().rfind(of_target) else {
        return;
    };
    let before = machine.events.iter().take_while(|event| event.ns < *ns);
    let left =
        before.filter(|event| matches!(event.kind, Kind::Switch { prev, .. } if prev == *waker));
    let switches = left.count();
    let told = machine.host.told::<[u64; 9]>("host_take_waker", ());
    let kernel = if asked.no_kernel {
        0
    } else {
        stack(Side::Own, *waker, switches)
    };
    let user = match asked.no_user || is_kernel_thread(*waker) {
        true => 0,
        false => stack(Side::User, *waker, switches),
    };
    let (tid, [first, last]) = (u64::from(*waker), name(*waker));
    assert_eq!(
        told,
        [tid, tid, first, last, kernel, user, 5, 1, 0],
        "{case}"
    );
}

/// The kernel's stack of a wait that is open at the end, unless that is not asked for.
fn assert_open(machine: &Machine, thread: &Thread, asked: Asked, case: &str) {
    let mut first = 0;
    let at = (machine.now, 0_u32, machine.threads[0].task);
    machine.host.tell("host_set", at);
    let close = (thread.task, &mut first);
    let depth = machine.host.ask::<u32>("host_open_depth", close);
    let truth = match asked.no_kernel {
        true => (0, 0),
        false => (
            1,
            stack(Side::Kernel, thread.tid, machine.times_left(thread.tid)),
        ),
    };
    assert_eq!((depth, first), truth, "{case}, thread {}", thread.tid);
    if is_shielded(thread.tid) {
        return;
    }
    let left = machine.host.ask::<u64>("host_left_stack", (thread.task,));
    let truth = match machine.times_left(thread.tid) {
        times if times > 0 && !asked.on_exit => user_stack(asked, thread.tid, times, 0),
        _ => 0,
    };
    assert_eq!(left, truth, "{case}, thread {}", thread.tid);
}

#[test]
fn waits_have_their_own_stacks() {
    let object = host::compile("offcputime_stacks");
    for seed in 0..60 {
        let mut machine = Machine::new(&object, seed, 0);
        let asked = Asked::random(seed);
        asked.tell(&mut machine);
        let case = format!("seed {seed}, {asked:?}");
        for _ in 0..20 {
            machine.steps(200);
            assert_waker(&machine, asked, &case);
        }
        let truth = truth(&machine, asked);
        let told = told(&machine, key);
        let first = told.iter().zip(&truth).find(|(one, other)| one != other);
        assert!(told == truth, "{case}: {first:x?}");
        machine.now += 1;
        machine.host.tell("host_end", (machine.now,));
        let off = machine
            .alive()
            .filter(|thread| thread.state != State::Running);
        off.for_each(|thread| assert_open(&machine, thread, asked, &case));
    }
}

/// Threads that leave their CPUs while a window of several opens, however long that takes, have walked their stacks.
#[test]
fn waits_that_begin_before_a_window_have_their_own_stacks() {
    let object = host::compile("offcputime_stacks");
    let mut walked = 0;
    for seed in 0..20 {
        let mut machine = Machine::new(&object, seed, 1 << 50);
        let asked = Asked {
            stacks_from_ns: 0,
            ..Asked::random(seed)
        };
        asked.tell(&mut machine);
        machine.tells_exits = false;
        let case = format!("seed {seed}, {asked:?}");
        machine.host.tell("host_expect_another", ());
        for _ in 0..5 {
            machine.steps(200);
            let at = (machine.now, 0_u32, machine.threads[0].task);
            machine.host.tell("host_set", at);
            let off = machine
                .alive()
                .filter(|thread| thread.state != State::Running && !is_shielded(thread.tid));
            for thread in off {
                let left = machine.times_left(thread.tid);
                let truth = match left {
                    0 => 0,
                    _ => user_stack(asked, thread.tid, left, 0),
                };
                let open = machine.host.ask::<u64>("host_open_stack", (thread.task,));
                // A wait is told of once.
                assert!(open == 0 || open == truth, "{case}: {open:x} {truth:x}");
                walked += u64::from(open != 0);
                let kept = machine.host.ask::<u64>("host_walked_stack", (thread.task,));
                assert_eq!(kept, truth, "{case}, thread {}", thread.tid);
            }
        }
    }
    assert!(walked > 400, "{walked}");
}
