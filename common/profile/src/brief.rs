//! A stack in few words, root → leaf: the program's own functions, what they call, and where the kernel is.
//!
//! What every stack has says nothing: how threads start, and the standard library between a program's functions. What is taken
//! for that is a matter of names, so it is for lists that people read, and never for what programs read.

use crate::escape::terminal;
use crate::frame::{Frame, FrameKind};
use crate::text::cut;

/// Functions of the program that are shown, those nearest the leaf.
const MOST: usize = 5;
/// Columns of a name.
const NAME: usize = 60;

/// How threads and programs begin.
const STARTS: [&str; 13] = [
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
    "runtime.goexit",
    "runtime.main",
    "execute_native_thread_routine",
];
/// Namespaces of standard libraries.
const LIBRARIES: [&str; 8] = [
    "std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__rust_", "runtime.",
];
/// What Rust's closures are inlined through; names of inlined functions have no path.
const CLOSURES: [&str; 6] = [
    "{closure",
    "call_once",
    "call_mut",
    "call<",
    "do_call",
    "catch_unwind",
];
/// Sources of Rust's libraries.
const SOURCES: [&str; 3] = ["/library/std/", "/library/core/", "/library/alloc/"];

/// Both parts of a stack, root first.
pub(crate) fn brief(kernel: &[Frame], user: &[Frame]) -> Vec<String> {
    let own: Vec<&Frame> = user.iter().filter(|frame| is_own(frame)).collect();
    let leaf = user.iter().rev().find(|frame| !frame.inlined);
    let mut shown: Vec<&Frame> = own[own.len().saturating_sub(MOST)..].to_vec();
    // What it calls, and all there is of a program without names.
    let called = leaf.filter(|leaf| !shown.iter().any(|frame| std::ptr::eq(*frame, *leaf)));
    shown.extend(called);
    let mut words: Vec<String> = shown.into_iter().map(name).collect();
    if own.len() > MOST {
        words.insert(0, "…".into());
    }
    words.extend(kernel.last().map(|frame| format!("[k] {}", name(frame))));
    words
}

fn name(frame: &Frame) -> String {
    cut(&terminal(without_generics(&frame.name)), NAME)
}

/// `read<std::io::Pipe>` as `read`.
fn without_generics(name: &str) -> &str {
    let mut depth = 0;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b'>' => depth += 1,
            b'<' => depth -= 1,
            _ if depth == 0 => return name,
            _ => {}
        }
        if depth == 0 {
            return if at > 0 { &name[..at] } else { name };
        }
    }
    name
}

/// Whether a function is the program's.
pub(crate) fn is_own(frame: &Frame) -> bool {
    let name = &*frame.name;
    let begins = |all: &[&str]| all.iter().any(|start| name.starts_with(start));
    let is_of_library = match &frame.line {
        Some((file, _)) => SOURCES.iter().any(|source| file.contains(source)),
        None => false,
    };
    let has_no_name = frame.kind != FrameKind::Jit && name.contains("+0x");
    let is_start = STARTS.contains(&name);
    let is_between = begins(&LIBRARIES) || frame.inlined && begins(&CLOSURES) || is_of_library;
    let is_libc = frame.module.as_deref().is_some_and(is_libc);
    !(is_start || is_between || is_libc || has_no_name || name.contains(" as core::"))
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
    ];
    names.iter().any(|name| file.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| {
            let inlined = name.starts_with("i:");
            let from_libc = name.starts_with("c:");
            let name = if inlined || from_libc {
                &name[2..]
            } else {
                name
            };
            Frame {
                name: name.into(),
                kind: FrameKind::User,
                inlined,
                module: Some(
                    if from_libc {
                        "/lib/libc.so.6"
                    } else {
                        "/bin/app"
                    }
                    .into(),
                ),
                address: 1,
                line: None,
            }
        };
        names.iter().map(frame).collect()
    }

    #[test]
    fn the_programs_own_functions_are_left_and_what_they_call() {
        let rust = frames(&[
            "c:clone3",
            "c:start_thread",
            "<std::sys::thread::unix::Thread>::new::thread_start",
            "i:catch_unwind<(), f>",
            "i:{closure#1}<demo::main, ()>",
            "read_from_the_pipe<std::io::PipeReader>",
            "<std::sys::fs::unix::File>::read",
            "c:__GI___libc_read",
        ]);
        let brief = |kernel: &[Frame], user: &[Frame]| brief(kernel, user).join(" > ");
        let kernel = frames(&[
            "entry_SYSCALL_64_after_hwframe",
            "ksys_read",
            "anon_pipe_read",
        ]);
        let line = "read_from_the_pipe > __GI___libc_read > [k] anon_pipe_read";
        assert_eq!(brief(&kernel, &rust), line);
        let c = frames(&[
            "_start",
            "c:__libc_start_main_impl",
            "main",
            "a",
            "b",
            "c",
            "d",
            "e",
        ]);
        assert_eq!(brief(&[], &c), "… > a > b > c > d > e");
        let nameless = frames(&["_start", "app+0x10", "app+0x20", "c:read"]);
        assert_eq!(brief(&[], &nameless), "read");
        assert_eq!(brief(&[], &nameless[..3]), "app+0x20");
        assert_eq!(brief(&kernel, &[]), "[k] anon_pipe_read");
        assert_eq!(brief(&[], &[]), "");
        for name in ["<a::B as c::D<e>>::f", "<a::B<c>>", "operator>", "f"] {
            assert_eq!(without_generics(name), name);
        }
    }
}
