//! Walks of a thread that is not running, from outside.
//!
//! BPF walks only the current task's user stack. A thread that stays blocked to the end of the window never becomes
//! current, so its stack is walked here, by the same rules, from the registers that it entered the kernel with.

use foreign::pages::{BLOCK, Kept};
use profile::model::StackEnd;
use unwind::{Architecture, Cfa, End, Frame, Rule};

use super::Method;

/// Frames walked at most, as in BPF.
const MAX_DEPTH: usize = 127;

/// User-space registers of a thread inside the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, if the code keeps one.
    pub bp: u64,
    /// aarch64: the register that has the return address of a function that has not saved it; 0 elsewhere.
    pub lr: u64,
    /// Address that the thread's own data lies around; 0: it is not known.
    pub thread_pointer: u64,
    /// `ip` is any instruction, not the one after a system call.
    pub exact: bool,
}

impl Registers {
    /// Addresses of memory that the walk reads first: most stacks of sleeping threads, and the thread's own data.
    pub(crate) fn first_read(self) -> impl Iterator<Item = u64> {
        let own_data = Some(self.thread_pointer).filter(|at| *at != 0);
        [self.sp, self.sp.saturating_add(BLOCK as u64)]
            .into_iter()
            .chain(own_data)
    }
}

/// The architecture of programs that run here.
pub(super) fn native() -> Architecture {
    Architecture::of(host::ELF_MACHINE).expect("one that has tables")
}

/// A stack that was walked.
pub(crate) struct Walk {
    /// Code addresses, leaf first.
    pub(crate) addresses: Vec<u64>,
    pub(crate) end: StackEnd,
    /// Frames, from the leaf on, that lie inside of the place that was asked about.
    pub(crate) inside: usize,
}

/// Walks the stack of a thread, whose memory `read` reads word by word, with the rules that `rule_at` gives for its code.
///
/// The stack is the process's own memory and may hold anything: the walk goes up, stays bounded, and ends at the first
/// address that cannot be read. Addresses are those inside the calls, not those behind them. `outer_sp`: a place on the same stack,
/// by the stack pointer that the thread had there; 0: none is asked about.
pub(super) fn walk(
    read: impl Fn(u64) -> Option<u64> + Copy,
    registers: Registers,
    outer_sp: u64,
    method: Method,
    rule_at: impl Fn(u64) -> Rule,
) -> Walk {
    let mut frame = Frame {
        exact: registers.exact,
        lr: Some(registers.lr).filter(|lr| *lr != 0),
        code_mask: host::code_mask(),
        ..Frame::new(native(), registers.ip, registers.sp, registers.bp)
    };
    let mut stack = Vec::new();
    let mut inside = 0;
    let ended = |addresses, end, inside| Walk {
        addresses,
        end,
        inside,
    };
    loop {
        if stack.len() == MAX_DEPTH {
            return ended(stack, StackEnd::Depth, inside);
        }
        let address = frame.lookup_address();
        let rule = match method {
            Method::Auto => frame.rule_by_code(rule_at(address), read),
            Method::Fp | Method::Cfi => rule_at(address),
        };
        // The stub that a signal's handler returns to was not called: it begins there.
        stack.push(if rule.cfa == Cfa::Signal {
            frame.ip
        } else {
            address
        });
        if frame.sp <= outer_sp {
            inside = stack.len();
        }
        // A leaf whose frame pointer is 0 keeps none, most likely; that it is the outermost frame does not follow.
        let lost = method == Method::Cfi || stack.len() == 1 && frame.bp == Some(0);
        if rule.cfa == Cfa::Uncovered && lost {
            return ended(stack, StackEnd::NoTable, inside);
        }
        let caller = match method {
            Method::Fp => frame.caller_by_frame_pointer(read),
            Method::Auto | Method::Cfi => frame.caller(rule, read),
        };
        frame = match caller {
            Ok(caller) => caller,
            Err(end) => return ended(stack, how(end), inside),
        };
    }
}

fn how(end: End) -> StackEnd {
    match end {
        End::Root => StackEnd::Root,
        End::Depth => StackEnd::Depth,
        End::NoTable => StackEnd::NoTable,
        End::Unreadable => StackEnd::Unreadable,
        End::Unsupported => StackEnd::Unsupported,
    }
}

/// A word of a process's memory.
pub(super) fn read_word(memory: &Kept, tgid: u32, address: u64) -> Option<u64> {
    let mut word = [0; 8];
    let read = memory.read(tgid, address, &mut word).ok()?;
    (read == word.len()).then(|| u64::from_ne_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(registers: Registers, outer_sp: u64) -> Walk {
        // The process that reads memory is no ancestor of the test, and some kernels let only these look.
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
        let memory = Kept::default();
        walk(
            |address| read_word(&memory, std::process::id(), address),
            registers,
            outer_sp,
            Method::Auto,
            |_| Rule::UNCOVERED,
        )
    }

    fn own(registers: Registers) -> (Vec<u64>, StackEnd) {
        let walk = inside(registers, 0);
        (walk.addresses, walk.end)
    }

    #[test]
    fn frame_pointers_are_followed_and_may_not_turn_back() {
        let mut memory = [0_u64; 8];
        let at = |index: usize| &raw const memory[index] as u64;
        let (sp, first, second) = (at(0), at(2), at(4));
        let registers = Registers {
            ip: 0x1000,
            sp,
            bp: first,
            lr: 0,
            thread_pointer: 0,
            exact: true,
        };
        memory[2] = second;
        memory[3] = 0x2000;
        memory[4] = first; // turns back
        memory[5] = 0x3000;
        let found = own(registers);
        std::hint::black_box(&memory);
        assert_eq!(found, (vec![0x1000, 0x1fff, 0x2fff], StackEnd::NoTable));
        memory[4] = 0; // the outermost
        let found = own(registers);
        std::hint::black_box(&memory);
        assert_eq!(found, (vec![0x1000, 0x1fff, 0x2fff], StackEnd::Root));
        // The caller's frame begins behind the words of the first one.
        let insides =
            [sp - 8, sp, second - 8, second, second + 16].map(|outer| inside(registers, outer));
        std::hint::black_box(&memory);
        assert_eq!(insides.map(|walk| walk.inside), [0, 1, 1, 2, 3]);
    }

    #[test]
    fn a_leaf_without_a_frame_pointer_is_not_taken_for_the_outermost() {
        let registers = Registers {
            ip: 0x1001,
            sp: 0,
            bp: 0,
            lr: 0,
            thread_pointer: 0,
            exact: true,
        };
        assert_eq!(own(registers), (vec![0x1001], StackEnd::NoTable));
    }

    #[test]
    fn unreadable_memory_ends_the_walk() {
        let registers = Registers {
            ip: 0x1001,
            sp: 0,
            bp: 0x10,
            lr: 0,
            thread_pointer: 0,
            exact: false,
        };
        assert_eq!(own(registers), (vec![0x1000], StackEnd::Unreadable));
    }
}
