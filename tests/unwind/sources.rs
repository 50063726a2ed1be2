//! Where call frame information may be: sections, segments, memory; compressed; in two sections at once.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::{Compression, write::ZlibEncoder};
use object::{Object, ObjectSymbol};
use unwind::{Cfa, Error, Image, Rule, Table};

use crate::fake::{TEXT, cfa_offset, cie, elf, fde, fde_with_id, put, put_address, sp};
use crate::machine::LIBRARIES;

const COMPRESSED: u64 = 1 << 11;

fn table(bytes: &[u8]) -> Table {
    Image::from_memory(bytes).unwrap().table().unwrap().0
}

fn libc() -> Vec<u8> {
    std::fs::read(Path::new(LIBRARIES).join("libc.so.6")).unwrap()
}

#[test]
fn without_section_headers_the_segments_lead_there() {
    let mut bytes = libc();
    let with = table(&bytes);
    // e_shoff, and the three fields of its entries.
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    assert_eq!(table(&bytes), with);
    assert!(with.rows.len() > 10_000);
}

#[test]
fn equal_files_have_equal_keys() {
    let mut bytes = libc();
    let key = |bytes: &[u8]| Image::from_memory(bytes).unwrap().content_key();
    let before = key(&bytes);
    let image = Image::from_memory(&bytes).unwrap();
    let code = image
        .loads()
        .iter()
        .find(|load| load.is_executable())
        .unwrap();
    // The same table for other code: a forged file shares it only with a file that says the same.
    bytes[code.offset as usize + 100_000] ^= 1;
    assert_eq!(key(&bytes), before);
    let file = object::File::parse(&*bytes).unwrap();
    let section = file.section_by_name(".eh_frame").unwrap();
    let (at, _) = object::ObjectSection::file_range(&section).unwrap();
    bytes[at as usize + 100] ^= 1;
    assert_ne!(key(&bytes), before);
}

/// A `.debug_frame` with one function of 100 bytes.
fn debug_frame(start: u64, offset: u8) -> Vec<u8> {
    [
        cie(u32::MAX, &[]),
        fde_with_id(0, start, 100, &cfa_offset(offset)),
    ]
    .concat()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An Elf64_Chdr and the data.
fn compressed(kind: u64, size: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [kind, size, 8]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    bytes.extend_from_slice(data);
    bytes
}

#[test]
fn debug_frame_serves_plain_and_compressed() {
    let frame = debug_frame(TEXT, 40);
    let size = frame.len() as u64;
    let gnu = [b"ZLIB", &size.to_be_bytes()[..], &zlib(&frame)].concat();
    for file in [
        elf(&[(".debug_frame", 0, &frame)]),
        elf(&[(
            ".debug_frame",
            COMPRESSED,
            &compressed(1, size, &zlib(&frame)),
        )]),
        elf(&[(".zdebug_frame", 0, &gnu)]),
    ] {
        let table = table(&file);
        assert_eq!(table.lookup(TEXT + 99), sp(40));
        assert_eq!(table.lookup(TEXT + 100), Rule::UNCOVERED);
    }
}

#[test]
fn wide_entries_are_read() {
    // 64-bit DWARF: an escape, eight bytes of length, eight of what it is.
    let wide = |id: u64, rest: &[u8]| {
        let mut entry = [
            &u32::MAX.to_le_bytes()[..],
            &(8 + rest.len() as u64).to_le_bytes(),
        ]
        .concat();
        entry.extend(id.to_le_bytes());
        entry.extend_from_slice(rest);
        entry
    };
    let shared = wide(u64::MAX, &[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]);
    let range = [TEXT.to_le_bytes(), 100u64.to_le_bytes()].concat();
    let frame = [shared, wide(0, &[&range[..], &cfa_offset(40)].concat())].concat();
    let image = Image::from_memory(&elf(&[(".debug_frame", 0, &frame)])).unwrap();
    let (table, counts) = image.table().unwrap();
    assert_eq!(table.lookup(TEXT + 99), sp(40));
    assert_eq!((counts.fdes, counts.dropped_fdes), (1, 0));
}

#[test]
fn a_known_plt_needs_no_description() {
    let header = [0xff, 0x35, 1, 2, 3, 4, 0xff, 0x25, 1, 2, 3, 4, 0, 0, 0, 0];
    let entry = [0xff, 0x25, 1, 2, 3, 4, 0x68, 1, 0, 0, 0, 0xe9, 1, 2, 3, 4];
    let mut file = elf(&[(".plt", 6, &[header, entry, entry].concat())]);
    put_address(&mut file, TEXT);
    let table = table(&file);
    let plt = Rule {
        cfa: Cfa::Plt,
        cfa_offset: 11,
        ..Rule::default()
    };
    for (at, rule) in [
        (0, sp(16)),
        (5, sp(16)),
        (6, sp(24)),
        (15, sp(24)),
        (16, plt),
        (47, plt),
    ] {
        assert_eq!(table.lookup(TEXT + at), rule, "{at}");
    }
    assert_eq!(table.lookup(TEXT + 48), Rule::UNCOVERED);
}

#[test]
fn a_static_programs_stubs_need_no_description() {
    let stub = [0xff, 0x25, 1, 2, 3, 4, 0x66, 0x90];
    let mut file = elf(&[(".plt", 6, &[stub, stub, stub].concat())]);
    put_address(&mut file, TEXT);
    let table = table(&file);
    assert_eq!(table.lookup(TEXT), sp(8));
    assert_eq!(table.lookup(TEXT + 23), sp(8));
    assert_eq!(table.lookup(TEXT + 24), Rule::UNCOVERED);
}

#[test]
fn what_claims_to_be_compressed_has_a_limit() {
    let frame = debug_frame(TEXT, 40);
    let size = frame.len() as u64;
    // 64 MB of zeros in 64 KB, which claims more than that, or less.
    let bomb = zlib(&vec![0; 1 << 26]);
    for section in [
        compressed(1, 1 << 30, &bomb),
        compressed(1, u64::MAX, &bomb),
        compressed(1, size + 1, &zlib(&frame)),
        compressed(2, size, &frame),
        compressed(1, size, &frame),
        vec![1; 10],
    ] {
        let file = elf(&[(".debug_frame", COMPRESSED, &section)]);
        assert!(Image::from_memory(&file).is_err());
    }
    let cut = compressed(1, size, &bomb);
    let file = elf(&[(".debug_frame", COMPRESSED, &cut)]);
    assert!(table(&file).pages.is_empty(), "zeros");
}

/// How many bytes may be held of a file before it is too large, which it is to be at one byte less.
fn needed(sections: &[(&str, u64, &[u8])]) -> u64 {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&elf(sections)).unwrap();
    let fits = |limit: &u64| match Image::read_within(&file, *limit) {
        Ok(_) => true,
        Err(Error::TooLarge(_)) => false,
        Err(error) => panic!("{error}"),
    };
    let least = (0..4096).find(fits).expect("small sections");
    assert!((least..4096).all(|limit| fits(&limit)));
    least
}

#[test]
fn all_that_is_held_at_once_has_a_limit() {
    let frame = debug_frame(TEXT, 40);
    let packed = compressed(1, frame.len() as u64, &zlib(&frame));
    let (plain, small) = (frame.len() as u64, packed.len() as u64);
    let (eh, go, text) = ([0; 100], [7; 200], [0x90; 16]);
    let code = (".text", 6, &text[..]);
    assert_eq!(needed(&[(".debug_frame", 0, &frame)]), plain);
    let both = needed(&[(".debug_frame", COMPRESSED, &packed)]);
    assert_eq!(both, plain + small, "packed and unpacked");
    let sections = [(".eh_frame", 2, &eh[..]), (".gopclntab", 2, &go), code];
    assert_eq!(needed(&sections), 300, "Go's table counts, too");
    assert_eq!(needed(&sections[1..]), 200);
}

#[test]
fn eh_frame_counts_where_both_describe_a_function() {
    let shared = cie(0, &[]);
    let back = shared.len();
    let eh_frame = [shared, fde(back, TEXT + 40, 20, &cfa_offset(16))].concat();
    let overlapping = debug_frame(TEXT, 40);
    let elsewhere = debug_frame(TEXT + 60, 48);
    let file = elf(&[
        (".debug_frame", 0, &overlapping),
        (".eh_frame", 2, &eh_frame),
    ]);
    assert_eq!(table(&file).lookup(TEXT), Rule::UNCOVERED);
    assert_eq!(table(&file).lookup(TEXT + 40), sp(16));
    let file = elf(&[(".debug_frame", 0, &elsewhere), (".eh_frame", 2, &eh_frame)]);
    assert_eq!(table(&file).lookup(TEXT + 59), sp(16));
    assert_eq!(table(&file).lookup(TEXT + 60), sp(48));
}

#[test]
fn a_file_without_any_has_an_empty_table() {
    let image = Image::from_memory(&elf(&[(".text", 6, &[0x90; 16])])).unwrap();
    assert!(!image.has_cfi());
    assert_eq!(image.table().unwrap().0.pages, []);
    let zeros = elf(&[(".eh_frame", 2, &[0; 64])]);
    assert_eq!(table(&zeros).pages, []);
}

#[test]
fn the_bias_is_that_of_the_segment_that_is_mapped() {
    // Addresses are not offsets here, as in what LLVM's linker makes.
    let mut file = elf(&[]);
    for (at, value) in [(8, 0x2345), (16, TEXT + 0x345), (32, 0x3000)] {
        put(&mut file, 64 + at, value);
    }
    let image = Image::from_memory(&file).unwrap();
    let bias = 0x5555_0000_0000;
    assert_eq!(image.bias(bias + TEXT, 0x2000), Some(bias));
    // The kernel splits mappings, for instance after mprotect.
    assert_eq!(image.bias(bias + TEXT + 0x2000, 0x4000), Some(bias));
    assert_eq!(image.bias(bias + TEXT, 0x1000), None);
    assert_eq!(image.bias(bias + TEXT, 0x6000), None);
}

#[test]
fn errors_are_one_line() {
    let error = Image::from_memory(&[0; 100]).unwrap_err();
    assert_eq!(error.to_string(), "not an ELF file");
    assert_eq!(
        Error::TooLarge("text").to_string(),
        "text: larger than supported"
    );
}

const PROGRAM: &str = r#"
int printf(const char *, ...);
__attribute__((noinline)) int work(int depth) {
    volatile char space[100];
    space[0] = depth;
    return depth ? work(depth - 1) + space[0] : 0;
}
int main(void) { return printf("%d\n", work(10)); }
"#;

fn compile(directory: &Path, name: &str, options: &str) -> Vec<u8> {
    let source = directory.join("unwind.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let output = directory.join(name);
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-g", "-w", "-o"])
        .arg(&output)
        .arg(&source)
        .args(options.split_whitespace());
    assert!(command.status().unwrap().success());
    std::fs::read(output).unwrap()
}

/// The rules at every byte of a function.
fn rules(bytes: &[u8], function: &str) -> Vec<Rule> {
    let file = object::File::parse(bytes).unwrap();
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name() == Ok(function))
        .unwrap();
    let table = table(bytes);
    (0..symbol.size())
        .map(|at| table.lookup(symbol.address() + at))
        .collect()
}

#[test]
fn a_program_without_exceptions_has_its_rules_in_debug_frame() {
    let directory = tempfile::tempdir().unwrap();
    let without = "-fno-asynchronous-unwind-tables -fno-exceptions -fno-unwind-tables";
    let normal = compile(directory.path(), "normal", "");
    let plain = compile(directory.path(), "plain", &format!("{without} -gz=none"));
    let small = compile(directory.path(), "small", &format!("{without} -gz=zlib"));
    for function in ["work", "main"] {
        let expected = rules(&normal, function);
        assert!(expected.contains(&sp(8)) && !expected.contains(&Rule::UNCOVERED));
        assert_eq!(rules(&plain, function), expected);
        assert_eq!(rules(&small, function), expected);
    }
}
