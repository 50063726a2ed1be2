//! Every command: what it prints, what it exits with.

use crate::{STACKS, file, flame, flame_with, stderr, stdout, text};

#[test]
fn top_counts_each_function_once_per_stack_with_its_interval() {
    let table = stdout(&flame_with(
        &["top", "-", "-n", "3"],
        "a;f;f;g 60\na;f 40\n",
    ));
    let lines: Vec<&str> = table.lines().collect();
    // Wilson: 60 of 100 is 50.2 to 69.1, 40 is 30.9 to 49.8.
    assert_eq!(lines[1], "   60.0 ± 9.8 %     60.0 ± 9.8 %  g", "{table}");
    assert_eq!(lines[2], "   40.0 ± 9.8 %    100.0 ± 3.7 %  f", "{table}");
}

#[test]
fn a_profile_without_stacks_is_said_to_be_one() {
    let output = flame_with(&["top", "-"], "");
    assert!(output.status.success());
    assert_eq!(stderr(&output), "flame: stdin: there are no stacks in it\n");
    let output = flame_with(&["top", "-"], "a;b 1\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn top_goes_by_what_is_asked_for() {
    let table = stdout(&flame_with(&["top", "-", "--by", "comm"], STACKS));
    assert!(table.contains("92.0 ±") && table.contains("app"), "{table}");
    let table = stdout(&flame_with(&["top", "-", "--by", "idle"], STACKS));
    assert!(
        table
            .lines()
            .nth(2)
            .is_some_and(|line| line.ends_with("true") && line.contains("12.0")),
        "{table}"
    );
    let table = stdout(&flame_with(
        &["top", "-", "--unit", "us", "--by", "waker"],
        STACKS,
    ));
    assert!(
        table.contains("80.0 us") || table.contains("8.0%  app"),
        "{table}"
    );
}

#[test]
fn what_is_idle_is_one_box_at_the_root_and_its_amount_is_said() {
    for extra in [&[][..], &["--inverted"]] {
        let svg = stdout(&flame_with(&[&["draw", "-"], extra].concat(), STACKS));
        assert!(
            svg.contains(r#"<g data-d="1"><title>[idle]</title><desc>120, 12.0 %"#),
            "{svg}"
        );
        assert!(
            svg.contains("[idle] is 120 (12.0 %) with nothing to do"),
            "{svg}"
        );
    }
    let shown = stdout(&flame_with(&["draw", "-", "--idle", "show"], STACKS));
    assert!(!shown.contains("<title>[idle]"), "{shown}");
}

#[test]
fn peek_adds_up_callers_and_callees() {
    let text = stdout(&flame_with(&["peek", "-", "^run$"], STACKS));
    let words = |line: &str| {
        line.split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    let lines: Vec<Vec<String>> = text.lines().skip(1).map(words).collect();
    assert_eq!(lines[0], ["350", "35.0%", "main"]);
    assert_eq!(lines[1], ["0", "0.0%", "350", "35.0%", "run"]);
    assert_eq!(lines[2], ["250", "25.0%", "read"]);
    assert_eq!(lines[3], ["100", "10.0%", "step"]);
    assert_eq!(
        flame_with(&["peek", "-", "nobody"], STACKS).status.code(),
        Some(1)
    );
}

#[test]
fn filter_keeps_what_matches_and_says_how_much() {
    let output = flame_with(
        &["filter", "-", "--focus", "run", "--ignore", "vfs"],
        STACKS,
    );
    assert_eq!(stdout(&output), "app;main;run;step_[j] 100\n");
    assert!(
        stderr(&output).contains("kept 100 of 1,000, 10.0 %"),
        "{}",
        stderr(&output)
    );
    let output = flame_with(&["filter", "-", "--tag", "comm=we"], STACKS);
    assert_eq!(stdout(&output), "", "the whole label must match");
}

#[test]
fn merge_adds_and_refuses_what_cannot_be_added() {
    let dir = tempfile::tempdir().expect("a directory");
    let a = file(&dir, "a.folded", "a;f 2\nb;g 3\n");
    let b = file(&dir, "b.folded", "b;g 4\nb;h 1\n");
    assert_eq!(
        stdout(&flame(&["merge", text(&a), text(&b)])),
        "a;f 2\nb;g 7\nb;h 1\n"
    );
    let time = dir.path().join("time.json");
    stdout(&flame(&["convert", text(&a), text(&time), "--unit", "us"]));
    let output = flame(&["merge", text(&time), text(&b)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("how much time a sample stands for"),
        "{}",
        stderr(&output)
    );
}

/// 99 samples of 10 ms each and 0.5 s off the CPU make 1.49 s of wall-clock time.
#[test]
fn samples_of_a_clock_become_time_beside_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let json = |name: &str, body: &str| file(&dir, name, body);
    let cpu = json(
        "cpu.json",
        r#"{"tool": "profile", "duration_ns": 1, "sample_period_ns": 10000000, "values": [{"name": "samples", "unit": "count"}],
        "stacks": [{"comm": "a", "pid": 1, "tid": 1, "count": 99, "values": [99], "user": [{"name": "f", "kind": "user", "address": "0x1"}], "kernel": []}]}"#,
    );
    let wait = json(
        "wait.json",
        r#"{"tool": "offcputime", "duration_ns": 1, "values": [{"name": "blocked", "unit": "ns"}, {"name": "runqueue", "unit": "ns"}],
        "stacks": [{"comm": "a", "pid": 1, "tid": 1, "count": 2, "values": [400000000, 100000000], "user": [{"name": "f", "kind": "user", "address": "0x1"}], "kernel": []}]}"#,
    );
    assert_eq!(
        stdout(&flame(&["merge", text(&cpu), text(&wait)])),
        "a;f 1490000\n"
    );
}

/// A profile of one function, by a clock.
fn clocked(
    dir: &tempfile::TempDir,
    name: &str,
    samples: u64,
    period_ns: u64,
) -> std::path::PathBuf {
    let json = format!(
        r#"{{"tool": "profile", "duration_ns": 1, "sample_period_ns": {period_ns}, "values": [{{"name": "samples", "unit": "count"}}],
        "stacks": [{{"comm": "a", "pid": 1, "tid": 1, "count": {samples}, "values": [{samples}],
        "user": [{{"name": "f", "kind": "user", "address": "0x1"}}], "kernel": []}}]}}"#
    );
    file(dir, name, json)
}

/// 150 samples of 10 ms are as long as 1,500 of 1 ms.
#[test]
fn samples_of_two_clocks_are_worth_their_periods() {
    let dir = tempfile::tempdir().expect("a directory");
    let slow = clocked(&dir, "slow.json", 150, 10_000_000);
    let fast = clocked(&dir, "fast.json", 1_500, 1_000_000);
    assert_eq!(
        stdout(&flame(&["merge", text(&slow), text(&fast)])),
        "a;f 3000000\n"
    );
    assert_eq!(
        stdout(&flame(&["merge", text(&slow), text(&slow)])),
        "a;f 300\n"
    );
    let gate = |new| flame(&["gate", text(&slow), text(new), "--max-total", "10%"]);
    let passed = gate(&fast);
    assert_eq!(passed.status.code(), Some(0), "{}", stdout(&passed));
    let more = clocked(&dir, "more.json", 1_800, 1_000_000);
    let exceeded = gate(&more);
    assert_eq!(exceeded.status.code(), Some(4));
    assert_eq!(
        String::from_utf8_lossy(&exceeded.stdout),
        "GREW  +20.0 % in all  1.50 s -> 1.80 s\nflame gate: exceeded (limit 10 % in all)\n"
    );
}

#[test]
fn values_without_a_unit_survive_a_conversion() {
    let dir = tempfile::tempdir().expect("a directory");
    for values in [[10, 1], [10_000_000, 1_000_000]] {
        let [b, c] = values;
        let folded = file(&dir, "x.folded", format!("a;b {b}\na;c {c}\n"));
        let perf = dir.path().join("x.perf.txt");
        stdout(&flame(&["convert", text(&folded), text(&perf)]));
        assert_eq!(
            stdout(&flame(&["merge", text(&perf)])),
            format!("a;b {b}\na;c {c}\n")
        );
    }
}

#[test]
fn labels_that_no_sample_has_are_refused() {
    for args in [
        &["top", "-", "--by", "reson"][..],
        &["filter", "-", "--tag", "reson=pipe"],
    ] {
        let output = flame_with(args, STACKS);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(
            stderr(&output).contains("no sample has a label reson"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn the_gate_has_stable_exit_codes() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = file(&dir, "base.folded", "a;main;f 1500\na;main;g 1500\n");
    let new = file(&dir, "new.folded", "a;main;f 1350\na;main;g 1650\n");
    let gate = |args: &[&str]| flame(&[&["gate", text(&base), text(&new)], args].concat());
    let output = gate(&["--max-growth", "3pp"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(
        String::from_utf8_lossy(&output.stdout)
            .starts_with("GREW  +5.00 pp  50.00 % -> 55.00 %  g\n")
    );
    assert_eq!(gate(&["--max-growth", "6pp"]).status.code(), Some(0));
    assert_eq!(
        gate(&["--max-growth", "6", "--max-total", "10%"])
            .status
            .code(),
        Some(0)
    );
    let twice = file(&dir, "twice.folded", "a;main;f 3000\na;main;g 3000\n");
    let output = flame(&["gate", text(&base), text(&twice), "--max-total", "10%"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(
        flame(&["gate", text(&base), "/no/such/file"]).status.code(),
        Some(1)
    );
    assert_eq!(gate(&["--max-growth", "much"]).status.code(), Some(2));
}

#[test]
fn diff_says_the_direction_in_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = file(
        &dir,
        "base.folded",
        "a;main;f 600\na;main;g 400\na;main;old 100\n",
    );
    let new = file(&dir, "new.folded", "a;main;f 1200\na;main;g 1400\n");
    let svg = dir.path().join("diff.svg");
    let table = stdout(&flame(&["diff", text(&base), text(&new), "-o", text(&svg)]));
    let line = |name: &str| {
        table
            .lines()
            .find(|line| line.contains(name))
            .unwrap_or_else(|| panic!("{table}"))
    };
    assert!(
        line(" g ").ends_with("g grew") && line(" g ").contains("+17.48 pp"),
        "{table}"
    );
    assert!(line(" old ").ends_with("old shrank"), "{table}");
    assert!(
        table.contains("1 function, only in BASE, gone from NEW"),
        "{table}"
    );
    let svg = std::fs::read_to_string(svg).expect("a picture");
    assert!(
        svg.contains("▲ red: larger share in NEW") && svg.contains("▼ blue: smaller share in NEW")
    );
    assert!(svg.contains("<title>g</title><desc>36.4 % in BASE, 53.8 % in NEW: +17.48 percentage points · GREW in NEW"), "{svg}");
}

#[test]
fn heat_puts_samples_where_their_times_are_and_ranges_choose_them() {
    let mut perf = String::new();
    for (time, function) in [
        (10.0, "early"),
        (10.5, "early"),
        (11.99, "late"),
        (12.5, "late"),
    ] {
        perf += &format!("a 7/7 [000] {time:.6}: 1 cpu-clock: \n\t 10 {function}+0x1 (/bin/a)\n\n");
    }
    let picture = stdout(&flame_with(&["heat", "-"], &perf));
    assert!(picture.contains("4 samples in 3 s"), "{picture}");
    let row = |label: &str| {
        picture
            .lines()
            .find(|line| line.starts_with(label))
            .expect("a row")
            .chars()
            .filter(|c| "█▓▒░".contains(*c))
            .count()
    };
    assert_eq!(
        (row(" 0.0"), row(" 0.5"), row(" 0.9")),
        (1, 2, 1),
        "{picture}"
    );
    let svg = stdout(&flame_with(&["heat", "-", "--title", "<b>"], &perf));
    assert!(!svg.contains("<b>") || !svg.starts_with("<svg"), "{svg}");
    let late = stdout(&flame_with(
        &["merge", "-", "--from", "1", "--to", "2.5"],
        &perf,
    ));
    assert_eq!(late, "a;late 1\n");
    let none = flame_with(&["merge", "-", "--from", "100"], &perf);
    assert_eq!(
        stderr(&none).lines().next(),
        Some("flame: stdin: there are no stacks in it between --from and --to")
    );
    assert_eq!(
        flame_with(&["top", "-", "--from", "1"], STACKS)
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn usage_errors_exit_2_and_a_closed_pipe_is_no_error() {
    for args in [
        &["draw"][..],
        &["nonsense"],
        &["draw", "x", "--icicles"],
        &["convert", "x", "y.png"],
        &["top", "x", "--unit", "minutes"],
        &[],
    ] {
        assert_eq!(flame(args).status.code(), Some(2), "{args:?}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let many: String = (0..100_000)
        .map(|n| format!("app;main;function_{n} 1\n"))
        .collect();
    let path = file(&dir, "many.folded", many);
    let script = format!(
        "{} merge {} | head -n 1; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_flame"),
        text(&path)
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("bash runs");
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new())
    );
    let output = flame(&["convert", text(&path), "/no/such/dir/out.svg"]);
    assert_eq!(
        stderr(&output).trim_end(),
        "flame: write /no/such/dir/out.svg: No such file or directory; make its directory first"
    );
    let output = flame(&["top", "/no/such.folded"]);
    assert_eq!(
        stderr(&output).trim_end(),
        "flame: /no/such.folded: No such file or directory; check its name"
    );
}
