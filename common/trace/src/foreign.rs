//! Frame-pointer walks of a thread that is not running, from outside.
//!
//! BPF walks only the current task's user stack. A thread that stays blocked to the end of the window never becomes
//! current, so its stack is walked here from the user registers that it entered the kernel with.

use std::io;

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
}

/// Walks the chain of frame pointers of a thread of process `tgid`; leaf first.
///
/// The chain is the process's own memory and may hold anything: it has to go up, stays bounded, and ends at the first
/// address that cannot be read.
pub fn frame_pointer_stack(tgid: u32, registers: Registers) -> Vec<u64> {
    let mut stack = Vec::new();
    if registers.ip == 0 {
        return stack;
    }
    stack.push(registers.ip);
    let mut frame = registers.bp;
    // A frame below the stack pointer is no frame.
    let mut floor = registers.sp;
    while stack.len() < MAX_DEPTH && frame >= floor && frame.is_multiple_of(8) {
        let Ok([next, caller]) = read_words(tgid, frame) else {
            break;
        };
        if caller == 0 {
            break;
        }
        stack.push(caller);
        floor = frame + 16;
        frame = next;
    }
    stack
}

fn read_words(tgid: u32, address: u64) -> io::Result<[u64; 2]> {
    let mut words = [0_u64; 2];
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: size_of_val(&words),
    };
    let pid = libc::pid_t::try_from(tgid).map_err(io::Error::other)?;
    // SAFETY: `local` describes `words`; the remote address is only ever read by the kernel, which checks it.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if usize::try_from(read) == Ok(size_of_val(&words)) {
        Ok(words)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_chain_and_stops_where_it_turns_back() {
        let mut memory = [0_u64; 8];
        let at = |index: usize| &raw const memory[index] as u64;
        let (first, second) = (at(2), at(4));
        let registers = Registers {
            ip: 0x1000,
            sp: at(0),
            bp: first,
        };
        memory[2] = second;
        memory[3] = 0x2000;
        memory[4] = first; // turns back
        memory[5] = 0x3000;
        let stack = frame_pointer_stack(std::process::id(), registers);
        std::hint::black_box(&memory);
        assert_eq!(stack, [0x1000, 0x2000, 0x3000]);
    }

    #[test]
    fn unreadable_memory_ends_the_walk() {
        let registers = Registers {
            ip: 0x1000,
            sp: 0,
            bp: 0x10,
        };
        assert_eq!(frame_pointer_stack(std::process::id(), registers), [0x1000]);
        let none = Registers {
            ip: 0,
            sp: 0,
            bp: 0,
        };
        assert!(frame_pointer_stack(std::process::id(), none).is_empty());
    }
}
