//! Helpers on kernels that lack this and that.

use fastrand::Rng;

use crate::unwinder::{Registers, Unwinder, at};

const REGISTERS: &str = "BPF_FUNC_task_pt_regs";

/// Some of them.
fn some<'w>(rng: &mut Rng, unwinder: &Unwinder, whats: &[&'w str]) -> Vec<&'w str> {
    unwinder.forget();
    let lacked: Vec<&str> = whats.iter().copied().filter(|_| rng.bool()).collect();
    for what in &lacked {
        unwinder.lack(what);
    }
    lacked
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
        let host = &unwinder.host;
        let arguments = host.told::<[u64; 6]>("host_arguments", (task, compat));
        let says = host.told::<[u64; 6]>("host_registers_say", (task,));
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
