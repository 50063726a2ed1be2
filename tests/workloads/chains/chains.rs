//! Chains of Rust: inlined functions, closures, trait objects, a panic in flight, threads.

use std::arch::asm;
use std::hint::black_box;
use std::io::{BufRead, Write, stdin, stdout};
use std::panic::{catch_unwind, panic_any};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

static LAPS: AtomicU64 = AtomicU64::new(1_000_000);

#[inline(always)]
fn compute(laps: u64) {
    for lap in 0..laps {
        black_box(lap);
    }
}

/// Computes, then sleeps, by a system call of its own; more than once: a switch may escape the tools, which count it.
#[inline(always)]
fn stop() {
    compute(LAPS.load(Ordering::Relaxed));
    let pause: [u64; 2] = [0, 2_000_000];
    for _ in 0..3 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: nanosleep reads `pause` and changes no memory.
        unsafe {
            asm!("syscall", inout("rax") 35_u64 => _, in("rdi") &pause, in("rsi") 0,
                 out("rcx") _, out("r11") _);
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            asm!("svc #0", in("x8") 101_u64, inout("x0") &pause => _, in("x1") 0_u64);
        }
    }
}

/// Time that `stop` computes for: on an emulated machine, where what leads there is translated first, it is longer.
const COMPUTE_NS: u64 = if cfg!(target_arch = "aarch64") { 60_000_000 } else { 12_000_000 };

/// Finds how many laps that is, by the fastest of some attempts: in the others the machine may have done something else.
fn calibrate() {
    let laps = LAPS.load(Ordering::Relaxed);
    let attempt = |_| {
        let start = Instant::now();
        compute(laps);
        start.elapsed().as_nanos()
    };
    let fastest_ns = (0..8).map(attempt).min().expect("some attempts");
    LAPS.store(COMPUTE_NS * laps / fastest_ns as u64, Ordering::Relaxed);
}

#[inline(never)]
fn nested_2(depth: u32) -> u32 {
    stop();
    black_box(depth)
}
#[inline(always)]
fn between(depth: u32) -> u32 {
    nested_2(depth) + 1
}
#[inline(never)]
fn nested_1(depth: u32) -> u32 {
    between(depth) + 1
}

#[inline(never)]
fn large_leaf(bytes: &mut [u8]) {
    stop();
    black_box(bytes);
}
#[inline(never)]
fn large_frame() {
    let mut bytes = [1; 200 << 10];
    large_leaf(black_box(&mut bytes));
    black_box(&bytes);
}

trait Shape {
    fn area(&self) -> u32;
}
struct Square(u32);
impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> u32 {
        stop();
        self.0
    }
}
#[inline(never)]
fn measure(shape: &dyn Shape) -> u32 {
    black_box(shape.area()) + 1
}

struct Guard;
impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        stop();
    }
}
#[inline(never)]
fn panics() {
    panic_any(black_box(7));
}
#[inline(never)]
fn owns() {
    let _guard = Guard;
    panics();
}
#[inline(never)]
fn catches() {
    black_box(catch_unwind(owns)).expect_err("a panic");
}

#[inline(never)]
fn generic<T: Copy>(value: T) -> T {
    stop();
    black_box(value)
}

#[inline(never)]
fn in_thread() {
    stop();
    black_box("not the same code as any other function's");
}

fn line(text: &str) {
    println!("{text}");
    stdout().flush().expect("a pipe");
    stdin().lock().read_line(&mut String::new()).expect("a pipe");
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    calibrate();
    line(&format!("ready {}", std::process::id()));
    black_box(nested_1(1));
    large_frame();
    black_box(measure(black_box(&Square(1))));
    catches();
    black_box(generic(1_u8));
    std::thread::spawn(in_thread).join().expect("no panic");
    line("done");
}
