//! libc's table against readelf, which shares no code with gimli: CFA, rbp and return address of every row.

use std::collections::HashMap;
use std::fs::File;
use std::process::Command;

use unwind::{Cfa, FpMode, Image, Rule, Table};

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

/// What readelf calls a register.
const NAMES: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// The columns that a rule would have.
fn printed(rule: Rule) -> [String; 3] {
    let cfa = match rule.cfa {
        Cfa::Sp => format!("rsp{:+}", rule.cfa_offset),
        Cfa::Bp => format!("rbp{:+}", rule.cfa_offset),
        Cfa::Register => format!("{}{:+}", NAMES[usize::from(rule.low())], rule.high()),
        Cfa::RaRegister => format!("rsp{:+}", rule.high()),
        Cfa::SpDeref | Cfa::BpDeref | Cfa::Plt | Cfa::Signal => "exp".into(),
        Cfa::End | Cfa::Unsupported | Cfa::Uncovered => String::new(),
    };
    let bp = match (rule.cfa, rule.fp) {
        (Cfa::Signal, _) | (_, FpMode::AtBp) => "exp".into(),
        (_, FpMode::Same) => "u".into(),
        (_, FpMode::AtCfa) => format!("c{:+}", rule.fp_offset),
        (_, FpMode::Lost) => String::new(),
    };
    let ra = match rule.cfa {
        Cfa::Signal => "exp".into(),
        Cfa::End => "u".into(),
        Cfa::RaRegister => NAMES[usize::from(rule.low())].into(),
        _ => "c-8".into(),
    };
    [cfa, bp, ra]
}

fn differs(table: &Table, row: &Row<'_>) -> Option<String> {
    let rule = table.lookup(row.address);
    let bp = row.columns.get("rbp").copied().unwrap_or("u");
    let ra = row.columns.get("ra").copied().unwrap_or("u");
    let [our_cfa, our_bp, our_ra] = printed(rule);
    let same = match rule.cfa {
        Cfa::End => ra == "u",
        Cfa::Unsupported => row.columns.contains_key("rsp"),
        _ => (our_cfa == row.cfa) && (our_bp == bp) && (our_ra == ra),
    };
    let text = || {
        format!(
            "{:#x}: {rule:?}, readelf {} {bp} {ra}",
            row.address, row.cfa
        )
    };
    (!same).then(text)
}

#[test]
fn every_row_of_libc_says_what_readelf_says() {
    let path = &format!("{LIBRARIES}/libc.so.6");
    let output = Command::new("readelf")
        .args(["--wide", "--debug-dump=frames-interp", path])
        .env("LC_ALL", "C")
        .output()
        .expect("readelf, which `make deps` installs");
    let text = String::from_utf8_lossy(&output.stdout);
    let (table, _) = Image::read(&File::open(path).unwrap())
        .unwrap()
        .table()
        .unwrap();
    let rows = rows(&text);
    // Of two rows at one address the second counts; readelf prints both.
    let ends = rows.iter().zip(rows.iter().skip(1).map(Some).chain([None]));
    let live = ends.filter(|(row, next)| next.is_none_or(|next| next.address != row.address));
    let differing: Vec<_> = live.filter_map(|(row, _)| differs(&table, row)).collect();
    eprintln!("{} rows, {} differ", rows.len(), differing.len());
    assert!(rows.len() > 10_000);
    assert_eq!(differing, Vec::<String>::new());
}
