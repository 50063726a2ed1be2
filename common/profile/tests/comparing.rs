//! Gates and judgements over made-up programs whose shares are known.

mod fixtures;

use fixtures::random::Random;
use fixtures::{judged, recording};
use profile::compare::Verdict;
use profile::compare::diff::{Diff, functions, tree};
use profile::compare::gate::{Limits, Place, gate};
use profile::compare::scale::{Scale, Values};
use profile::recording::Recording;
use profile::tree::{Paths, Side};

/// Stacks and their shares, percent.
const PROGRAM: [(&str, f64); 14] = [
    ("app;main;parse;lex", 10.0),
    ("app;main;parse;lex;read", 4.0),
    ("app;main;parse;reduce", 12.0),
    ("app;main;plan;cost", 6.0),
    ("app;main;plan;search", 14.0),
    ("app;main;plan;search;hash", 8.0),
    ("app;main;run;step", 16.0),
    ("app;main;run;step;hash", 7.0),
    ("app;main;run;load", 9.0),
    ("app;main;run;load;memcpy", 3.0),
    ("app;main;gc;mark", 5.0),
    ("app;main;gc;sweep", 3.0),
    ("app;main;log", 2.0),
    ("app;main", 1.0),
];

/// Samples of the program, with `grown` points more in one stack at the others' cost.
fn sampled(random: &mut Random, n: u64, planted: Option<(usize, f64)>) -> Recording {
    let mut shares: Vec<f64> = PROGRAM.iter().map(|(_, share)| *share).collect();
    if let Some((at, points)) = planted {
        let rest = 100.0 - shares[at];
        for (index, share) in shares.iter_mut().enumerate() {
            *share += if index == at {
                points
            } else {
                -points * *share / rest
            };
        }
    }
    let mut counts = [0_u64; PROGRAM.len()];
    for _ in 0..n {
        let mut at = random.uniform() * 100.0;
        let found = shares.iter().position(|share| {
            at -= share;
            at < 0.0
        });
        counts[found.unwrap_or(0)] += 1;
    }
    let line = |((stack, _), count): (&(&str, f64), u64)| format!("{stack} {count}\n");
    let lines = PROGRAM.iter().zip(counts).map(line);
    recording(lines.collect::<String>())
}

fn compare(base: &Recording, new: &Recording) -> Diff {
    functions(&tree(base, new, Paths::default()), base, new, Scale::Shares)
}

#[test]
fn equal_programs_pass_the_gate_99_times_in_100_and_more() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 7);
    let alarms = (0..1000)
        .filter(|_| {
            let (base, new) = (
                sampled(&mut random, 3000, None),
                sampled(&mut random, 3000, None),
            );
            judged(&base, &new).is_any()
        })
        .count();
    eprintln!("{alarms} false alarms in 1,000");
    assert!(alarms <= 10, "{alarms} of 1,000");
}

#[test]
fn five_points_more_are_caught_99_times_in_100_and_named() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 11);
    // From 3, 5, 7, 9 and 12 percent.
    for at in [11, 10, 7, 8, 2] {
        let caught = (0..400)
            .filter(|_| {
                let (base, new) = (
                    sampled(&mut random, 3000, None),
                    sampled(&mut random, 3000, Some((at, 5.0))),
                );
                let exceeded = judged(&base, &new);
                let guilty = PROGRAM[at].0.rsplit(';').next().unwrap();
                exceeded.guilty.iter().any(|mover| mover.name == guilty)
            })
            .count();
        eprintln!("{}: {caught} of 400", PROGRAM[at].0);
        assert!(caught >= 396, "{}: {caught} of 400", PROGRAM[at].0);
    }
}

#[test]
fn chance_alone_is_called_chance_99_times_in_100() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 3);
    let mut movers = [0_u64; 2];
    for _ in 0..300 {
        let (base, new) = (
            sampled(&mut random, 1000, None),
            sampled(&mut random, 2500, None),
        );
        for mover in compare(&base, &new).functions {
            movers[usize::from(mover.own_judged.verdict != Verdict::Unclear)] += 1;
        }
    }
    let wrong = movers[1] as f64 / movers.iter().sum::<u64>() as f64;
    eprintln!("{:.2} % called changes", 100.0 * wrong);
    assert!((0.004..0.016).contains(&wrong), "{wrong}");
}

/// 400 waits of random lengths, 30 % of them in the second part.
fn waits(random: &mut Random) -> [Side; 2] {
    let mut waits = [Vec::new(), Vec::new()];
    for _ in 0..400 {
        let part = usize::from(random.uniform() < 0.3);
        waits[part].push((-f64::ln(1.0 - random.uniform()) * 1e6) as u64);
    }
    waits.map(|waits| {
        let (total, count) = (waits.iter().sum::<u64>(), waits.len() as u64);
        Side {
            total,
            own: 0,
            count,
            squares: 2.0 * (total as f64).powi(2) / count as f64,
        }
    })
}

/// Waits of random lengths: their sums vary more than their number says, and the test must know.
#[test]
fn time_is_judged_by_its_intervals() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 5);
    let mut wrong = 0;
    for _ in 0..2000 {
        let [base, new] = [waits(&mut random), waits(&mut random)];
        let sides = [0, 1].map(|part| [base[part], new[part]]);
        let whole = [0, 1].map(|profile| Side {
            total: sides[0][profile].total + sides[1][profile].total,
            own: 0,
            count: 400,
            squares: sides[0][profile].squares + sides[1][profile].squares,
        });
        wrong += usize::from(Scale::Shares.judge(&sides[0], &whole).verdict != Verdict::Unclear);
    }
    eprintln!("{wrong} of 2,000 called changes");
    assert!((5..=40).contains(&wrong), "{wrong} of 2000");
}

/// Samples of a function that uses a fifth of a CPU, in so many seconds, one every so many milliseconds that it runs.
fn clocked(random: &mut Random, seconds: u64, period_ms: u64) -> Recording {
    let per_second = 0.2 * 1000.0 / period_ms as f64;
    let (mut samples, mut at) = (0_u64, 0.0);
    loop {
        at -= f64::ln(1.0 - random.uniform()) / per_second;
        if at > seconds as f64 {
            break;
        }
        samples += 1;
    }
    let (duration_ns, period_ns) = (seconds * 1_000_000_000, period_ms * 1_000_000);
    recording(format!(
        r#"{{"tool": "profile", "duration_ns": {duration_ns}, "sample_period_ns": {period_ns},
        "values": [{{"name": "samples", "unit": "count"}}],
        "stacks": [{{"comm": "a", "pid": 1, "tid": 1, "count": {samples}, "values": [{samples}],
        "user": [{{"name": "f", "kind": "user", "address": "0x1"}}], "kernel": []}}]}}"#
    ))
}

/// Clocks and lengths that differ: of equal rates one in a hundred is called a change.
#[test]
fn rates_are_judged_by_what_a_sample_is_worth() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + 11);
    for [[base_s, base_ms], [new_s, new_ms]] in
        [[[3, 10], [3, 10]], [[3, 10], [30, 1]], [[30, 10], [3, 1]]]
    {
        let mut wrong = 0;
        for _ in 0..2000 {
            let base = clocked(&mut random, base_s, base_ms);
            let new = clocked(&mut random, new_s, new_ms);
            let tree = tree(&base, &new, Paths::default());
            let values = Values::rates(&base, &new).expect("lengths");
            let diff = functions(&tree, &base, &new, Scale::Values(values));
            wrong += usize::from(diff.functions[0].judged.verdict != Verdict::Unclear);
        }
        eprintln!("{wrong} of 2,000 called changes");
        assert!(
            (5..=40).contains(&wrong),
            "{wrong} of 2000: {base_s} s, {new_s} s"
        );
    }
}

#[test]
fn what_is_on_one_side_only_and_what_was_inlined_is_said() {
    let base = recording("a;main;old 500\na;main;f;g_[i] 500\n");
    let new = recording("a;main;brand_new 500\na;main;f;g 500\n");
    let diff = compare(&base, &new);
    assert_eq!(diff.inlining, ["g"]);
    let find = |name: &str| {
        diff.functions
            .iter()
            .find(|mover| mover.name == name)
            .unwrap()
    };
    assert_eq!(find("old").own_judged.verdict, Verdict::Shrank);
    assert_eq!(find("brand_new").own_judged.verdict, Verdict::Grew);
    assert_eq!(find("g").own_judged.verdict, Verdict::Unclear);
}

#[test]
fn a_function_is_held_to_all_of_its_time_or_to_its_own() {
    let base = recording("a;main;f 10000\na;main;f;g 10000\na;main;i 80000\n");
    let new = recording("a;main;f 10000\na;main;f;g 15000\na;main;i 75000\n");
    let tree = tree(&base, &new, Paths::default());
    let diff = functions(&tree, &base, &new, Scale::Shares);
    let guilty = |own| {
        let limits = Limits {
            growth: 0.02,
            total: None,
            own,
        };
        let guilty = gate(&tree, &diff, &limits).guilty.into_iter();
        let mut found: Vec<_> = guilty.map(|it| (it.name, it.place)).collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    };
    let named = |name: &str, place| (name.to_owned(), place);
    let all = ["f", "g"].map(|name| named(name, Place::Everywhere));
    assert_eq!(guilty(false), all);
    assert_eq!(guilty(true), [named("g", Place::Itself)]);
}
