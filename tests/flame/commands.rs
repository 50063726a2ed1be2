//! Every command: what it prints, what it exits with.

use std::process::Command;

use crate::{Files, Run, STACKS, assert_has, flame};

#[test]
fn top_counts_each_function_once_per_stack_with_its_interval() {
    let table = flame("top - -n 3", "a;f;f;g 60\na;f 40\n").ok();
    let lines: Vec<&str> = table.lines().collect();
    // Wilson: 60 of 100 is 50.2 to 69.1, 40 is 30.9 to 49.8.
    let titles = "  SELF     95% CI   TOTAL     95% CI  FUNCTION";
    let expected = [
        "g has the most by itself: 60.0% of 100 samples",
        "",
        titles,
        " 60.0% 50.2-69.1%   60.0% 50.2-69.1%  g",
        " 40.0% 30.9-49.8%  100.0% 96.3-100.0%  f",
    ];
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    for (at, line) in expected.iter().enumerate() {
        assert_eq!(words(lines[at]), words(line), "{table}");
    }
}

#[test]
fn a_profile_without_stacks_is_said_to_be_one() {
    for (input, said) in [
        ("", "flame: stdin: there are no stacks in it\n"),
        ("a;b 1\n", ""),
    ] {
        assert_eq!(flame("top -", input).fails(0), said);
    }
}

/// The command that a report ends with.
fn next(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("next: "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Runs a command as a reader would paste it.
fn shell(line: &str, files: &Files) -> Run {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).current_dir(files.dir());
    Run::of(shell.output().expect("a shell"))
}

#[test]
fn answers_name_commands_that_a_shell_runs() {
    let files = Files::new();
    let odd = files.file("it's.folded", "a;operator()(int) 60\na;f 40\n");
    let run = |line: &str| shell(line, &files).ok();
    let shown = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(["top", &odd, "--unit", "us"])
        .output();
    let shown = Run::of(shown.expect("flame runs")).ok();
    assert_has(
        &shown,
        ["operator()(int) has the most by itself: 60.0% of 100 us of thread time\n"],
    );
    let line = next(&shown);
    assert_has(&line, [" --unit us   # what calls it, and what it calls"]);
    assert_has(&run(&line), ["60.0 us  60.0%  operator()(int)\n"]);
    let twice = files.file("new.folded", "a;f 1000\na;g 3000\n");
    let base = files.file("base.folded", "a;f 3000\na;g 1000\n");
    let changed = flame(format!("diff {base} {twice}"), "").ok();
    assert_has(
        &changed,
        ["\nnext: ", " -o change.html   # all of it as a picture\n"],
    );
    assert_has(&run(&next(&changed)), ["3,000  75.0%  g\n"]);
    // A pipe cannot be read again.
    let piped = flame("top -", "a;f 1\n").ok();
    assert!(!piped.contains("next: "), "{piped}");
}

#[test]
fn whatever_top_goes_by_a_command_leads_further() {
    let files = Files::new();
    let file = files.file("stacks.folded", "it's;f;g 6\napp;f 4\n");
    for (by, part, answer) in [
        (
            "comm",
            " 'comm=it'\\''s' -o part.html   # its stacks",
            "kept 6",
        ),
        ("reason", " --tag 'reason=\\[no reason\\]'", "kept 10"),
        ("thread", " filter ", "kept 6"),
        ("line", " peek ", "g\n"),
        ("module", " peek ", "g\n"),
    ] {
        let shown = flame(format!("top {file} --by {by}"), "").ok();
        let line = next(&shown);
        assert_has(&line, [part]);
        let shown = shell(&line, &files);
        let all = format!("{}{}", shown.stdout, shown.stderr);
        assert!(all.contains(answer), "{line}\n{all}");
    }
    let events = "app 12/13 1.5: cpu-clock: \n\t 10 f (/a)\n\n".repeat(3)
        + "app 12/14 1.5: cpu-clock: \n\t 10 f (/a)\n\n";
    let threads = files.file("threads.perf.txt", events);
    let shown = flame(format!("top {threads} --by thread"), "").ok();
    let line = next(&shown);
    assert_has(&line, [" --tag comm=app --tag tid=13 -o part.html   #"]);
    let kept = shell(&line, &files).stderr;
    assert_has(&kept, ["flame filter: kept 3 of 4, "]);
    let shown = flame(format!("top {threads} --lines"), "").ok();
    assert_has(&next(&shown), [" '^f$'   #"]);
}

#[test]
fn answers_fit_in_80_columns_whatever_names_are() {
    let files = Files::new();
    let long = "a".repeat(200);
    let wide = "函数".repeat(60);
    let base = files.file("base.folded", format!("a;{long} 3000\na;{wide} 1000\n"));
    let new = files.file(
        "new.folded",
        format!("a;{long} 1000\na;{wide} 3000\na;{long}b 900\n"),
    );
    for args in [
        format!("diff {base} {new}"),
        format!("diff {base} {new} --raw --unit ns"),
        format!("diff {base} {base}"),
        format!("gate {base} {new} --max-total 1% --raw"),
        format!("gate {base} {base} --max-total 1% --raw"),
        format!("top {base}"),
        format!("peek {base} ."),
        format!("peek {base} a+ --unit us"),
        format!("top {base} --unit us --cumulative"),
    ] {
        let run = flame(&args, "");
        for line in run
            .stdout
            .lines()
            .filter(|line| !line.starts_with("next: "))
        {
            let columns = profile::text::columns(line);
            assert!(columns <= 80, "{args}: {columns} columns: {line}");
        }
    }
}

#[test]
fn top_goes_by_what_is_asked_for() {
    assert_has(
        &flame("top - --by comm", STACKS).ok(),
        [
            "app has the most: 92.0% of 1,000 samples\n\n",
            "90.2-93.5%  app",
        ],
    );
    let table = flame("top - --by idle", STACKS).ok();
    let idle = table.lines().nth(4).expect("a line");
    assert!(idle.ends_with("true") && idle.contains("12.0"), "{table}");
    let table = flame("top - --unit us --by waker", STACKS).ok();
    assert!(
        table.contains("80.0 us") || table.contains("8.0%  app"),
        "{table}"
    );
}

#[test]
fn what_is_idle_is_one_box_at_the_root_and_its_amount_is_said() {
    for extra in ["", "--inverted"] {
        let svg = flame(format!("draw - {extra}"), STACKS).ok();
        let idle = r#"<g data-d="1"><title>[idle]</title><desc>120, 12.0 %"#;
        assert_has(&svg, [idle, "[idle] is 120 (12.0 %) with nothing to do"]);
    }
    let shown = flame("draw - --idle show", STACKS).ok();
    assert!(!shown.contains("<title>[idle]"), "{shown}");
}

#[test]
fn peek_adds_up_callers_and_callees() {
    let text = flame("peek - ^run$", STACKS).ok();
    let titles = "run has 35.0% of 1,000 samples, 0.0% by itself\n\n             \
        SELF              TOTAL  CALLERS, FUNCTION, CALLEES\n";
    assert!(text.starts_with(titles), "{text}");
    let lines = text.lines().skip(3);
    let lines: Vec<Vec<&str>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["350", "35.0%", "main"]);
    assert_eq!(lines[1], ["0", "0.0%", "350", "35.0%", "run"]);
    assert_eq!(lines[2], ["250", "25.0%", "read"]);
    assert_eq!(lines[3], ["100", "10.0%", "step"]);
    flame("peek - nobody", STACKS).fails(1);
    let files = Files::new();
    let file = files.file("a.folded", STACKS);
    let several = flame(format!("peek {file} parse|step -n 1 --unit us"), "").ok();
    let first = "parse has the most of 2 functions: 45.0% of 1.00 ms of thread time\n";
    assert_has(&several, [first, "\n… 1 more function with matching names"]);
    let line = next(&several);
    assert_has(&line, [" --focus 'parse|step' -o part.html --unit us   #"]);
    assert_has(&shell(&line, &files).stderr, ["kept 550 us of 1.00 ms,"]);
}

#[test]
fn filter_keeps_what_matches_and_says_how_much() {
    let kept = flame("filter - --focus run --ignore vfs", STACKS);
    assert_has(&kept.stderr, ["kept 100 of 1,000, 10.0 %"]);
    assert_eq!(kept.ok(), "app;main;run;step_[j] 100\n");
    let kept = flame("filter - --tag comm=we", STACKS).ok();
    assert_eq!(kept, "", "the whole label must match");
}

#[test]
fn merge_adds_and_refuses_what_cannot_be_added() {
    let files = Files::new();
    let a = files.file("a.folded", "a;f 2\nb;g 3\n");
    let b = files.file("b.folded", "b;g 4\nb;h 1\n");
    let sum = flame(format!("merge {a} {b}"), "").ok();
    assert_eq!(sum, "a;f 2\nb;g 7\nb;h 1\n");
    let time = files.made("convert --unit us", "a;f 2\nb;g 3\n", "time.json");
    let said = flame(format!("merge {time} {b}"), "").fails(1);
    assert_has(&said, ["how much time a sample stands for"]);
}

/// A profile of one function, by a clock.
fn clocked(files: &Files, name: &str, samples: u64, period_ns: u64) -> String {
    let json = format!(
        r#"{{"tool": "profile", "duration_ns": 1, "sample_period_ns": {period_ns}, "values": [{{"name": "samples", "unit": "count"}}],
        "stacks": [{{"comm": "a", "pid": 1, "tid": 1, "count": {samples}, "values": [{samples}],
        "user": [{{"name": "f", "kind": "user", "address": "0x1"}}], "kernel": []}}]}}"#
    );
    files.file(name, json)
}

/// Half a second off the CPU, in the same function.
pub(crate) const WAITS: &str = r#"{"tool": "offcputime", "duration_ns": 1, "values": [{"name": "blocked", "unit": "ns"}, {"name": "runqueue", "unit": "ns"}],
    "stacks": [{"comm": "a", "pid": 1, "tid": 1, "count": 2, "values": [400000000, 100000000], "user": [{"name": "f", "kind": "user", "address": "0x1"}], "kernel": []}]}"#;

/// 99 samples of 10 ms each and 0.5 s off the CPU make 1.49 s of wall-clock time.
#[test]
fn samples_of_a_clock_become_time_beside_time() {
    let files = Files::new();
    let cpu = clocked(&files, "cpu.json", 99, 10_000_000);
    let wait = files.file("wait.json", WAITS);
    let sum = flame(format!("merge {cpu} {wait}"), "").ok();
    assert_eq!(sum, "a;f 1490000\n");
}

/// 150 samples of 10 ms are as long as 1,500 of 1 ms.
#[test]
fn samples_of_two_clocks_are_worth_their_periods() {
    let files = Files::new();
    let slow = clocked(&files, "slow.json", 150, 10_000_000);
    let fast = clocked(&files, "fast.json", 1_500, 1_000_000);
    for (other, sum) in [(&fast, "a;f 3000000\n"), (&slow, "a;f 300\n")] {
        assert_eq!(flame(format!("merge {slow} {other}"), "").ok(), sum);
    }
    let gate = |new: &str| flame(format!("gate {slow} {new} --raw --max-total 10%"), "");
    gate(&fast).ok();
    let exceeded = gate(&clocked(&files, "more.json", 1_800, 1_000_000));
    let said = "flame gate: failed: all grew by 20.0 %, 1.50 s -> 1.80 s (limit 10 %)\nnext: ";
    assert_has(&exceeded.stdout, [said]);
    exceeded.fails(4);
}

#[test]
fn values_without_a_unit_survive_a_conversion() {
    let files = Files::new();
    for [b, c] in [[10, 1], [10_000_000, 1_000_000]] {
        let stacks = format!("a;b {b}\na;c {c}\n");
        let perf = files.made("convert", &stacks, "x.perf.txt");
        assert_eq!(flame(format!("merge {perf}"), "").ok(), stacks);
    }
}

#[test]
fn labels_that_no_sample_has_are_refused() {
    for args in ["top - --by reson", "filter - --tag reson=pipe"] {
        let said = flame(args, STACKS).fails(1);
        assert_has(&said, ["no sample has a label reson"]);
    }
}

#[test]
fn heat_puts_samples_where_their_times_are_and_ranges_choose_them() {
    let event = |(time, function): (f64, &str)| {
        format!("a 7/7 [000] {time:.6}: 1 cpu-clock: \n\t 10 {function}+0x1 (/bin/a)\n\n")
    };
    let events = [
        (10.0, "early"),
        (10.5, "early"),
        (11.99, "late"),
        (12.5, "late"),
    ];
    let perf: String = events.into_iter().map(event).collect();
    let picture = flame("heat -", &perf).ok();
    assert_has(&picture, ["4 samples in 3 s"]);
    let row = |label: &str| {
        let row = picture.lines().find(|line| line.starts_with(label));
        let cells = row.expect("a row").chars();
        cells.filter(|c| "█▓▒░".contains(*c)).count()
    };
    assert_eq!([" 0.0", " 0.5", " 0.9"].map(row), [1, 2, 1], "{picture}");
    let svg = flame("heat - --title <b>", &perf).ok();
    assert!(!svg.contains("<b>") || !svg.starts_with("<svg"), "{svg}");
    assert_eq!(flame("merge - --from 1 --to 2.5", &perf).ok(), "a;late 1\n");
    let none = flame("merge - --from 100", &perf).stderr;
    let said = "flame: stdin: there are no stacks in it between --from and --to";
    assert_eq!(none.lines().next(), Some(said));
    flame("top - --from 1", STACKS).fails(1);
}

#[test]
fn usage_errors_exit_2_and_a_closed_pipe_is_no_error() {
    for args in [
        "draw",
        "nonsense",
        "draw x --icicles",
        "convert x y.png",
        "top x --unit minutes",
        "",
    ] {
        flame(args, "").fails(2);
    }
    let files = Files::new();
    let many = (0..100_000).map(|n| format!("app;main;function_{n} 1\n"));
    let path = files.file("many.folded", many.collect::<String>());
    let flame_path = env!("CARGO_BIN_EXE_flame");
    let script = format!("{flame_path} merge {path} | head -n 1; exit ${{PIPESTATUS[0]}}");
    let output = Command::new("bash").args(["-c", &script]).output();
    assert_eq!(Run::of(output.expect("bash runs")).fails(0), "");
    for (args, said) in [
        (
            format!("convert {path} /no/such/dir/out.svg"),
            "write /no/such/dir/out.svg: No such file or directory; make its directory first",
        ),
        (
            "top /no/such.folded".into(),
            "/no/such.folded: No such file or directory; check its name",
        ),
    ] {
        assert_eq!(flame(args, "").stderr.trim_end(), format!("flame: {said}"));
    }
}
