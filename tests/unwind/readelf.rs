//! Tables against readelf, which shares no code with gimli: CFA, frame pointer and return address of every row.

use std::collections::HashMap;
use std::fs::File;
use std::process::Command;

use unwind::{Architecture, Cfa, FpMode, Image, Rule, Table};

use crate::machine::LIBRARIES;

/// A row as readelf prints it: address, CFA, and the columns by name.
struct Row<'a> {
    address: u64,
    cfa: &'a str,
    columns: HashMap<&'a str, &'a str>,
}

/// A row is "0000000000026000 rsp+16   u     c-16  c-8" under the heading "   LOC  CFA  rbx  rbp  ra".
fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut heading: Vec<&str> = Vec::new();
    let mut in_fde = false;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["LOC", "CFA", ..] => heading = words[2..].to_vec(),
            [_, _, _, "FDE", ..] => in_fde = true,
            [_, _, _, "CIE", ..] | [_, "ZERO", "terminator"] => in_fde = false,
            [address, cfa, ref rest @ ..] if in_fde && rest.len() == heading.len() => {
                if let Ok(address) = u64::from_str_radix(address, 16) {
                    let columns = heading.iter().copied().zip(rest.iter().copied()).collect();
                    rows.push(Row {
                        address,
                        cfa,
                        columns,
                    });
                }
            }
            _ => {}
        }
    }
    rows
}

/// Names that readelf has for registers of x86-64.
const NAMES: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Names of the stack pointer and of the frame pointer.
fn pointers(architecture: Architecture) -> [&'static str; 2] {
    match architecture {
        Architecture::X86_64 => ["rsp", "rbp"],
        Architecture::Aarch64 => ["sp", "x29"],
    }
}

fn register(architecture: Architecture, number: u8) -> String {
    match architecture {
        Architecture::X86_64 => NAMES[usize::from(number)].into(),
        Architecture::Aarch64 => format!("x{number}"),
    }
}

/// The column of a return address that is in memory, or in aarch64's x30.
fn return_address(architecture: Architecture, rule: Rule) -> String {
    match (architecture, rule.slot) {
        (Architecture::X86_64, _) => "c-8".into(),
        (Architecture::Aarch64, 0) => "u".into(),
        (Architecture::Aarch64, 62) => format!("c{:+}", 8 * (i32::from(rule.fp_offset) + 1)),
        (Architecture::Aarch64, 63) => format!("c{:+}", 8 * i32::from(rule.fp_offset)),
        (Architecture::Aarch64, words) => format!("c-{}", 8 * u32::from(words)),
    }
}

/// The columns that a rule would have.
fn printed(architecture: Architecture, rule: Rule) -> [String; 3] {
    let [sp, fp] = pointers(architecture);
    let register = |number| register(architecture, number);
    let cfa = match rule.cfa {
        Cfa::Sp => format!("{sp}{:+}", rule.cfa_offset),
        Cfa::Bp => format!("{fp}{:+}", rule.cfa_offset),
        Cfa::Register => format!("{}{:+}", register(rule.low()), rule.high()),
        Cfa::RaRegister => format!("{sp}{:+}", rule.high()),
        Cfa::SpDeref | Cfa::BpDeref | Cfa::Plt | Cfa::Signal => "exp".into(),
        Cfa::End | Cfa::Unsupported | Cfa::Uncovered => String::new(),
    };
    let bp = match (rule.cfa, rule.fp) {
        (Cfa::Signal, _) | (_, FpMode::AtBp) => "exp".into(),
        (_, FpMode::Same) => "u".into(),
        (_, FpMode::AtCfa) => {
            let unit = match architecture {
                Architecture::X86_64 => 1,
                Architecture::Aarch64 => 8,
            };
            format!("c{:+}", unit * i32::from(rule.fp_offset))
        }
        (_, FpMode::Lost) => String::new(),
    };
    let ra = match rule.cfa {
        Cfa::Signal => "exp".into(),
        Cfa::End => "u".into(),
        Cfa::RaRegister => register(rule.low()),
        _ => return_address(architecture, rule),
    };
    [cfa, bp, ra]
}

/// CFA and return address, where a table says that the latter was pushed above its CFA: the caller's sp is above both, until they
/// are popped.
fn behind_pushed(cfa: &str, ra: String) -> (String, String) {
    let offset = cfa
        .strip_prefix("sp")
        .and_then(|text| text.parse::<i32>().ok());
    match (offset, &*ra) {
        (Some(-16), "c+8") => ("sp+0".into(), "u".into()),
        (Some(offset), "c+8") => (format!("sp{:+}", offset + 16), "c-8".into()),
        _ => (cfa.to_owned(), ra),
    }
}

fn differs(
    architecture: Architecture,
    table: &Table,
    (row, next): (&Row<'_>, Option<&Row<'_>>),
) -> Option<String> {
    let rule = table.lookup(row.address);
    let [sp, fp] = pointers(architecture);
    // Pushed before the function began, which is said behind its first instruction.
    let pushed = |row: &Row<'_>| row.columns.get("ra") == Some(&"c+8");
    let is_late = |next: &&Row<'_>| row.cfa == "sp+0" && !pushed(row) && pushed(next);
    let told = next.filter(is_late).unwrap_or(row);
    // A register that is as it was: said, or not said.
    let column = |name| told.columns.get(name).copied().unwrap_or("u");
    let [bp, ra] = [fp, "ra"].map(|name| column(name).replace('s', "u"));
    let (cfa, ra) = behind_pushed(told.cfa, ra);
    let [our_cfa, our_bp, our_ra] = printed(architecture, rule);
    let same = match rule.cfa {
        Cfa::End => ra == "u",
        Cfa::Unsupported => row.columns.contains_key(sp),
        _ => (our_cfa == cfa) && (our_bp == bp) && (our_ra == ra),
    };
    let text = || {
        format!(
            "{:#x}: {rule:?}, readelf {} {bp} {ra}",
            row.address, row.cfa
        )
    };
    (!same).then(text)
}

/// Every row of a file, of which there are more than `least`.
fn assert_rows(path: &str, least: usize) {
    let output = Command::new("readelf")
        .args(["--wide", "--debug-dump=frames-interp", path])
        .env("LC_ALL", "C")
        .output()
        .expect("readelf, which `make deps` installs");
    let text = String::from_utf8_lossy(&output.stdout);
    let file = File::open(path).expect("a file that `make deps-test` installs");
    let image = Image::read(&file).unwrap();
    let (table, _) = image.table().unwrap();
    let rows = rows(&text);
    // Of two rows at one address the second counts; readelf prints both.
    let ends = rows.iter().zip(rows.iter().skip(1).map(Some).chain([None]));
    let live = ends.filter(|(row, next)| next.is_none_or(|next| next.address != row.address));
    let differing: Vec<_> = live
        .filter_map(|row| differs(image.architecture(), &table, row))
        .collect();
    eprintln!("{path}: {} rows, {} differ", rows.len(), differing.len());
    assert!(rows.len() > least, "{}", rows.len());
    assert_eq!(differing, Vec::<String>::new());
}

#[test]
fn every_row_of_libc_says_what_readelf_says() {
    assert_rows(&format!("{LIBRARIES}/libc.so.6"), 10_000);
}

/// The files of Debian's cross compiler.
#[test]
fn every_row_of_libraries_for_arm64_says_what_readelf_says() {
    for (name, least) in [
        ("libc.so.6", 15_000),
        ("libstdc++.so.6", 15_000),
        ("ld-linux-aarch64.so.1", 1_000),
    ] {
        assert_rows(&format!("/usr/aarch64-linux-gnu/lib/{name}"), least);
    }
}
