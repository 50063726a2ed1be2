//! Judgements of `diff` and `gate` on two profiles.

use crate::{Files, assert_has, flame};

/// A recording of functions `f` and `g`, samples each.
fn recorded(files: &Files, name: &str, seconds: u64, [f, g]: [u64; 2]) -> String {
    let stack = |function: &str, count: u64| {
        serde_json::json!({
            "comm": "a", "pid": 1, "tid": 1, "count": count, "values": [count],
            "user": [{"name": function, "kind": "user", "address": "0x1"}], "kernel": []
        })
    };
    let json = serde_json::json!({
        "tool": "profile", "duration_ns": seconds * 1_000_000_000, "sample_period_ns": 10_000_000,
        "values": [{"name": "samples", "unit": "count"}],
        "stacks": [stack("f", f), stack("g", g)]
    });
    files.file(name, json.to_string())
}

/// The last word of a function's line.
fn verdict<'a>(table: &'a str, function: &str) -> &'a str {
    let lines = table.lines().skip_while(|line| !line.contains("FUNCTION"));
    let mut lines = lines.map(str::split_whitespace);
    let of_function = |words: &mut std::str::SplitWhitespace<'a>| {
        words
            .clone()
            .any(|word| word == function)
            .then(|| words.clone().next_back())
    };
    lines
        .find_map(|mut words| of_function(&mut words))
        .flatten()
        .unwrap_or_else(|| panic!("{table}"))
}

#[test]
fn twice_as_long_is_no_growth_and_twice_as_much_is_one() {
    let files = Files::new();
    let base = recorded(&files, "base.json", 30, [1000, 500]);
    let long = recorded(&files, "long.json", 60, [2000, 1000]);
    let doubled = recorded(&files, "doubled.json", 30, [2000, 1000]);
    let diff = |new: &str, how: &str| flame(format!("diff {base} {new} --all {how}"), "").ok();
    // Shares are the same in all of them.
    for (new, how, word) in [
        (&long, "", "(chance)"),
        (&long, "--absolute", "(chance)"),
        (&long, "--raw", "grew"),
        (&doubled, "", "(chance)"),
        (&doubled, "--absolute", "grew"),
        (&doubled, "--raw", "grew"),
    ] {
        for function in ["f", "g"] {
            assert_eq!(verdict(&diff(new, how), function), word, "{new} {how}");
        }
    }
    let said = "BASE has 50.0 samples a second, NEW 100; these are compared";
    assert_has(
        &diff(&doubled, "--absolute"),
        [said, "+33.3", "33.3", "66.7"],
    );
    for (new, how, code) in [
        (&long, "", 0),
        (&long, "--raw", 4),
        (&doubled, "", 4),
        (&doubled, "--raw", 4),
    ] {
        flame(format!("gate {base} {new} --max-total 10% {how}"), "").fails(code);
    }
    let exceeded = flame(format!("gate {base} {doubled} --max-total 10%"), "").stdout;
    let said =
        "flame gate: failed: all grew by 100.0 %,\n  50.0 -> 100 samples a second (limit 10 %)\n";
    assert!(exceeded.starts_with(said), "{exceeded}");
    // By shares nothing has changed.
    assert!(
        exceeded.contains(" --absolute   # all that changed"),
        "{exceeded}"
    );
}

/// The other function's growth is not its loss.
#[test]
fn a_function_as_fast_as_before_has_not_shrunk() {
    let files = Files::new();
    let base = recorded(&files, "base.json", 30, [1000, 500]);
    let new = recorded(&files, "new.json", 60, [2000, 4000]);
    let svg = files.path("diff.svg");
    let shares = flame(format!("diff {base} {new}"), "").ok();
    assert_eq!(
        [verdict(&shares, "f"), verdict(&shares, "g")],
        ["shrank", "grew"]
    );
    let rates = flame(format!("diff {base} {new} --all --absolute -o {svg}"), "").ok();
    assert_eq!(
        [verdict(&rates, "f"), verdict(&rates, "g")],
        ["(chance)", "grew"]
    );
    let moved = "\n1 function grew; 0 shrank; 1 within chance\n";
    assert!(rates.contains(moved), "{rates}");
    let parts = [
        "▲ red: more in NEW",
        "<title>g</title><desc>16.7 a second in BASE, 66.7 a second in NEW: +50.0 · GREW in NEW",
        "<title>f</title><desc>33.3 a second in BASE, 33.3 a second in NEW: +0.00 · no change",
    ];
    assert_has(&files.text("diff.svg"), parts);
}

#[test]
fn files_without_their_length_have_no_rates() {
    let files = Files::new();
    let base = recorded(&files, "base.json", 30, [1000, 500]);
    let new = files.file("new.folded", "a;f 1000\na;g 500\n");
    let told = "new.folded does not say how long it was recorded";
    let said = flame(format!("diff --absolute {base} {new}"), "").fails(1);
    assert_has(&said, [told, "--raw"]);
    // The same values.
    let said = flame(format!("gate --max-total 10% {base} {new}"), "").fails(0);
    assert_has(&said, [told, "--max-total compares values as they are"]);
    let truncated = "a 7/8 [000] 1.5: 100 cpu-clock: \n\t10 f (m)\n\n  a 7/8 [0";
    let damaged = files.file("damaged.perf.txt", truncated);
    let said = flame(format!("gate {damaged} {damaged}"), "").fails(1);
    assert_has(&said, ["damaged.perf.txt is damaged"]);
}

#[test]
fn nothing_in_as_many_seconds_is_a_rate() {
    let files = Files::new();
    let base = recorded(&files, "base.json", 30, [0, 0]);
    let new = recorded(&files, "new.json", 30, [1000, 500]);
    let table = flame(format!("diff {base} {new} --absolute"), "").ok();
    assert_eq!([verdict(&table, "f"), verdict(&table, "g")], ["grew"; 2]);
}

#[test]
fn the_gate_has_stable_exit_codes() {
    let files = Files::new();
    let base = files.file("base.folded", "a;main;f 1500\na;main;g 1500\n");
    let new = files.file("new.folded", "a;main;f 1350\na;main;g 1650\n");
    let twice = files.file("twice.folded", "a;main;f 3000\na;main;g 3000\n");
    let grown = "flame gate: failed: g grew by 5.00 pp (limit 3 pp)
     GREW    BASE     NEW  FUNCTION
  +5.00pp  50.00%  55.00%  g
next: ";
    for (new, options, code, said) in [
        (&*new, "--max-growth 3pp", 4, grown),
        (&new, "--max-growth 6pp", 0, ""),
        (&new, "--max-growth 6 --max-total 10% --raw", 0, ""),
        (&twice, "--max-total 10% --raw", 4, ""),
        ("/no/such/file", "", 1, ""),
        (&new, "--max-growth much", 2, ""),
        (&new, "--raw", 2, ""),
    ] {
        let run = flame(format!("gate {base} {new} {options}"), "");
        assert!(run.stdout.starts_with(said), "{options}: {}", run.stdout);
        run.fails(code);
    }
}

#[test]
fn diff_says_the_direction_in_words() {
    let files = Files::new();
    let base = files.file(
        "base.folded",
        "a;main;f 600\na;main;g 400\na;main;old 100\n",
    );
    let new = files.file("new.folded", "a;main;f 1200\na;main;g 1400\n");
    let svg = files.path("diff.svg");
    let table = flame(format!("diff {base} {new} -o {svg}"), "").ok();
    let answer = "g grew most by itself: 36.36% -> 53.85% of the samples (+17.48pp)\n\n";
    assert!(table.starts_with(answer), "{table}");
    let titles = "    SELF    BASE     NEW     TOTAL    BASE     NEW  FUNCTION\n";
    let limits =
        "only in BASE: old 9.09%\n1 function grew; 2 shrank; 1 within chance (--all lists them)\n";
    assert_has(&table, [titles, limits]);
    let line = |name: &str| {
        let mut lines = table.lines().skip(2);
        let line = lines.find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("{table}"))
    };
    assert!(line(" g ").ends_with("g grew"), "{table}");
    assert_has(line(" g "), ["+17.48pp"]);
    assert!(line(" old ").ends_with("old shrank"), "{table}");
    let back = flame(format!("diff {new} {base}"), "").ok();
    assert_has(&back, ["only in NEW: old 9.09%\n"]);
    let same = flame(format!("diff {base} {base}"), "").ok();
    let said = "No function changed by more than chance does (99 %).\n";
    assert!(same.starts_with(said), "{same}");
    assert_has(
        &same,
        ["\n\n4 functions within chance (--all lists them)\n"],
    );
    let empty = files.file("empty.folded", "");
    let none = flame(format!("diff {base} {empty}"), "").ok();
    let said = "Nothing can be compared: NEW is empty.\n";
    assert!(none.starts_with(said), "{none}");
    let parts = [
        "▲ red: larger share in NEW",
        "▼ blue: smaller share in NEW",
        "<title>g</title><desc>36.4 % in BASE, 53.8 % in NEW: +17.48 percentage points · GREW in NEW",
    ];
    assert_has(&files.text("diff.svg"), parts);
}
