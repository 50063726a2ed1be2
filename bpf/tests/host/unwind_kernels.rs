//! Helpers on kernels that lack this and that.

use fastrand::Rng;

use crate::host::machine::Task;
use crate::unwinder::{Registers, Unwinder, at};

/// `struct host_task_facts` of `host/unwind_kept.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// The task's first word: older kernels have its state or its CPU there, for these tests.
    first_word: u64,
    state: u32,
    cpu: u32,
    on_cpu: u32,
    on_rq: u32,
    delayed: u32,
    throttled: u32,
    throttle_count: i32,
    switches: [u32; 2],
}

const STATE: &str = "task->__state";
const CPU: &str = "task->thread_info.cpu";
const DELAYED: &str = "task->se.sched_delayed";
const THROTTLED: &str = "task->throttled";
const QUEUE: &str = "task->se.cfs_rq";
const CURRENT: &str = "BPF_FUNC_get_current_task_btf";
const REGISTERS: &str = "BPF_FUNC_task_pt_regs";
const ANCESTORS: &str = "cgroup->ancestors";

/// State, CPU, on a CPU, queued, throttled, switches, current; as the kernels have it.
fn told(facts: &Facts, lacked: &[&str]) -> [u64; 7] {
    let has = |what| !lacked.contains(&what);
    let first = facts.first_word & 0xffff_ffff;
    let is_throttled = if has(THROTTLED) {
        facts.throttled > 0
    } else {
        has(QUEUE) && facts.throttle_count > 0
    };
    [
        if has(STATE) {
            facts.state.into()
        } else {
            first
        },
        if has(CPU) { facts.cpu.into() } else { first },
        u64::from(facts.on_cpu > 0),
        u64::from(facts.on_rq > 0 && !(has(DELAYED) && facts.delayed > 0)),
        u64::from(is_throttled),
        facts.switches.map(u64::from).iter().sum(),
        1,
    ]
}

/// Some of them.
fn some<'w>(rng: &mut Rng, unwinder: &Unwinder, whats: &[&'w str]) -> Vec<&'w str> {
    unwinder.forget();
    let lacked: Vec<&str> = whats.iter().copied().filter(|_| rng.bool()).collect();
    for what in &lacked {
        unwinder.lack(what);
    }
    lacked
}

#[test]
fn tasks_are_read_on_kernels_of_every_age() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(1);
    for _ in 0..3_000 {
        let lacked = some(
            &mut rng,
            &unwinder,
            &[STATE, CPU, DELAYED, THROTTLED, QUEUE, CURRENT],
        );
        let facts = Facts {
            first_word: rng.u64(..),
            state: rng.u32(..),
            cpu: rng.u32(0..4096),
            on_cpu: rng.u32(0..2),
            on_rq: rng.u32(0..3),
            delayed: rng.u32(0..2),
            throttled: rng.u32(0..2),
            throttle_count: rng.i32(-1..3),
            switches: [rng.u32(..), rng.u32(..)],
        };
        let mut says = [0; 7];
        // SAFETY: its type.
        unsafe {
            type Says = unsafe extern "C" fn(*const Facts, *mut [u64; 7]);
            unwinder.call::<Says>("host_says")(&raw const facts, &raw mut says);
        }
        assert_eq!(says, told(&facts, &lacked), "{facts:?} without {lacked:?}");
    }
}

#[test]
fn ancestors_of_cgroups_are_read_on_kernels_of_every_age() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(2);
    for _ in 0..500 {
        some(&mut rng, &unwinder, &[ANCESTORS]);
        let mut ids = vec![0; rng.usize(1..24)];
        ids.fill_with(|| rng.u64(..));
        for (level, id) in ids.iter().enumerate() {
            // SAFETY: its type.
            let told = unsafe {
                type Ancestor = unsafe extern "C" fn(*const u64, u32, i32) -> u64;
                let ancestor = unwinder.call::<Ancestor>("host_ancestor");
                ancestor(ids.as_ptr(), ids.len() as u32, level as i32)
            };
            assert_eq!(told, *id, "level {level} of {ids:?}");
        }
    }
}

/// rdi, rsi, rdx, r10, r8, r9; of 32-bit programs ebx, ecx, edx, esi, edi, ebp.
const NATIVE: [usize; 6] = [14, 13, 12, 7, 9, 8];
const COMPAT: [usize; 6] = [5, 11, 12, 13, 14, 4];

#[test]
fn registers_and_arguments_are_read_on_kernels_of_every_age() {
    let unwinder = crate::unwinder();
    let mut rng = Rng::with_seed(4);
    for _ in 0..2_000 {
        let lacked = some(&mut rng, &unwinder, &[REGISTERS]);
        let mut registers: Registers = [0; 21];
        registers.fill_with(|| rng.u64(..));
        if rng.bool() {
            registers[at::CX] = registers[at::IP];
        }
        if rng.bool() {
            registers[at::ORIG_AX] = u64::MAX;
        }
        if rng.bool() {
            registers[at::CS] = registers[at::CS] & !0xffff | 0x23;
        }
        let task = unwinder.thread(1, 0, true, 1, 0);
        unwinder.enter(task, &registers);
        let compat = rng.bool();
        let (mut arguments, mut says) = ([0; 6], [0; 6]);
        // SAFETY: their types.
        unsafe {
            type Arguments = unsafe extern "C" fn(Task, bool, *mut [u64; 6]);
            type Says = unsafe extern "C" fn(Task, *mut [u64; 6]);
            unwinder.call::<Arguments>("host_arguments")(task, compat, &raw mut arguments);
            unwinder.call::<Says>("host_registers_say")(task, &raw mut says);
        }
        let passed = if compat {
            COMPAT.map(|at| registers[at] & 0xffff_ffff)
        } else {
            NATIVE.map(|at| registers[at])
        };
        assert_eq!(arguments, passed, "without {lacked:?}");
        let anywhere = registers[at::ORIG_AX] == u64::MAX || registers[at::IP] != registers[at::CX];
        let is_compat = registers[at::CS] & 0xffff == 0x23;
        let saved = [at::IP, at::SP, at::BP].map(|at| registers[at]);
        let truth = [
            u64::from(anywhere),
            u64::from(anywhere),
            u64::from(is_compat),
            saved[0],
            saved[1],
            saved[2],
        ];
        assert_eq!(says, truth, "without {lacked:?}");
    }
}
