//! How often the gate catches what has grown, by where it started: the table of the man page.

mod fixtures;

use std::path::Path;

use fixtures::random::Random;
use profile::compare::diff::{functions, tree};
use profile::compare::gate::{Limits, gate};
use profile::draw::tree::Paths;
use profile::read::{ReadOptions, read};
use profile::recording::Recording;

const PAIRS: usize = 400;
/// Functions beside the one that grows.
const OTHERS: usize = 12;

/// Samples of a program with one function of this share, and others that share the rest.
fn sampled(random: &mut Random, n: u64, share: f64) -> Recording {
    let mut counts = [0_u64; OTHERS + 1];
    for _ in 0..n {
        let at = if random.uniform() < share {
            0
        } else {
            1 + (random.uniform() * OTHERS as f64) as usize
        };
        counts[at] += 1;
    }
    let line = |(at, count): (usize, &u64)| format!("app;main;part_{};f{at} {count}\n", at % 4);
    let lines: String = counts.iter().enumerate().map(line).collect();
    read(lines.as_bytes(), &ReadOptions::default()).expect("folded lines")
}

/// Of a hundred pairs in which it grew by five points.
fn caught(random: &mut Random, n: u64, share: f64) -> f64 {
    let limits = Limits {
        growth: 0.02,
        total: None,
        own: false,
    };
    let is_caught = |_: &usize| {
        let base = sampled(random, n, share);
        let new = sampled(random, n, share + 0.05);
        let tree = tree(&base, &new, Paths::default());
        let exceeded = gate(&tree, &functions(&tree, &base, &new), &limits);
        exceeded.guilty.iter().any(|guilty| guilty.name == "f0")
    };
    (0..PAIRS).filter(is_caught).count() as f64 * 100.0 / PAIRS as f64
}

/// Rows `SHARE % N N` of the table.
fn of_man_page() -> Vec<(f64, [f64; 2])> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../man/flame.1");
    let page = std::fs::read_to_string(path).expect("the man page");
    let (_, table) = page
        .split_once("SHARE     3,000    10,000\n")
        .expect("a table");
    let rows = table.lines().take_while(|line| !line.starts_with('.'));
    let row = |line: &str| {
        let numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<f64> = numbers.collect();
        (numbers[0], [numbers[1], numbers[2]])
    };
    rows.map(row).collect()
}

#[test]
fn the_gate_catches_as_often_as_the_man_page_says() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 23);
    let table = of_man_page();
    assert!(table.len() >= 5);
    for (share, promised) in table {
        for (n, promised) in [3_000, 10_000].into_iter().zip(promised) {
            let caught = caught(&mut random, n, share / 100.0);
            eprintln!("{share} % of {n}: {caught} of 100, promised {promised}");
            // Three standard errors of 400 pairs; at 99 and 100 of 100 there are few.
            let error = 3.0 * (promised * (100.0 - promised) / PAIRS as f64).sqrt();
            assert!(
                (caught - promised).abs() <= error.max(1.5),
                "{share} %, {n}: {caught}, not {promised}"
            );
        }
    }
}
