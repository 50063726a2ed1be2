//! Files that lie: no panic, and bounds on time and memory.

use std::time::{Duration, Instant};

use unwind::{Counts, Error, Image, Rule, Table};

use crate::fake::{TEXT, advance, cfa_offset, cie, elf, entry, fde, fde_with_id, sp};
use crate::machine::LINKER_PATH;
use crate::oracle::Random;

fn made(bytes: &[u8]) -> Result<(Table, Counts), Error> {
    let image = Image::from_memory(bytes)?;
    image.content_key();
    image.bias(0x1000, 0x1000);
    image.table()
}

fn eh_frame(entries: &[Vec<u8>]) -> Vec<u8> {
    elf(&[(".eh_frame", 2, &entries.concat())])
}

fn small_file() -> Vec<u8> {
    std::fs::read(LINKER_PATH).unwrap()
}

/// Rounds of a test; without optimization they take twenty times as long.
fn rounds(count: u64) -> u64 {
    if cfg!(debug_assertions) {
        count / 20
    } else {
        count
    }
}

#[test]
fn a_file_may_end_anywhere() {
    let bytes = small_file();
    for end in (0..bytes.len()).step_by(4096).chain(0..200) {
        if let Ok((table, _)) = made(&bytes[..end]) {
            assert!(table.pages.len() <= 1 << 20);
        }
    }
    assert!(matches!(made(&[]), Err(Error::NotElf)));
    assert!(matches!(made(b"#!/bin/sh\n"), Err(Error::NotElf)));
    assert!(matches!(made(&[0; 5000]), Err(Error::NotElf)));
    let mut other = bytes;
    other[18] = 243;
    assert!(matches!(made(&other), Err(Error::OtherMachine)), "riscv");
    other[4] = 1;
    assert!(matches!(made(&other), Err(Error::OtherMachine)), "32 bits");
}

#[test]
fn flipped_bytes_make_other_tables_or_none() {
    let bytes = small_file();
    let mut random = Random(0xdead_beef_1234_5678);
    let file = object::File::parse(&*bytes).unwrap();
    let section = object::Object::section_by_name(&file, ".eh_frame").unwrap();
    let (at, size) = object::ObjectSection::file_range(&section).unwrap();
    let tables = object::Object::section_by_name(&file, ".shstrtab").unwrap();
    let (names, _) = object::ObjectSection::file_range(&tables).unwrap();
    let ranges = [
        (at, size),
        (at, 200),
        (0, 64),
        (64, 700),
        (names, bytes.len() as u64 - names),
    ];
    let (mut good, mut bad) = (0, 0);
    for round in 0..rounds(4000) {
        let (at, size) = ranges[round as usize % ranges.len()];
        let mut bytes = bytes.clone();
        for _ in 0..1 + random.below(8) {
            bytes[(at + random.below(size)) as usize] = random.next() as u8;
        }
        match made(&bytes) {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    eprintln!("{good} tables, {bad} errors");
    assert!(good > bad);
}

#[test]
fn absurd_sizes_are_refused_before_memory_is_taken() {
    let file = eh_frame(&[cie(0, &[]), fde(24, TEXT, 100, &[])]);
    let sections = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let second = sections + 64;
    // Program headers' number and offset; sections' number, names and offset; .eh_frame's offset and size; the
    // segment's address and sizes.
    let fields = [
        32,
        40,
        56,
        60,
        62,
        second + 24,
        second + 32,
        64 + 16,
        64 + 32,
        64 + 40,
    ];
    for at in fields {
        for value in [u64::MAX, u64::MAX / 2, 1 << 47, 1 << 31, 0xffff, 0] {
            let mut file = file.clone();
            let length = if (56..64).contains(&at) { 2 } else { 8 };
            file[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
            let _ = made(&file);
        }
    }
    // Headers of the most entries, and a section as large as its limit says.
    let mut many = file.clone();
    many[60..62].copy_from_slice(&0xffffu16.to_le_bytes());
    many.resize(many.len() + 64 * 0xffff, 1);
    let _ = made(&many);
}

#[test]
fn shared_entries_may_be_anything() {
    let good = cie(0, &[]);
    let size = good.len();
    for id in [1, 4, 8, size as u32, u32::MAX, 0x7fff_ffff] {
        // Itself, the middle of something, before the section.
        let entries = [good.clone(), fde_with_id(id, TEXT, 100, &[])];
        let (table, counts) = made(&eh_frame(&entries)).unwrap();
        assert_eq!((counts.fdes, counts.dropped_fdes), (1, 1), "{id}");
        assert_eq!(table.lookup(TEXT), Rule::UNCOVERED);
    }
    // Two that refer to each other.
    let one = fde_with_id(4, TEXT, 100, &[]);
    let two = fde(one.len(), TEXT + 200, 100, &[]);
    assert_eq!(made(&eh_frame(&[one, two])).unwrap().1.dropped_fdes, 2);
    // An augmentation nobody knows, a version from the future.
    for rest in [&[1, b'x', 0, 1, 0x78, 16][..], &[9, 0, 1, 0x78, 16]] {
        let shared = entry(0, rest);
        let size = shared.len();
        let (_, counts) = made(&eh_frame(&[shared, fde(size, TEXT, 100, &[])])).unwrap();
        assert_eq!(counts.dropped_fdes, 1);
    }
}

#[test]
fn of_overlapping_functions_the_first_address_counts() {
    let shared = cie(0, &[]);
    let mut entries = vec![shared];
    let mut add = |start, length, offset| {
        let back = entries.iter().map(Vec::len).sum();
        entries.push(fde(back, TEXT + start, length, &cfa_offset(offset)));
    };
    add(100, 100, 16);
    add(50, 100, 24);
    add(120, 20, 32);
    add(200, 50, 40);
    add(200, 60, 48);
    add(0, 0, 56);
    add(300, u64::MAX, 64);
    add(259, 1, 72);
    let (table, counts) = made(&eh_frame(&entries)).unwrap();
    for (address, rule) in [
        (49, Rule::UNCOVERED),
        (50, sp(24)),
        (149, sp(24)),
        (150, sp(16)),
        (199, sp(16)),
        (200, sp(40)),
        (249, sp(40)),
        (250, sp(48)),
        (259, sp(48)),
        (260, Rule::UNCOVERED),
        (300, Rule::UNCOVERED),
    ] {
        assert_eq!(table.lookup(TEXT + address), rule, "{address}");
    }
    assert_eq!(
        (counts.fdes, counts.dropped_fdes, counts.hidden_fdes),
        (8, 2, 2)
    );
}

#[test]
fn broken_instructions_leave_the_rest_unsupported() {
    let shared = cie(0, &[]);
    let size = shared.len();
    // An offset, an advance, and an instruction that does not exist.
    let instructions = [&cfa_offset(16)[..], &[advance(10), 0x3f]].concat();
    let file = eh_frame(&[shared, fde(size, TEXT + 1, 100, &instructions)]);
    let (table, counts) = made(&file).unwrap();
    assert_eq!(table.lookup(TEXT + 10), sp(16));
    assert_eq!(table.lookup(TEXT + 11), Rule::UNSUPPORTED);
    assert_eq!(table.lookup(TEXT + 100), Rule::UNSUPPORTED);
    assert_eq!(table.lookup(TEXT + 101), Rule::UNCOVERED);
    assert_eq!(counts.broken_fdes, 1);
}

#[test]
fn a_stack_pointer_that_is_not_the_cfa_is_unsupported() {
    let shared = cie(0, &[]);
    let size = shared.len();
    // DW_CFA_register rsp r8, as in longjmp; DW_CFA_val_offset rsp 0 says what holds anyway.
    for (instructions, rule) in [([0x09, 7, 8], Rule::UNSUPPORTED), ([0x14, 7, 0], sp(8))] {
        let file = eh_frame(&[shared.clone(), fde(size, TEXT, 100, &instructions)]);
        assert_eq!(made(&file).unwrap().0.lookup(TEXT), rule);
    }
}

#[test]
fn rows_stay_within_their_function() {
    let shared = cie(0, &[]);
    let size = shared.len();
    let instructions = [
        &cfa_offset(16)[..],
        &[advance(40)],
        &cfa_offset(24),
        &[advance(40)],
    ]
    .concat();
    let first = fde(size, TEXT + 1, 20, &instructions);
    let second = fde(size + first.len(), TEXT + 21, 20, &[]);
    let (table, _) = made(&eh_frame(&[shared, first, second])).unwrap();
    assert_eq!(table.lookup(TEXT + 20), sp(16));
    assert_eq!(table.lookup(TEXT + 21), sp(8));
}

/// As many functions as fit into `size` bytes, each with these instructions.
fn full(size: usize, shared: Vec<u8>, instructions: &[u8]) -> Vec<u8> {
    let mut section = shared;
    let mut start = TEXT;
    while section.len() < size {
        let more = fde(section.len(), start, 64, instructions);
        section.extend(more);
        start += 64;
    }
    elf(&[(".eh_frame", 2, &section)])
}

#[test]
fn expensive_instructions_have_a_limit() {
    let megabyte = 1 << 20;
    let size = if cfg!(debug_assertions) {
        megabyte
    } else {
        32 * megabyte
    };
    // Forty registers are set (DW_CFA_same_value), then remembered and restored again and again.
    let registers: Vec<u8> = (20..50).flat_map(|register| [0x08, register]).collect();
    let states = [0x0a, 0x0b].repeat(2000);
    let remember = [&registers[..], &states].concat();
    // A long expression on every byte of code: DW_CFA_def_cfa_expression, then advance.
    let expression = [&[0x0f, 100][..], &[0x30; 100], &[advance(1)]].concat();
    let cases = [
        ("remembered states", cie(0, &[]), remember),
        (
            "long shared entries",
            cie(0, &[0x08, 20].repeat(480)),
            vec![],
        ),
        ("shared entries too long", cie(0, &[0; 4000]), vec![]),
        ("expressions", cie(0, &[]), expression.repeat(60)),
        (
            "rows",
            cie(0, &[]),
            [[advance(1), 0x0e, 16], [advance(1), 0x0e, 24]]
                .concat()
                .repeat(30),
        ),
        ("empty rows", cie(0, &[]), vec![advance(0); 1000]),
    ];
    for (name, shared, instructions) in cases {
        let file = full(size, shared, &instructions);
        let begin = Instant::now();
        let result = made(&file);
        let took = begin.elapsed();
        if name == "shared entries too long" {
            let counts = result.as_ref().unwrap().1;
            assert_eq!(counts.fdes, counts.dropped_fdes);
        }
        let what = result.map(|(table, counts)| (table.size(), counts));
        eprintln!("{name}: {} MB in {took:?}: {what:?}", file.len() >> 20);
        assert!(took < Duration::from_secs(20), "{name}");
    }
}
