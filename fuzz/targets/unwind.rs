//! An image that anyone may have made: no panic, and a table whose parts fit together.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind::{Architecture, Frame, Image, Rule, Table, walk};

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::from_memory(bytes) else {
        return;
    };
    image.content_key();
    for load in image.loads() {
        image.bias(0x7f00_0000_0000, load.offset);
    }
    let Ok((table, _)) = image.table() else {
        return;
    };
    check(&table);
    step(image.architecture(), &table);
});

/// What BPF relies on, although it checks all indices itself.
fn check(table: &Table) {
    assert_eq!(table.text_start % 1024, 0);
    let mut rows = 0;
    for page in &table.pages {
        assert_eq!(page.first as usize, rows);
        rows += usize::from(page.count);
        assert!(usize::from(page.entry_rule) < table.rules.len());
        let page = &table.rows[page.first as usize..rows];
        assert!(page.is_sorted_by(|a, b| a >> 16 < b >> 16));
        assert!(page.iter().all(|row| (1..1024).contains(&(row >> 16))));
    }
    assert_eq!(rows, table.rows.len());
    assert!(
        table
            .rows
            .iter()
            .all(|row| (row & 0xffff) < table.rules.len() as u32)
    );
    assert_eq!(table.rules.first(), Some(&Rule::UNCOVERED));
    let end = table
        .text_start
        .saturating_add(1024 * table.pages.len() as u64);
    assert_eq!(table.lookup(end), Rule::UNCOVERED);
    assert_eq!(table.lookup(u64::MAX), Rule::UNCOVERED);
}

/// Walks from the first places where a rule begins, through memory that holds addresses of this text.
fn step(architecture: Architecture, table: &Table) {
    let memory = |address: u64| {
        (!address.is_multiple_of(3)).then(|| table.text_start.wrapping_add(address % 4096))
    };
    for row in table.rows.iter().take(64) {
        let ip = table.text_start.wrapping_add(u64::from(row >> 16));
        let frame = Frame {
            lr: Some(table.text_start),
            ..Frame::new(architecture, ip, 0x7fff_0000, 0x7fff_0100).with_leaf(&[0x7fff_0200; 16])
        };
        walk(frame, memory, |_| Some((table, 0)), 32);
    }
}
