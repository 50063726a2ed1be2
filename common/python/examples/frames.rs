//! Prints what is found of a process's interpreter, and its threads' frames: `cargo run -p usekit-python --example frames PID`.

#[path = "../../../tests/python/outside.rs"]
mod outside;

use std::error::Error;

use outside::Outside;
use python::{Code, Runtime, walk};

#[expect(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args()
        .nth(1)
        .ok_or("a process's number, please")?;
    let process = Outside::of(pid.parse()?)?;
    let Some(runtime) = Runtime::find(&process)? else {
        return Err("no interpreter".into());
    };
    println!(
        "Python {}, runtime at {:#x}, key {}",
        runtime.version, runtime.runtime_address, runtime.key
    );
    for range in &runtime.loops {
        println!("loop {:#x} to {:#x}", range.start, range.end);
    }
    for thread in runtime.threads(&process) {
        let is_bound = runtime.is_bound(&process, &thread);
        let stack = walk(&process, &runtime, thread.state, 4096);
        let tid = thread.tid.unwrap_or_else(|| process.tid_of(thread.block));
        println!(
            "thread {tid}, bound: {is_bound}, {} frames, {:?}",
            stack.frames.len(),
            stack.end
        );
        for frame in stack.frames.iter().take(32) {
            let mark = if frame.is_entry() { "called by C" } else { "" };
            match Code::read(&process, &runtime, frame.code) {
                Ok(code) if code.is_internal => println!("    (internal)"),
                Ok(code) => {
                    let line = code.line(frame.instruction()).unwrap_or(0);
                    println!("    {:?} {:?}:{line} {mark}", code.name, code.file);
                }
                Err(error) => println!("    {:#x}: {error}", frame.code),
            }
        }
    }
    Ok(())
}
