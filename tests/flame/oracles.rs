//! Go's pprof and inferno read what flame writes; flame reads what they write.

use std::process::{Command, Stdio};

use crate::{STACKS, file, flame, stdout, text};

fn go(args: &[&str], dir: &tempfile::TempDir) -> String {
    let output = Command::new("go")
        .args(["tool", "pprof"])
        .args(args)
        .env("HOME", dir.path())
        .env("PPROF_TMPDIR", dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("go is installed (setup/deps test)");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn converted(dir: &tempfile::TempDir, stacks: &str, name: &str, extra: &[&str]) -> String {
    let folded = file(dir, &format!("{name}.folded"), stacks);
    let out = dir.path().join(name);
    let mut args = vec!["convert", text(&folded), text(&out)];
    args.extend(extra);
    stdout(&flame(&args));
    text(&out).to_owned()
}

#[test]
fn gos_pprof_finds_the_same_totals_labels_and_stacks() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = converted(&dir, STACKS, "a.pb.gz", &[]);
    let top = go(&["-top", "-nodefraction=0", &path], &dir);
    assert!(top.contains("Type: samples"), "{top}");
    assert!(top.contains("of 1000 total"), "{top}");
    let line = |name: &str| {
        let line = top
            .lines()
            .find(|line| line.split_whitespace().nth(5) == Some(name));
        let words: Vec<String> = line
            .unwrap_or_else(|| panic!("no {name} in {top}"))
            .split_whitespace()
            .map(String::from)
            .collect();
        (words[0].clone(), words[3].clone())
    };
    assert_eq!(line("lex"), ("300".into(), "300".into()));
    assert_eq!(line("parse"), ("0".into(), "450".into()));
    assert_eq!(line("main"), ("0".into(), "1000".into()));
    assert!(top.contains("reduce (inline)"), "{top}");
    let tags = go(&["-tags", &path], &dir);
    assert!(
        tags.contains("920.0 (92.00%): app") && tags.contains("80.0 ( 8.00%): web"),
        "{tags}"
    );
    assert!(tags.contains("120.0 (  100%): true"), "{tags}");
    let traces = go(&["-traces", &path], &dir);
    assert!(traces.contains("250   vfs_read"), "{traces}");
}

#[test]
fn gos_pprof_reads_times_and_differences() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = converted(
        &dir,
        "a;main;f 1000000\na;main;g 500000\n",
        "base.pb.gz",
        &["--unit", "us"],
    );
    let new = converted(
        &dir,
        "a;main;f 1000000\na;main;g 900000\n",
        "new.pb.gz",
        &["--unit", "us"],
    );
    let top = go(&["-top", &base], &dir);
    assert!(top.contains("of 1500ms total"), "{top}");
    let diff = go(&["-top", "-diff_base", &base, &new], &dir);
    let g = diff
        .lines()
        .find(|line| line.ends_with(" g"))
        .expect("a line");
    assert!(g.trim().starts_with("400ms"), "{diff}");
}

#[test]
fn what_go_writes_is_read_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let ours = converted(&dir, STACKS, "a.pb.gz", &[]);
    let theirs = dir.path().join("theirs.pb.gz");
    go(&["-proto", "-output", text(&theirs), &ours], &dir);
    let folded = |path: &str| {
        let out = dir.path().join("again.folded");
        stdout(&flame(&["convert", path, text(&out)]));
        std::fs::read_to_string(out).expect("text")
    };
    assert_eq!(folded(text(&theirs)), folded(&ours));
}

/// A profile of a Go program by Go's own runtime.
#[test]
fn a_profile_of_gos_runtime_has_the_totals_that_pprof_finds() {
    let dir = tempfile::tempdir().expect("a directory");
    file(&dir, "main.go", GO);
    let out = dir.path().join("cpu.pb.gz");
    let run = Command::new("go")
        .args(["run", "main.go", text(&out)])
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .env("GOCACHE", dir.path().join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .output()
        .expect("go is installed");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let theirs = go(&["-top", "-nodecount=1", text(&out)], &dir);
    let top = stdout(&flame(&["top", text(&out), "-n", "1"]));
    let name = |text: &str| {
        text.lines()
            .last()
            .and_then(|line| line.split_whitespace().last().map(String::from))
    };
    let leader = name(&theirs).expect("a function");
    assert!(top.contains(&leader), "{leader}: {top}\n{theirs}");
    let line = theirs
        .lines()
        .last()
        .expect("a line")
        .split_whitespace()
        .nth(1)
        .expect("a share")
        .to_owned();
    let share = top
        .lines()
        .find(|line| line.contains(&leader))
        .and_then(|line| {
            line.split_whitespace()
                .find(|word| word.ends_with('%'))
                .map(String::from)
        });
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().expect("a share");
    assert!(
        (number(&line) - number(&share.expect("a share"))).abs() < 0.06,
        "{top}\n{theirs}"
    );
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
    let dir = tempfile::tempdir().expect("a directory");
    let path = converted(&dir, STACKS, "b.folded", &[]);
    let folded = std::fs::read_to_string(path).expect("text");
    let mut svg = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg)
        .expect("inferno reads it");
    let svg = String::from_utf8(svg).expect("UTF-8");
    assert!(svg.contains("all (1,000 samples, 100%)"), "{svg}");
    assert!(svg.contains("lex (300 samples, 30.00%)"), "{svg}");
    let ours = stdout(&flame(&["draw", text(&dir.path().join("b.folded"))]));
    assert!(
        ours.contains("<title>lex</title><desc>300, 30.0 % of all"),
        "{ours}"
    );
}
