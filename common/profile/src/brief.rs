//! A stack in few words, root → leaf: the program's own functions, what they call, and where the kernel is.
//!
//! Functions that every stack has are left out: how threads start, and the standard library between a program's functions. Names
//! tell which those are, so this is for lists that people read, and for how deep in its program a thread waits; never for stacks that
//! programs read.

use std::borrow::Cow;

use crate::escape::terminal;
use crate::frame::{Frame, FrameKind};
use crate::text::cut_name;

/// Functions of the program that are shown, those nearest the leaf.
const MOST: usize = 5;
/// Functions of the kernel that are shown.
const MOST_KERNEL: usize = 4;
/// Columns of a name.
const NAME: usize = 60;

/// Functions that programs, threads and goroutines begin with.
const STARTS: [&str; 20] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "thread_start",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "execute_native_thread_routine",
    "runtime.goexit",
    "runtime.main",
    "runtime.mstart",
    "runtime.mstart0",
    "runtime.mstart1",
    "runtime.mcall",
    "runtime.systemstack",
    "runtime.rt0_go",
    "runtime.asmcgocall",
];
/// Namespaces of standard libraries.
const LIBRARIES: [&str; 8] = [
    "std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__rust_", "runtime.",
];
/// Functions that Rust's closures are inlined through; names of inlined functions have no path.
const CLOSURES: [&str; 5] = ["call_once", "call_mut", "call", "do_call", "catch_unwind"];
/// Sources of Rust's libraries.
const SOURCES: [&str; 3] = ["/library/std/", "/library/core/", "/library/alloc/"];
/// Run-time systems between functions that were compiled while the program ran.
const RUNTIMES: [&str; 3] = ["Interpreter", "Builtins_", "Stub"];
/// Functions of the kernel that wait, wake or lock for others; who calls them says for what.
const PRIMITIVES: [&str; 28] = [
    "schedule",
    "io_schedule",
    "rwsem_",
    "down_",
    "__down",
    "mutex_",
    "__mutex_",
    "rt_mutex",
    "rtlock",
    "percpu_rwsem",
    "native_queued_spin_lock",
    "queued_",
    "_raw_spin_",
    "folio_wait_bit",
    "wait_for_completion",
    "wait_on_",
    "__wait_on_",
    "out_of_line_wait",
    "bit_wait",
    "try_to_wake_up",
    "wake_up_",
    "__wake_up",
    "swake_up",
    "complete",
    "default_wake_function",
    "autoremove_wake_function",
    "woken_wake_function",
    "ttwu_",
];

/// Names of the kernel's functions for system calls begin so, on x86-64 and arm64, those that others are inlined into last.
const SYSTEM_CALLS: [&str; 5] = [
    "__x64_sys_",
    "__ia32_sys_",
    "__arm64_sys_",
    "__do_sys_",
    "ksys_",
];

/// Both parts of a stack, root first.
pub(crate) fn brief(kernel: &[Frame], user: &[Frame]) -> Vec<String> {
    let mut words = of_user(user);
    let from_leaf = kernel.iter().rev();
    let primitives = from_leaf.clone().take_while(|frame| is_primitive(frame));
    let primitives = primitives.count();
    let mut kernel: Vec<String> = from_leaf
        .take((primitives + 1).min(MOST_KERNEL))
        .map(name)
        .collect();
    kernel.reverse();
    if let Some(first) = kernel.first_mut() {
        first.insert_str(0, "[k] ");
    }
    words.extend(kernel);
    words
}

/// Function of the program that a stack is in: its last one before it calls others' code, or the kernel's that says most where it has
/// none, as threads of the kernel; `None`: there are no frames.
/// Its name has no parameters, and is escaped for nothing. Functions without names are one for each file and
/// system call: `dash (no symbols)`, `dash (no symbols), wait4()`.
pub fn place<'a>(kernel: &'a [Frame], user: &'a [Frame]) -> Option<Cow<'a, str>> {
    let own = own(user).last().map(|at| &user[*at]);
    let of_kernel = kernel.iter().rev().find(|frame| !is_primitive(frame));
    let place = own.or(user.last()).or(of_kernel).or(kernel.last())?;
    Some(match place.unnamed_in() {
        Some(file) => match kernel.iter().find_map(system_call) {
            Some(call) => format!("{file} (no symbols), {call}()").into(),
            None => format!("{file} (no symbols)").into(),
        },
        None => plain(place),
    })
}

/// The system call that a function of the kernel is for.
fn system_call(frame: &Frame) -> Option<&str> {
    let mut starts = SYSTEM_CALLS.iter();
    starts.find_map(|start| frame.name.strip_prefix(start))
}

/// Places of the program's own functions, or of those that were compiled while it ran where there are any; of a language's library only
/// where there is nothing else.
pub(crate) fn own(user: &[Frame]) -> Vec<usize> {
    let places = |is_own: fn(&Frame) -> bool| -> Vec<usize> {
        (0..user.len()).filter(|at| is_own(&user[*at])).collect()
    };
    let compiled = places(is_compiled);
    if compiled.is_empty() {
        return places(is_own);
    }
    let programs = places(|frame| is_compiled(frame) && !is_pythons(frame));
    if programs.is_empty() {
        compiled
    } else {
        programs
    }
}

/// Tells if a function of the kernel waits, wakes or locks for others.
fn is_primitive(frame: &Frame) -> bool {
    PRIMITIVES.iter().any(|name| frame.name.starts_with(name))
}

fn of_user(user: &[Frame]) -> Vec<String> {
    let own = own(user);
    let mut shown = own[own.len().saturating_sub(MOST)..].to_vec();
    // The function that they call in the end, in its place: others may be inlined into it.
    let leaf = (0..user.len()).rev().find(|at| !user[*at].inlined);
    if let Some(leaf) = leaf.filter(|leaf| !shown.contains(leaf) && !own.contains(leaf)) {
        shown.push(leaf);
        shown.sort_unstable();
    }
    let mut words: Vec<String> = shown.iter().map(|at| name(&user[*at])).collect();
    words.dedup();
    if own.len() > MOST {
        words.insert(0, "…".into());
    }
    words
}

fn name(frame: &Frame) -> String {
    cut_name(&terminal(&plain(frame)), NAME)
}

/// A function's name without parameters.
fn plain(frame: &Frame) -> Cow<'_, str> {
    match frame.kind {
        // Names of a language that has its own rules, with paths of files.
        FrameKind::Jit => (&*frame.name).into(),
        _ => short(&frame.name),
    }
}

/// `read<std::io::Pipe>` as `read`, `void app::Cache<int>::find(int) const` as `app::Cache::find`.
fn short(name: &str) -> Cow<'_, str> {
    let is_rust_path = name.starts_with('<') || name.contains(" as ");
    let is_operator = name.starts_with("operator") || name.contains("::operator");
    if is_rust_path || is_operator || !name.contains(['<', '(', ' ']) {
        return name.into();
    }
    // A part of a function that the compiler moved.
    let whole = name.split(" [clone").next().unwrap_or(name);
    let mut text = String::new();
    let (mut depth, mut has_parameters) = (0_u32, false);
    let mut before = ' ';
    for c in whole.chars() {
        match c {
            // A method of Go: net/http.(*Client).Do.
            '(' if depth == 0 && before == '.' => return name.into(),
            '<' | '(' => {
                depth += 1;
                has_parameters |= c == '(';
            }
            '>' if before == '-' => {}
            '>' | ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => text.push(c),
            _ => {}
        }
        before = c;
    }
    let text = text.replace("::::", "::");
    let mut text = text.trim_end();
    for qualifier in [" &&", " &", " volatile", " const"] {
        text = text.strip_suffix(qualifier).unwrap_or(text).trim_end();
    }
    // The type that it returns stands before a name with parameters.
    let last = match text.rsplit_once(' ') {
        Some((_, last)) if has_parameters => last,
        _ => text,
    };
    match last.trim_matches(':') {
        "" => name.into(),
        last => last.to_owned().into(),
    }
}

/// Tells if it was compiled while the program ran.
fn is_compiled(frame: &Frame) -> bool {
    let is_runtime = RUNTIMES.iter().any(|name| frame.name.starts_with(name));
    let is_nameless = frame.name.contains("+0x") || frame.name.starts_with("[Python: ");
    frame.kind == FrameKind::Jit && !is_runtime && !is_nameless
}

/// Tells the program's functions from those of standard libraries.
pub fn is_own(frame: &Frame) -> bool {
    let full = &*frame.name;
    let short = short(full);
    let is_start = STARTS.contains(&full);
    // A type that is returned may stand before an operator.
    let after_type = short.split_once(' ').filter(|_| !short.starts_with('<'));
    let path = after_type.map_or(&*short, |(_, path)| path);
    let is_of_namespace = LIBRARIES
        .iter()
        .any(|start| short.starts_with(start) || path.starts_with(start));
    let is_of_source = match &frame.line {
        Some((file, _)) => SOURCES.iter().any(|source| file.contains(source)),
        None => false,
    };
    let is_closure = frame.inlined && (CLOSURES.contains(&&*short) || full.starts_with("{closure"))
        || full.contains(" as core::ops::function::Fn");
    let is_libc = frame.module.as_deref().is_some_and(is_libc);
    !(is_start || is_of_namespace || is_of_source || is_closure || is_libc)
}

/// Function in which CPython runs those of a program that nobody has named. Since 3.11 they share one call of it.
const INTERPRETER: &str = "_PyEval_EvalFrameDefault";

/// Frames from the root, which is first, up to the last function of the program's own, inlined ones not counted: how deep in the
/// program a thread is. `None`: an interpreter runs it, whose frames do not say.
pub fn own_depth(frames: &[Frame]) -> Option<usize> {
    let is_named = frames.iter().any(is_python);
    let is_interpreted = !is_named && frames.iter().any(|frame| &*frame.name == INTERPRETER);
    let called = frames.iter().filter(|frame| !frame.inlined);
    let own = called
        .enumerate()
        .filter(|(_, frame)| is_own(frame) && !is_pythons(frame) && !is_of_interpreter(frame));
    (!is_interpreted).then(|| own.last().map_or(0, |(at, _)| at + 1))
}

/// Tells if it is a function of Python, as the interpreter's memory has it.
fn is_python(frame: &Frame) -> bool {
    frame.kind == FrameKind::Jit && frame.module.is_some()
}

/// Tells if it is a function of Python's standard library: a program's queues, selectors and locks are written in Python there.
fn is_pythons(frame: &Frame) -> bool {
    let file = frame
        .module
        .as_deref()
        .filter(|_| frame.kind == FrameKind::Jit);
    file.is_some_and(|file| {
        let is_library = file.split('/').any(has_pythons) && !file.contains("-packages/");
        is_library || file.starts_with("<frozen ")
    })
}

/// Tells if a directory, or an archive in its place, holds Python's standard library: `python3.11`, `python311.zip`.
fn has_pythons(part: &str) -> bool {
    let version = part.strip_prefix("python3");
    let version = version.map(|rest| rest.trim_end_matches('t').trim_end_matches(".zip"));
    let number = version.map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Tells if it is one of the C functions of CPython itself, between those of a program.
fn is_of_interpreter(frame: &Frame) -> bool {
    let file = frame
        .module
        .as_deref()
        .filter(|_| frame.kind != FrameKind::Jit);
    let name = file.and_then(|file| file.rsplit('/').next());
    name.is_some_and(|name| name.starts_with("python3") || name.starts_with("libpython3"))
}

fn is_libc(module: &str) -> bool {
    let file = module.rsplit('/').next().unwrap_or_default();
    let names = [
        "libc.so",
        "libc-",
        "libpthread",
        "ld-linux",
        "ld-musl",
        "libstdc++",
        "[vdso]",
    ];
    names.iter().any(|name| file.starts_with(name))
}

#[cfg(test)]
#[path = "brief_tests.rs"]
mod tests;
