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
fn profiles_of_gos_runtime_have_the_shares_that_pprof_finds() {
    let files = Files::new();
    files.file("main.go", GO);
    go(&format!("run main.go {}", files.dir().display()), &files);
    for (name, function) in [
        ("cpu", "main.spin"),
        // Four values: the file's default is what is kept, or what was ever made.
        ("heap", "main.keep"),
        ("allocs", "main.waste"),
        // By the delay: the other channel is waited for a hundred times as often.
        ("block", "main.seldom"),
    ] {
        let path = files.path(&format!("{name}.pb.gz"));
        let theirs = go(&format!("tool pprof -top -nodefraction=0 {path}"), &files);
        let ours = flame(format!("top {path} -n 100"), "").ok();
        // Own and total share, the former of which is that of a runtime's function in waits.
        let shares = |text: &str, is_share: fn(&(usize, &str)) -> bool| {
            // The first line is flame's answer.
            let line = text
                .lines()
                .skip(1)
                .find(|line| line.split_whitespace().any(|word| word == function));
            let line = line.unwrap_or_else(|| panic!("no {function}: {text}"));
            let words = line.split_whitespace().enumerate().filter(is_share);
            let number = |(_, word): (usize, &str)| word.trim_end_matches('%').parse::<f64>();
            words
                .map(|word| number(word).expect("a share"))
                .collect::<Vec<_>>()
        };
        let expected = shares(&theirs, |(at, _)| matches!(at, 1 | 4));
        let found = shares(&ours, |(_, word)| word.ends_with('%'));
        let are_close = found
            .iter()
            .zip(&expected)
            .all(|(a, b)| (a - b).abs() < 0.06);
        assert!(
            are_close && found.len() == 2,
            "{name}: {found:?} {expected:?}\n{ours}\n{theirs}"
        );
    }
}

const GO: &str = r#"package main
import ("os"; "runtime"; "runtime/pprof"; "time")
var sink int
var kept [][]byte
func spin(n int) { for i := 0; i < n; i++ { sink += i % 7 } }
//go:noinline
func keep() { kept = append(kept, make([]byte, 1 << 20)) }
//go:noinline
func waste() { kept[0] = make([]byte, 1 << 10) }
func often(c chan int) { for i := 0; i < 100; i++ { <-c } }
func seldom(c chan int) { <-c }
func write(name string) {
	file, _ := os.Create(os.Args[1] + "/" + name + ".pb.gz")
	pprof.Lookup(name).WriteTo(file, 0)
	file.Close()
}
func main() {
	runtime.MemProfileRate = 1
	runtime.SetBlockProfileRate(1)
	file, _ := os.Create(os.Args[1] + "/cpu.pb.gz")
	pprof.StartCPUProfile(file)
	for i := 0; i < 300; i++ { spin(3000000) }
	pprof.StopCPUProfile()
	file.Close()
	for i := 0; i < 8; i++ { keep() }
	for i := 0; i < 20000; i++ { waste() }
	fast, slow := make(chan int), make(chan int)
	go func() { for i := 0; i < 100; i++ { fast <- i }; time.Sleep(300 * time.Millisecond); slow <- 0 }()
	often(fast)
	seldom(slow)
	runtime.GC()
	write("heap")
	write("allocs")
	write("block")
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
