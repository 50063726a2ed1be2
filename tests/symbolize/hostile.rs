//! Files made to hurt whoever reads them. Each costs its own names at most: an honest program is named afterwards.

use std::fs;
use std::time::{Duration, Instant};

use symbols::Symbolizer;

use crate::target::{SOURCE, Target, compile, compile_source, frames, names, symbolizer, tool};

/// What the reading process may take for one file, twice (with debug information and without), and some for the tests
/// beside.
const PATIENCE: Duration = Duration::from_secs(60);

/// The hostile program's function is found by its symbol, or not at all; the honest one's with what was inlined.
fn survives(symbolizer: &mut Symbolizer, hostile: &Target, name: &str) {
    let began = Instant::now();
    let found = frames(symbolizer, hostile.tgid, hostile.address(0));
    assert!(
        names(&found) == ["hot"] || found[0].name.starts_with(&format!("{name}+0x")),
        "{found:?}"
    );
    let dir = tempfile::tempdir().unwrap();
    let honest = Target::start(&compile(dir.path(), "honest", &["-g"]));
    let found = frames(symbolizer, honest.tgid, honest.address(1));
    assert_eq!(names(&found), ["chain", "middle", "inner"]);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
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
fn compile_deep(dir: &std::path::Path, name: &str) -> std::path::PathBuf {
    let source = SOURCE
        .replace(
            "static __attribute__((noinline, used)) int hot",
            "__attribute__((noinline, used)) int hot",
        )
        .replace("{ for", "{ __asm__ volatile(\".loc 1 7\"); for");
    let source = format!("__asm__(\".file 1 \\\"a.c\\\"\");\n{source}{DEEP}");
    compile_source(dir, name, "c", &source, &[])
}

#[test]
fn a_million_functions_inlined_into_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile_deep(dir.path(), "deep");
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    let found = frames(&mut symbolizer, target.tgid, target.address(0));
    assert_eq!(names(&found), ["hot"], "the symbol table is left");
    survives(&mut symbolizer, &target, "deep");
}

#[test]
fn a_section_that_unpacks_to_more_than_it_claims() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "bomb", &["-g"]);
    // 24 bytes of header that claim 100 bytes, and 16 GiB of zeros: a block of 16 MiB, again and again.
    let script = "import zlib,struct
c=zlib.compressobj(9); z=bytes(1<<24); first=c.compress(z)+c.flush(zlib.Z_FULL_FLUSH)
again=c.compress(z)+c.flush(zlib.Z_FULL_FLUSH)
open('packed','wb').write(struct.pack('<IIQQ',1,0,100,1)+first+again*1023)";
    assert!(tool(dir.path(), "python3", &["-c", script]));
    for section in [".debug_info", ".debug_str", ".debug_abbrev"] {
        let update = format!("{section}=packed");
        assert!(tool(
            dir.path(),
            "objcopy",
            &["--update-section", &update, "bomb"]
        ));
    }
    set_compressed(&program);
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    survives(&mut symbolizer, &target, "bomb");
}

/// Sets SHF_COMPRESSED for all sections of debug information.
fn set_compressed(program: &std::path::Path) {
    let mut bytes = fs::read(program).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (headers, count) = (
        word(&bytes, 0x28),
        u16::from_le_bytes([bytes[0x3c], bytes[0x3d]]),
    );
    let mut set = 0;
    for n in 0..usize::from(count) {
        let header = usize::try_from(headers).unwrap() + 64 * n;
        let size = word(&bytes, header + 32);
        if size > 10_000_000 {
            bytes[header + 9] |= 8;
            set += 1;
        }
    }
    assert_eq!(set, 3);
    fs::write(program, bytes).unwrap();
}

#[test]
fn a_name_that_grows_without_end() {
    let dir = tempfile::tempdir().unwrap();
    // pair<S, S> of the one before, forty times: 2^40 words.
    let mut mangled = "_Z1fSt4pairIiiE".to_owned();
    let mut last = "S_".to_owned();
    for depth in 0..40_u32 {
        mangled.push_str(&format!("St4pairI{last}{last}E"));
        last = match depth {
            n if n < 10 => format!("S{n}_"),
            n => format!(
                "S{}_",
                char::from(b'A' + u8::try_from(n - 10).unwrap() % 26)
            ),
        };
    }
    let rename = format!("hot={mangled}");
    compile(dir.path(), "names", &[]);
    assert!(tool(
        dir.path(),
        "objcopy",
        &["--redefine-sym", &rename, "names"]
    ));
    let target = Target::start(&dir.path().join("names"));
    let mut symbolizer = symbolizer();
    let began = Instant::now();
    let found = frames(&mut symbolizer, target.tgid, target.address(0));
    assert!(
        found[0].name.len() < 20_000,
        "{} bytes",
        found[0].name.len()
    );
    assert!(began.elapsed() < PATIENCE);
    let honest = Target::start(&compile(dir.path(), "honest", &["-g"]));
    let found = frames(&mut symbolizer, honest.tgid, honest.address(1));
    assert_eq!(names(&found), ["chain", "middle", "inner"]);
}

#[test]
fn an_owner_of_many_such_files_loses_all_names_and_nobody_else_does() {
    let dir = tempfile::tempdir().unwrap();
    let mut symbolizer = symbolizer();
    let mut refused = Vec::new();
    for n in 0..4 {
        let name = format!("deep{n}");
        let program = compile_deep(dir.path(), &name);
        std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
        let target = Target::start(&program);
        let found = frames(&mut symbolizer, target.tgid, target.address(0));
        refused.push(names(&found) != ["hot"]);
    }
    assert_eq!(refused, [false, true, true, true], "one death each");
    assert_eq!(symbolizer.losses().modules_refused, 3);
    let honest = Target::start(&compile(dir.path(), "honest", &["-g"]));
    let found = frames(&mut symbolizer, honest.tgid, honest.address(1));
    assert_eq!(names(&found), ["chain", "middle", "inner"]);
}
