//! Files made to hurt whoever reads them. Each costs its own names at most: an honest program is named afterwards.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use symbols::Symbolizer;

use crate::target::{Dir, INLINED, SOURCE, Target, names, symbolizer};

/// What the reading process may take for one file, twice (with debug information and without), and some for the tests
/// beside.
const PATIENCE: Duration = Duration::from_secs(60);

/// An honest program has all of its names, in time.
fn assert_honest(symbolizer: &mut Symbolizer, began: Instant) {
    let honest = Target::start(&Dir::new().compile("honest", "-g"));
    assert_eq!(names(&honest.frames(symbolizer, 1)), INLINED);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

/// The hostile program's function is found by its symbol, or not at all; the honest one's with what was inlined.
fn survives(symbolizer: &mut Symbolizer, hostile: &Target, name: &str) {
    let began = Instant::now();
    let found = hostile.frames(symbolizer, 0);
    let is_offset = found[0].name.starts_with(&format!("{name}+0x"));
    assert!(is_offset || names(&found) == ["hot"], "{found:?}");
    assert_honest(symbolizer, began);
}

/// A million inlined functions, each inside the one before: a byte each.
const DEEP: &str = r#"
__asm__(".pushsection .debug_abbrev,\"\",@progbits\n"
        ".byte 1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0x10, 0x17, 0, 0\n" /* compile unit: low_pc, high_pc, line table */
        ".byte 2, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0\n" /* subprogram: name, low_pc, high_pc */
        ".byte 3, 0x1d, 1, 0, 0, 0\n" /* inlined subroutine: nothing */
        ".popsection\n"
        ".pushsection .debug_info,\"\",@progbits\n"
        ".long 2f-1f\n1: .short 4\n .long 0\n .byte 8\n"
        ".byte 1\n .quad hot\n .quad 64\n .long 0\n"
        ".byte 2\n .asciz \"hot\"\n .quad hot\n .quad 64\n"
        ".fill 1000000, 1, 3\n .fill 1000002, 1, 0\n"
        "2: .popsection\n");
"#;

/// The usual program with that information about its first function, whose lines the assembler knows.
fn compile_deep(dir: &Dir, name: &str) -> PathBuf {
    let hot = "__attribute__((noinline, used)) int hot";
    let source = SOURCE
        .replace(&format!("static {hot}"), hot)
        .replace("{ for", "{ __asm__ volatile(\".loc 1 7\"); for");
    let source = format!("__asm__(\".file 1 \\\"a.c\\\"\");\n{source}{DEEP}");
    dir.compile_source(name, "c", &source, "")
}

#[test]
fn a_million_functions_inlined_into_each_other() {
    let dir = Dir::new();
    let program = compile_deep(&dir, "deep");
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    let found = target.frames(&mut symbolizer, 0);
    assert_eq!(names(&found), ["hot"], "the symbol table is left");
    survives(&mut symbolizer, &target, "deep");
}

#[test]
fn a_section_that_unpacks_to_more_than_it_claims() {
    let dir = Dir::new();
    let program = dir.compile("bomb", "-g");
    // 24 bytes of header that claim 100 bytes, and 16 GiB of zeros: a block of 16 MiB, again and again.
    let script = "import zlib,struct
c=zlib.compressobj(9); z=bytes(1<<24); first=c.compress(z)+c.flush(zlib.Z_FULL_FLUSH)
again=c.compress(z)+c.flush(zlib.Z_FULL_FLUSH)
open('packed','wb').write(struct.pack('<IIQQ',1,0,100,1)+first+again*1023)";
    dir.run_all(&["python3", "-c", script]);
    for section in [".debug_info", ".debug_str", ".debug_abbrev"] {
        dir.run(&format!("objcopy --update-section {section}=packed bomb"));
    }
    set_compressed(&dir, "bomb");
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    survives(&mut symbolizer, &target, "bomb");
}

/// Sets SHF_COMPRESSED for all sections of debug information.
fn set_compressed(dir: &Dir, program: &str) {
    let mut bytes = fs::read(dir.file(program)).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let headers = usize::try_from(word(&bytes, 0x28)).unwrap();
    let count = u16::from_le_bytes([bytes[0x3c], bytes[0x3d]]);
    let mut set = 0;
    for n in 0..usize::from(count) {
        let header = headers + 64 * n;
        let size = word(&bytes, header + 32);
        if size > 10_000_000 {
            bytes[header + 9] |= 8;
            set += 1;
        }
    }
    assert_eq!(set, 3);
    dir.program(program, &bytes);
}

#[test]
fn a_name_that_grows_without_end() {
    let dir = Dir::new();
    // pair<S, S> of the one before, forty times: 2^40 words.
    let mut mangled = "_Z1fSt4pairIiiE".to_owned();
    let mut last = "S_".to_owned();
    for depth in 0..40_u32 {
        mangled.push_str(&format!("St4pairI{last}{last}E"));
        let letter = |n: u32| char::from(b'A' + u8::try_from(n).unwrap() % 26);
        last = match depth.checked_sub(10) {
            None => format!("S{depth}_"),
            Some(n) => format!("S{}_", letter(n)),
        };
    }
    let program = dir.compile("names", "");
    dir.run(&format!("objcopy --redefine-sym hot={mangled} names"));
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    let began = Instant::now();
    let length = target.frames(&mut symbolizer, 0)[0].name.len();
    assert!(length < 20_000, "{length} bytes");
    assert_honest(&mut symbolizer, began);
}

#[test]
fn an_owner_of_many_such_files_loses_all_names_and_nobody_else_does() {
    let dir = Dir::new();
    let mut symbolizer = symbolizer();
    let mut refused = Vec::new();
    let began = Instant::now();
    for n in 0..4 {
        let name = format!("deep{n}");
        let program = compile_deep(&dir, &name);
        chown(&program, Some(65_534), None).unwrap();
        let target = Target::start(&program);
        let found = target.frames(&mut symbolizer, 0);
        refused.push(names(&found) != ["hot"]);
    }
    assert_eq!(refused, [false, true, true, true], "one death each");
    assert_eq!(symbolizer.losses().modules_refused, 3);
    assert_honest(&mut symbolizer, began);
}
