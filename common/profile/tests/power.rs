//! How often the gate catches what has grown, by where it started: the table of the man page.

mod fixtures;

use std::path::Path;

use fixtures::random::Random;
use fixtures::{judged, recording};
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
    recording(lines)
}

/// Of a hundred pairs in which it grew by five points: where the gate fails, and where it names the function.
fn caught(random: &mut Random, n: u64, share: f64) -> [f64; 2] {
    let mut caught = [0; 2];
    for _ in 0..PAIRS {
        let base = sampled(random, n, share);
        let new = sampled(random, n, share + 0.05);
        let exceeded = judged(&base, &new);
        let is_named = exceeded.guilty.iter().any(|guilty| guilty.name == "f0");
        caught[0] += u32::from(exceeded.is_any());
        caught[1] += u32::from(is_named);
    }
    caught.map(|caught| f64::from(caught) * 100.0 / PAIRS as f64)
}

/// Of a hundred, what a test of one function alone catches that has one false alarm in a hundred: the normal
/// approximation for two proportions.
fn best(n: u64, share: f64) -> f64 {
    let grown = share + 0.05;
    let pooled = f64::midpoint(share, grown);
    let error = |spread: f64| (spread / n as f64).sqrt();
    let under_chance = error(2.0 * pooled * (1.0 - pooled));
    let grown_error = error(share * (1.0 - share) + grown * (1.0 - grown));
    100.0 * below((0.05 - Z * under_chance) / grown_error)
}

/// One false alarm in a hundred, one-sided.
const Z: f64 = 2.326_348;

/// The normal distribution's, by the sum of its density.
fn below(z: f64) -> f64 {
    const STEP: f64 = 1e-3;
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let steps = (z.abs() / STEP) as u32;
    let area: f64 = (0..steps)
        .map(|step| STEP * density((f64::from(step) + 0.5) * STEP))
        .sum();
    0.5 + area.copysign(z)
}

/// Rows `SHARE % N BEST N` of the table.
fn of_man_page() -> Vec<(f64, [f64; 3])> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../man/flame.1");
    let page = std::fs::read_to_string(path).expect("the man page");
    let (_, table) = page
        .split_once("SHARE     3,000      best    10,000\n")
        .expect("a table");
    let rows = table.lines().take_while(|line| !line.starts_with('.'));
    let row = |line: &str| {
        let numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<f64> = numbers.collect();
        (numbers[0], [numbers[1], numbers[2], numbers[3]])
    };
    rows.map(row).collect()
}

#[test]
fn the_gate_catches_as_often_as_the_man_page_says() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 23);
    let table = of_man_page();
    assert!(table.len() >= 5);
    for (share, [few, best, many]) in table {
        let share = share / 100.0;
        let single = self::best(3_000, share);
        assert!(
            (single - best).abs() <= 0.5,
            "{share}: {single}, not {best}"
        );
        for (n, promised) in [(3_000, few), (10_000, many)] {
            let [caught, named] = caught(&mut random, n, share);
            eprintln!("{share} of {n}: {caught} of 100, {named} named; promised {promised}");
            // Three standard errors of 400 pairs; at 99 and 100 of 100 there are few.
            let error = 3.0 * (promised * (100.0 - promised) / PAIRS as f64).sqrt();
            assert!(
                (caught - promised).abs() <= error.max(1.5),
                "{share}, {n}: {caught}, not {promised}"
            );
            assert!(named >= 0.97 * caught, "{share}, {n}: {named} named");
        }
    }
}

/// Twenty functions, each called by the one before it: nearly the same samples, twenty times.
fn nested(random: &mut Random, n: u64, grown: f64) -> Recording {
    let mut counts = [0_u64; 20];
    for _ in 0..n {
        let at = if random.uniform() < grown {
            19
        } else {
            (random.uniform() * 20.0) as usize
        };
        counts[at] += 1;
    }
    let mut stack = "app".to_owned();
    let lines = counts.iter().enumerate().map(|(at, count)| {
        stack += &format!(";f{at}");
        format!("{stack} {count}\n")
    });
    let lines: String = lines.collect();
    recording(lines)
}

#[test]
fn functions_that_call_each_other_cost_little_power_and_no_false_alarms() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 29);
    let mut failed = |n: u64, grown: f64| {
        let pairs = (0..PAIRS).map(|_| {
            let [base, new] = [0.0, grown].map(|grown| nested(&mut random, n, grown));
            judged(&base, &new).is_any()
        });
        pairs.filter(|failed| *failed).count()
    };
    let alarms = failed(3_000, 0.0);
    eprintln!("{alarms} false alarms in {PAIRS}");
    assert!(alarms <= PAIRS / 100 + 6, "{alarms}: three standard errors");
    // Every sample in twenty moves to the innermost: its own share nearly doubles, all around it grow by less.
    let caught = failed(3_000, 0.05);
    eprintln!("{caught} caught in {PAIRS}");
    assert!(caught >= PAIRS * 99 / 100, "{caught}");
}
