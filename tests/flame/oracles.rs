//! Go's pprof and inferno read what flame writes; flame reads what they write.

use std::process::Command;

use crate::{Files, Run, STACKS, assert_has, flame};

/// Runs `go` with these words.
fn go(args: &str, files: &Files) -> String {
    let output = Command::new("go")
        .args(args.split_whitespace())
        .current_dir(files.dir())
        .env("HOME", files.dir())
        .env("PPROF_TMPDIR", files.dir())
        .env("GOCACHE", files.path("cache"))
        .env("GOFLAGS", "-mod=mod")
        .output();
    Run::of(output.expect("go is installed (setup/deps test)")).ok()
}

/// The word at this place of a line.
fn word(line: &str, at: usize) -> &str {
    let word = line.split_whitespace().nth(at);
    word.unwrap_or_else(|| panic!("no word {at}: {line}"))
}

#[test]
fn gos_pprof_finds_the_same_totals_labels_and_stacks() {
    let files = Files::new();
    let path = files.made("convert", STACKS, "a.pb.gz");
    let top = go(&format!("tool pprof -top -nodefraction=0 {path}"), &files);
    let parts = ["Type: samples", "of 1000 total", "reduce (inline)"];
    assert_has(&top, parts);
    for (name, own, total) in [
        ("lex", "300", "300"),
        ("parse", "0", "450"),
        ("main", "0", "1000"),
    ] {
        let mut lines = top.lines();
        let line = lines.find(|line| line.split_whitespace().nth(5) == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {top}"));
        assert_eq!([word(line, 0), word(line, 3)], [own, total], "{name}");
    }
    let tags = go(&format!("tool pprof -tags {path}"), &files);
    let parts = [
        "920.0 (92.00%): app",
        "80.0 ( 8.00%): web",
        "120.0 (  100%): true",
    ];
    assert_has(&tags, parts);
    let traces = go(&format!("tool pprof -traces {path}"), &files);
    assert_has(&traces, ["250   vfs_read"]);
}

#[test]
fn gos_pprof_reads_times_and_differences() {
    let files = Files::new();
    let [base, new] = [("base.pb.gz", 500_000), ("new.pb.gz", 900_000)].map(|(name, us)| {
        let stacks = format!("a;main;f 1000000\na;main;g {us}\n");
        files.made("convert --unit us", &stacks, name)
    });
    let top = go(&format!("tool pprof -top {base}"), &files);
    assert_has(&top, ["of 1500ms total"]);
    let diff = go(&format!("tool pprof -top -diff_base {base} {new}"), &files);
    let g = diff.lines().find(|line| line.ends_with(" g"));
    assert_eq!(word(g.expect("a line"), 0), "400ms", "{diff}");
}

#[test]
fn what_go_writes_is_read_right() {
    let files = Files::new();
    let ours = files.made("convert", STACKS, "a.pb.gz");
    let theirs = files.path("theirs.pb.gz");
    go(
        &format!("tool pprof -proto -output {theirs} {ours}"),
        &files,
    );
    let [theirs, ours] = [theirs, ours].map(|path| flame(format!("merge {path}"), "").ok());
    assert_eq!(theirs, ours);
}

/// A profile of a Go program by Go's own runtime.
#[test]
fn a_profile_of_gos_runtime_has_the_totals_that_pprof_finds() {
    let files = Files::new();
    files.file("main.go", GO);
    let out = files.path("cpu.pb.gz");
    go(&format!("run main.go {out}"), &files);
    let theirs = go(&format!("tool pprof -top -nodecount=1 {out}"), &files);
    let top = flame(format!("top {out} -n 1"), "").ok();
    let line = theirs.lines().last().expect("a line");
    let leader = line.split_whitespace().last().expect("a function");
    let our_line = top.lines().find(|line| line.contains(leader));
    let our_line = our_line.unwrap_or_else(|| panic!("{leader}: {top}\n{theirs}"));
    let share = our_line.split_whitespace().find(|word| word.ends_with('%'));
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().expect("a share");
    let off = number(word(line, 1)) - number(share.expect("a share"));
    assert!(off.abs() < 0.06, "{top}\n{theirs}");
}

const GO: &str = r#"package main
import ("os"; "runtime/pprof")
var sink int
func spin(n int) { for i := 0; i < n; i++ { sink += i % 7 } }
func main() {
	file, _ := os.Create(os.Args[1])
	pprof.StartCPUProfile(file)
	for i := 0; i < 300; i++ { spin(3000000) }
	pprof.StopCPUProfile()
	file.Close()
}
"#;

#[test]
fn inferno_draws_our_folded_text_with_the_same_total() {
    let files = Files::new();
    let path = files.made("convert", STACKS, "b.folded");
    let folded = files.text("b.folded");
    let mut svg = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    let drawn = inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg);
    drawn.expect("inferno reads it");
    let svg = String::from_utf8(svg).expect("UTF-8");
    assert_has(
        &svg,
        ["all (1,000 samples, 100%)", "lex (300 samples, 30.00%)"],
    );
    let ours = flame(format!("draw {path}"), "").ok();
    assert_has(&ours, ["<title>lex</title><desc>300, 30.0 % of all"]);
}
