//! Programs with their symbols inside.

use symbols::{Options, Symbolizer};

use crate::target::{Dir, INLINED, SOURCE, Target, frames, names, nm, symbolizer};

#[test]
fn every_kind_of_executable() {
    let dir = Dir::new();
    for (name, flags) in [
        ("pie", "-pie -fPIE"),
        ("nopie", "-no-pie -fno-PIE"),
        ("static_pie", "-static-pie -fPIE"),
        ("static_nopie", "-static -fno-PIE"),
        ("large_pages", "-Wl,-z,max-page-size=0x200000"),
    ] {
        let program = dir.compile(name, flags);
        let target = Target::start(&program);
        let mut symbolizer = symbolizer();
        let found = target.frames(&mut symbolizer, 0);
        assert_eq!(names(&found), ["hot"], "{name}");
        assert_eq!(found[0].address, nm(&program, "hot") + 4, "{name}");
        assert_eq!(found[0].module.as_deref(), program.to_str(), "{name}");
        assert_eq!(symbolizer.losses().unnamed, 0);
    }
}

#[test]
fn inlined_functions_and_lines() {
    let dir = Dir::new();
    let program = dir.compile("inlines", "-g");
    let target = Target::start(&program);
    let found = target.frames(&mut symbolizer(), 1);
    assert_eq!(names(&found), INLINED);
    let inlined = found.iter().map(|f| f.inlined);
    assert_eq!(inlined.collect::<Vec<_>>(), [false, true, true]);
    let line = |text: &str| {
        let mut lines = SOURCE.lines();
        u32::try_from(lines.position(|l| l.contains(text)).unwrap() + 1).unwrap()
    };
    let texts = ["pc = middle()", "return inner()", "lea 0"];
    for (frame, text) in found.iter().zip(texts) {
        let (file, found) = frame.line.as_ref().unwrap();
        assert_eq!(*found, line(text), "{text}");
        assert!(file.ends_with("inlines.c"), "{file}");
    }

    let options = Options {
        inline: false,
        ..Options::default()
    };
    let found = target.frames(&mut Symbolizer::new(options).unwrap(), 1);
    assert_eq!(names(&found), ["chain"]);
}

/// Linkers for arm64 leave marks where code begins behind data; here they are in a program for this machine.
#[test]
fn marks_of_code_and_data_are_no_functions() {
    let dir = Dir::new();
    let source = "#include <stdio.h>\n#include <unistd.h>\nint marked(void);\n\
                  __asm__(\".globl marked\\n.type marked, @function\\nmarked: ret\\n\\\"$d\\\": .quad 0\\n\\\"$x\\\": ret\\n\\\"$d.1\\\": .quad 0\\n\\
                  \\\"$x.1\\\": ret; ret\\n.size marked, .-marked\\n\\\"$x.2\\\": .fill 64, 1, 0xc3\\n\");\n\
                  int main() { unsigned long at = (unsigned long)marked; printf(\"%lx %lx %lx %lx\\n\", at, at + 9, at + 19, at + 40); \
                  fflush(stdout); pause(); }";
    let program = dir.compile_source("marks", "c", source, "-Wl,-z,norelro");
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    for n in 0..3 {
        assert_eq!(names(&target.frames(&mut symbolizer, n)), ["marked"], "{n}");
    }
    let behind = target.frames(&mut symbolizer, 3);
    let unnamed = format!("marks+{:#x}", behind[0].address);
    assert_eq!(names(&behind), [unnamed]);
}

#[test]
fn demangled_names() {
    let dir = Dir::new();
    let source = "#include <cstdio>\n#include <unistd.h>\nnamespace shop { struct Till { static int __attribute__((noinline)) \
                  sum(const char *, int); }; int Till::sum(const char *, int n) { volatile int x = n; return x; } }\n\
                  int main() { printf(\"%lx\\n\", (unsigned long)&shop::Till::sum + 1); fflush(stdout); pause(); }";
    let program = dir.compile_source("mangled", "cc", source, "");
    let target = Target::start(&program);
    let found = target.frames(&mut symbolizer(), 0);
    assert_eq!(names(&found), ["shop::Till::sum(char const*, int)"]);

    let own = marker as fn() -> u64 as usize as u64;
    let found = frames(&mut symbolizer(), std::process::id(), own);
    // Where the test is optimised, what is inlined follows.
    let name = names(&found)[0];
    assert_eq!(name, "symbolize::elf::marker", "no hash, no mangling");
    assert_eq!(marker(), 42);
}

#[inline(never)]
fn marker() -> u64 {
    std::hint::black_box(42)
}

#[test]
fn the_vdso() {
    use object::{Object, ObjectSymbol};
    // SAFETY: getauxval has no preconditions.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    // SAFETY: a vDSO has at least its ELF headers and the code and tables behind them in two pages.
    let image = unsafe { std::slice::from_raw_parts(start as *const u8, 8192) };
    let file = object::File::parse(image).unwrap();
    let symbol = file
        .dynamic_symbols()
        .find(|s| s.name() == Ok("__vdso_clock_gettime"))
        .unwrap();
    let address = symbol.address();
    let same: Vec<_> = file
        .dynamic_symbols()
        .filter(|s| s.address() == address)
        .collect();
    let found = frames(&mut symbolizer(), std::process::id(), start + address + 1);
    assert!(
        same.iter().any(|s| s.name() == Ok(&*found[0].name)),
        "{found:?}"
    );
    assert_eq!(found[0].module.as_deref(), Some("[vdso]"));
}

#[test]
fn unknown_addresses_say_where_they_are() {
    let dir = Dir::new();
    let program = dir.compile("bare", "");
    let hot = nm(&program, "hot");
    dir.run("strip bare");
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    let found = target.frames(&mut symbolizer, 0);
    assert_eq!(names(&found), [format!("bare+{:#x}", hot + 4)]);
    let found = frames(&mut symbolizer, target.tgid, 0x10);
    assert_eq!(names(&found), ["[unmapped]+0x10"]);
    let losses = symbolizer.losses();
    assert_eq!((losses.frames, losses.unnamed), (2, 2));
}

#[test]
fn the_plt_is_not_named_after_its_neighbour() {
    let dir = Dir::new();
    let program = dir.compile("plt", "-fcf-protection=none");
    let init = nm(&program, "_init");
    let hot = nm(&program, "hot");
    let target = Target::start(&program);
    let bias = target.address(0) - 4 - hot;
    let found = frames(&mut symbolizer(), target.tgid, bias + init + 0x20);
    assert_eq!(names(&found), [format!("plt+{:#x}", init + 0x20)]);
    let found = frames(&mut symbolizer(), target.tgid, bias + init);
    assert_eq!(names(&found), ["_init"]);
}

/// Every 512 bytes of the C library: a name wherever nm has a function there, and no name where it has none.
#[test]
fn nm_agrees_on_a_stripped_library() {
    let code = libc::printf as *const () as u64;
    let ips: Vec<u64> = (0..2000).map(|i| code + 1 + i * 512).collect();
    // No debug files: they know internal names that nm -D does not.
    let options = Options {
        debug_dirs: Vec::new(),
        ..Options::default()
    };
    let mut symbolizer = Symbolizer::new(options).unwrap();
    let mut found = Vec::new();
    for ip in ips {
        found.extend(frames(&mut symbolizer, std::process::id(), ip));
    }
    let library = found[0].module.clone().unwrap();
    let output = std::process::Command::new("nm")
        .args(["-DS", "--defined-only", &library])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut functions: Vec<(u64, u64, &str)> = Vec::new();
    for line in text.lines() {
        if let [start, size, _, name] = line.split(' ').collect::<Vec<_>>()[..] {
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            functions.push((number(start), number(size), name.split('@').next().unwrap()));
        }
    }
    let mut named = 0;
    for frame in found {
        let covering: Vec<_> = functions
            .iter()
            .filter(|(s, n, _)| (*s..s + n).contains(&frame.address))
            .map(|f| f.2)
            .collect();
        if covering.is_empty() {
            assert!(frame.name.contains("+0x"), "{frame:?}");
        } else {
            assert!(covering.contains(&&*frame.name), "{frame:?} {covering:?}");
            named += 1;
        }
    }
    assert!(named > 300, "{named} of 2000");
}
