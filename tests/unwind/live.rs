//! This program's own stacks, against libgcc's unwinder.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;

use unwind::End;

use crate::here;
use crate::process::Process;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        callback: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
}

extern "C" fn note(context: *mut c_void, ips: *mut c_void) -> c_int {
    // SAFETY: libgcc's context, and the vector that `libgcc` passed.
    unsafe { (*ips.cast::<Vec<u64>>()).push(_Unwind_GetIP(context)) };
    0
}

/// The return addresses from the caller on, as libgcc finds them.
#[inline(never)]
pub(crate) fn libgcc() -> Vec<u64> {
    let mut ips = Vec::new();
    // SAFETY: the callback gets the vector and nobody else has it meanwhile.
    unsafe { _Unwind_Backtrace(note, (&raw mut ips).cast()) };
    // It ends with a zero behind the outermost frame. The first is in this function.
    ips.retain(|&ip| ip != 0);
    ips.split_off(1)
}

/// Walks from here both ways. The innermost address differs: two places in this function.
#[inline(never)]
fn compare(least: usize) {
    let (ours, end) = Process::this().walk(here!());
    let theirs = libgcc();
    assert_eq!(ours[1..], theirs[1..], "{end:?}");
    assert_eq!(end, End::Root);
    assert!(ours.len() > least, "{ours:x?}");
}

/// Frames of different sizes.
#[inline(never)]
fn descend(depth: usize, bottom: &mut dyn FnMut()) {
    let mut space = [0u64; 32];
    black_box(&mut space);
    match depth {
        0 => bottom(),
        depth if depth % 3 == 0 => wide(depth, bottom),
        depth => descend(depth - 1, bottom),
    }
    black_box(&space);
}

#[inline(never)]
fn wide(depth: usize, bottom: &mut dyn FnMut()) {
    let mut space = [0u8; 100_000];
    black_box(&mut space);
    descend(depth - 1, bottom);
    black_box(&space);
}

#[test]
fn a_deep_stack_is_the_one_that_libgcc_finds() {
    descend(50, &mut || compare(50));
}

#[test]
fn the_main_threads_stack_and_a_threads_end_at_their_roots() {
    std::thread::spawn(|| compare(3)).join().unwrap();
}

thread_local! {
    static BOTTOM: RefCell<Option<fn()>> = const { RefCell::new(None) };
}

extern "C" fn order(_: *const c_void, _: *const c_void) -> c_int {
    if let Some(bottom) = BOTTOM.take() {
        bottom();
    }
    0
}

#[test]
fn a_callback_of_qsort_returns_through_libc() {
    BOTTOM.set(Some(|| compare(6)));
    let mut numbers = [3u64, 1, 2];
    // SAFETY: three numbers of eight bytes, and a comparison that does not look at them.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 8, Some(order)) };
    assert!(BOTTOM.take().is_none(), "called");
}

extern "C" fn handler(_: c_int) {
    if let Some(bottom) = BOTTOM.take() {
        bottom();
    }
}

fn through_a_handler(flags: c_int) {
    // SAFETY: all-zero is a valid sigaction; the handler only runs in this thread's raise.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    BOTTOM.set(Some(|| compare(8)));
    descend(5, &mut || {
        // SAFETY: raises a signal that has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
    });
    assert!(BOTTOM.take().is_none(), "called");
}

#[test]
fn a_signal_handlers_stack_continues_where_it_interrupted() {
    through_a_handler(0);
    let mut stack = vec![0u8; 1 << 20];
    let stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: stack.len(),
    };
    // SAFETY: the stack lives until it is disabled again.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
    through_a_handler(libc::SA_ONSTACK);
    let none = libc::stack_t {
        ss_flags: libc::SS_DISABLE,
        ..stack
    };
    // SAFETY: no handler runs on it any more.
    unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) };
}
