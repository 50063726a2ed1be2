//! Every single instruction of some library functions: wherever they are interrupted, their callers are the same.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use unwind::{End, Frame};

use crate::live::libgcc;
use crate::machine::{LINKER, interrupted, trap_off, trap_on};
use crate::process::Process;

struct Steps {
    process: Process,
    /// Return addresses of the function that steps, outwards.
    callers: Vec<u64>,
    count: usize,
    /// Steps in each table's code.
    by_table: Vec<usize>,
    wrong: Vec<(Frame, Vec<u64>, End)>,
}

thread_local! {
    static STEPS: Cell<*mut Steps> = const { Cell::new(std::ptr::null_mut()) };
}

extern "C" fn step(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's context, and the steps of the function below, which waits in this thread.
    let (frame, steps) = unsafe { (interrupted(&*context.cast()), &mut *STEPS.get()) };
    let (ips, end) = steps.process.walk(frame);
    steps.count += 1;
    if let Some(table) = steps.process.table(frame.ip) {
        steps.by_table[table] += 1;
    }
    if !(ips.ends_with(&steps.callers) && end == End::Root) && steps.wrong.len() < 3 {
        steps.wrong.push((frame, ips, end));
    }
}

extern "C" fn order(a: *const c_void, b: *const c_void) -> c_int {
    // SAFETY: qsort's elements are these numbers.
    unsafe { (*a.cast::<u64>()).cmp(&*b.cast::<u64>()) as c_int }
}

/// Functions that take no lock and no memory: the handler may do both.
fn work(bind: extern "C" fn() -> c_int) {
    let mut numbers = [5u64, 3, 9, 1, 7, 2, 8, 4, 6];
    let mut text = [0u8; 64];
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: buffers and formats of the right sizes.
    unsafe {
        libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 8, Some(order));
        let format: &CStr = c"%ld %08.3f %s";
        let number = numbers[0];
        libc::snprintf(
            text.as_mut_ptr().cast(),
            64,
            format.as_ptr(),
            number,
            2.5f64,
            c"x".as_ptr(),
        );
        libc::strtod(c"3.25e10".as_ptr(), std::ptr::null_mut());
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        libc::getppid();
    }
    bind();
    black_box((numbers, text, now.tv_sec));
}

#[inline(never)]
fn trace(steps: &mut Steps, bind: extern "C" fn() -> c_int) {
    // The first is in this function, which moves on.
    steps.callers = libgcc().split_off(1);
    STEPS.set(steps);
    // SAFETY: they change one flag, and the handler is installed.
    unsafe {
        trap_on();
        work(bind);
        trap_off();
    }
    STEPS.set(std::ptr::null_mut());
}

/// A function of a library that nobody has called yet; in it the dynamic linker binds another one.
fn binds_lazily(dir: &Path) -> extern "C" fn() -> c_int {
    let (source, library) = (dir.join("lazy.c"), dir.join("lazy.so"));
    let text = "int getppid(void); int binds(void) { return getppid() + 1; }";
    std::fs::write(&source, text).expect("a file");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", "-Wl,-z,lazy", "-o"])
        .args([&library, &source]);
    assert!(gcc.status().expect("gcc").success());
    let library = CString::new(library.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the library stays, and the function is of this type.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY);
        assert!(!handle.is_null(), "{library:?}");
        let function = libc::dlsym(handle, c"binds".as_ptr());
        assert!(!function.is_null(), "binds");
        std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function)
    }
}

#[test]
fn wherever_a_function_is_interrupted_its_callers_are_the_same() {
    // SAFETY: all-zero is a valid sigaction; nothing else in this process raises SIGTRAP.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let bind = binds_lazily(dir.path());
    let mut steps = Steps {
        process: Process::this(),
        callers: Vec::new(),
        count: 0,
        by_table: vec![0; 100],
        wrong: Vec::new(),
    };
    trace(&mut steps, bind);
    eprintln!(
        "{} instructions, by file {:?}",
        steps.count,
        &steps.by_table[..8]
    );
    assert!(
        steps.wrong.is_empty(),
        "{:x?}, expected {:x?}",
        steps.wrong,
        steps.callers
    );
    assert!(steps.count > 1000);
    let linker = steps.process.table_of(&format!("/{LINKER}"));
    let linkers = linker.map_or(0, |table| steps.by_table[table]);
    assert!(linkers > 500, "{linkers} of the dynamic linker");
}
