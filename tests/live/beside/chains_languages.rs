//! C++, Rust and Go: exceptions and panics in flight, what inlining leaves, goroutines.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::beside::chains::{Case, cases, compile, hold_to, source};
use crate::c_program::run;
use crate::prelude::*;

/// gcc moves landing pads out of the way, to a part of the function with a name of its own.
const CXX: &str = "
    START > main > catches() > owns_outer()|owns_outer() [clone .cold] > Guard::~Guard()
    START > main > catches()|catches() [clone .cold] > handles()
    START > main > catches_copy() > throws_copy(Thrown const&) > Thrown::Thrown(Thrown const&)
    START > main > catches_copy()|catches_copy() [clone .cold] > .. > Thrown::~Thrown()
    START > main > catches_again() > rethrows()|rethrows() [clone .cold] > Guard::~Guard()
    START > main > makes_function() > through_function(std::function<void (int)> const&) > .. > \
        makes_function()::{lambda(int)#1}::operator()(int) const
    START > main > calls_virtual(Base&) > Derived::virtual_call() > Derived::other(Other*) > Derived::other_call()
    START > main > void generic<int>(int)
    START > main > void generic<char const*>(char const*)
    START > main > sorts() > .. > in_order(int, int)
    START > main > has_no_exceptions() > throws() > .. > terminates()
    perhaps: START > main > catches() > owns_outer() > owns_inner() > throws() > ..
    perhaps: START > main > catches_again() > rethrows() > throws() > ..
";

/// Each machine has its way of marking where jumps may go.
#[cfg(target_arch = "x86_64")]
const CXX_MARKED: (&str, &str) = ("O2-lld-cet", "-O2 -fuse-ld=lld -fcf-protection=full");
#[cfg(target_arch = "aarch64")]
const CXX_MARKED: (&str, &str) = ("O2-pac", "-O2 -mbranch-protection=standard");

const CXX_VARIANTS: [(&str, &str); 4] = [
    ("O0", "-O0"),
    ("O2", "-O2"),
    ("O2-static", "-O2 -static"),
    CXX_MARKED,
];

#[test]
fn exceptions_in_flight_have_their_owners_above_them() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let case = |(variant, flags): (&str, &str)| {
        let what = format!("exceptions-{variant}");
        let program = compile("g++", dir.path(), &what, "exceptions.cc", flags);
        Case::new(&what, &program, CXX)
    };
    let cases = cases(&CXX_VARIANTS, case);
    hold_to(cases, "--no-inline");
}

const RUST: &str = "
    START > main > .. > chains::main > chains::nested_1 > chains::nested_2
    START > main > .. > chains::main > chains::large_frame > chains::large_leaf
    START > main > .. > chains::main > chains::measure > <chains::Square as chains::Shape>::area
    START > main > .. > chains::main > chains::catches > .. > chains::owns > .. > \
        <chains::Guard as core::ops::drop::Drop>::drop
    START > main > .. > chains::main > chains::generic*
    THREAD > .. > chains::in_thread
";

const RUST_INLINED: &str = "
    START > main > .. > chains::main > chains::nested_1 > chains::between > chains::nested_2 > chains::stop > ..
";

/// Lines alone have bare names of functions. Symbols have the modules of those that are not inlined, and the files that they are in
/// those of the standard library's.
const RUST_OF_LINES: &str = "
    START > main > .. > chains::main > chains::catches > *catch_unwind<fn(), ()> > .. > chains::owns > \
        core::ptr::drop_in_place<chains::Guard>|drop_glue<chains::Guard> > <chains::Guard as core::ops::drop::Drop>::drop > stop > ..
";

/// A program that was built beforehand: a machine without these compilers has those of tests/kernels/programs beside the sources.
fn built(name: &str) -> Option<PathBuf> {
    let program = source("built").join(name);
    program.exists().then_some(program)
}

fn rustc(dir: &Path, name: &str, flags: &str) -> PathBuf {
    if let Some(program) = built(name) {
        return program;
    }
    let program = dir.join(name);
    run(Command::new("rustc")
        .args(["--edition", "2021", "-C", "force-frame-pointers=no", "-o"])
        .arg(&program)
        .arg(source("chains.rs"))
        .args(flags.split(' ')));
    program
}

#[test]
fn rust_without_frame_pointers_is_whole() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let variants: [(&str, &str); 3] = [
        ("rust-O", "-O"),
        ("rust-static", "-O -C target-feature=+crt-static"),
        ("rust-s", "-C opt-level=s -C link-arg=-fuse-ld=lld"),
    ];
    let case = |(what, flags)| Case::new(what, &rustc(dir.path(), what, flags), RUST);
    let cases = cases(&variants, case);
    hold_to(cases, "--no-inline");
}

#[test]
fn inlined_rust_functions_are_frames_of_the_chain() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let program = rustc(dir.path(), "rust-g", "-O -g");
    let mut case = Case::new("rust-g", &program, RUST_INLINED);
    case.only = "chains::nested_2";
    let program = rustc(dir.path(), "rust-l", "-O -C debuginfo=line-tables-only");
    let mut of_lines = Case::new("rust-l", &program, RUST_OF_LINES);
    of_lines.only = "chains::owns";
    hold_to(vec![case, of_lines], "");
}

const GO: &str = "
    cpu: runtime.goexit > runtime.main > main.main > main.nested1 > main.nested2 > main.nested3
    cpu: runtime.goexit > runtime.main > main.main > main.recurse
    cpu: runtime.goexit > runtime.main > main.main > 100 main.recurse
    cpu: runtime.goexit > runtime.main > main.main > main.largeFrame > main.largeLeaf
    cpu: runtime.goexit > runtime.main > main.main > main.measure > main.(*square).area
    cpu: runtime.goexit > runtime.main > main.main > main.defers > main.deferred
    cpu: runtime.goexit > runtime.main > main.main > main.recovers > main.panics > runtime.gopanic > .. > main.onPanic
    cpu: runtime.goexit > runtime.main > main.main > main.sorts > .. > main.sorts.func1
    cpu: runtime.goexit > main.main.func1 > main.worker > main.nested1 > main.nested2 > main.nested3
";

fn go(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    if let Some(program) = built(name) {
        return program;
    }
    let program = dir.join(name);
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    run(Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .args(flags)
        .arg(source("chains.go"))
        .current_dir(dir)
        .env("GOCACHE", home.join("go"))
        .env("GOPATH", home.join("gopath"))
        .env("GOENV", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0"));
    program
}

#[test]
fn goroutines_are_whole_stripped_or_not() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let variants: [(&str, &[&str]); 4] = [
        ("go", &[]),
        ("go-stripped", &["-ldflags", "-s -w"]),
        ("go-pie", &["-buildmode=pie"]),
        ("go-pie-stripped", &["-buildmode=pie", "-ldflags", "-s -w"]),
    ];
    let case = |(what, flags)| {
        let mut case = Case::new(what, &go(dir.path(), what, flags), GO);
        // The runtime interrupts those who compute for long, to see whether others want to.
        case.command.env("GODEBUG", "asyncpreemptoff=1");
        case.only = "main.";
        case
    };
    let cases = cases(&variants, case);
    hold_to(cases, "--no-inline");
}
