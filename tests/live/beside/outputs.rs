//! One capture in every format: each, read again, has the totals of the others; Go's pprof finds them too.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use profile::ask::top::{By, top};
use profile::read::{ReadOptions, read};
use profile::recording::Recording;
use profile::units;
use serde_json::Value;

use crate::c_program::{BURN, Program, run};
use crate::disk::on_full_disk;
use crate::kernel::Machine;
use crate::tool::Tool;
use crate::traced::traced;
use crate::workload::{Workload, number};

const ENDINGS: [&str; 7] = [
    "folded",
    "svg",
    "html",
    "json",
    "pb.gz",
    "speedscope.json",
    "perf.txt",
];

/// A capture, written in every format.
struct Capture {
    dir: tempfile::TempDir,
    /// What the tool printed with `-j`.
    report: Value,
    pid: u32,
}

impl Capture {
    fn of(tool: &str, workload: &str, args: &[&str], options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let workload = Workload::start(workload, args);
        let pid = workload.pid();
        let files = ENDINGS.map(|ending| path_in(&dir, ending).display().to_string());
        let mut options = options.to_vec();
        for file in &files {
            options.extend(["-o", file]);
        }
        let (report, _) = traced(tool, &options.join(" "), workload);
        Self { dir, report, pid }
    }

    fn waits() -> Self {
        let args = ["--waits", "23", "--millis", "10"];
        Self::of("offcputime", "waiter", &args, &[])
    }

    fn samples() -> Self {
        let args = ["--threads", "2", "--cpu-seconds", "1"];
        Self::of("profile", "splitter", &args, &["-F", "499"])
    }

    fn path(&self, ending: &str) -> PathBuf {
        path_in(&self.dir, ending)
    }

    fn text(&self, ending: &str) -> String {
        std::fs::read_to_string(self.path(ending)).expect("text")
    }

    fn read(&self, ending: &str, unit: Option<&str>) -> Recording {
        let options = ReadOptions {
            unit: unit.map(String::from),
            ..ReadOptions::default()
        };
        let file = File::open(self.path(ending)).expect("a file");
        read(file, &options).unwrap_or_else(|err| panic!("{ending}: {err}"))
    }

    /// Sum of all values, of the tool's own report.
    fn total(&self) -> u64 {
        let stacks = self.report["stacks"].as_array().expect("stacks").iter();
        let values = stacks.flat_map(|stack| stack["values"].as_array().expect("values"));
        values.map(|value| value.as_u64().expect("a number")).sum()
    }

    fn pprof(&self, args: &[&str]) -> String {
        let output = Command::new("go")
            .args(["tool", "pprof"])
            .args(args)
            .arg(self.path("pb.gz"))
            .env("HOME", self.dir.path())
            .env("PPROF_TMPDIR", self.dir.path())
            .stdin(Stdio::null())
            .output()
            .expect("go is installed (setup/deps test)");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

fn path_in(dir: &tempfile::TempDir, ending: &str) -> PathBuf {
    dir.path().join(format!("out.{ending}"))
}

/// Value of each function at the leaf.
fn own(recording: &Recording) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for entry in top(recording, &By::Function).entries {
        if entry.own > 0 {
            *sums.entry(entry.name).or_default() += entry.own;
        }
    }
    sums
}

#[test]
fn every_format_of_a_run_of_offcputime_has_the_same_times() {
    let _machine = Machine::beside();
    let capture = Capture::waits();
    let total = capture.total();
    assert!(total > 1_000_000_000, "{total}");
    let functions = own(&capture.read("json", None));
    assert!(functions.len() > 3, "{functions:?}");
    for ending in ["json", "pb.gz"] {
        let read = capture.read(ending, None);
        assert_eq!(read.total(), total, "{ending}");
        assert_eq!(own(&read), functions, "{ending}");
        assert_eq!(read.header.values.len(), 2, "{ending}");
    }
    // The period of its events is the value.
    let perf = capture.read("perf.txt", None);
    assert_eq!(perf.total(), total, "perf.txt");
    assert_eq!(own(&perf), functions, "perf.txt");
    // Folded lines are rounded to microseconds.
    let lines = capture.text("folded").lines().count() as u64;
    let folded = capture.read("folded", Some("us"));
    assert!(folded.total().abs_diff(total) <= lines * 500, "folded");
    for (name, value) in own(&folded) {
        let exact = functions.get(&name).copied().unwrap_or_default();
        assert!(
            value.abs_diff(exact) <= lines * 500,
            "{name}: {value} and {exact}"
        );
    }
    for ending in ["svg", "html"] {
        let all = format!(
            "<title>all</title><desc>{}, 100.0 %",
            units::duration(total)
        );
        assert!(capture.text(ending).contains(&all), "{ending}: no {all}");
    }
}

#[test]
fn every_format_of_a_run_of_profile_has_the_same_samples() {
    let _machine = Machine::beside();
    let capture = Capture::samples();
    let total = capture.total();
    assert!(total > 0, "as many as go into its work");
    let functions = own(&capture.read("json", None));
    for ending in ["json", "pb.gz", "perf.txt", "folded"] {
        let read = capture.read(ending, None);
        assert_eq!(read.total(), total, "{ending}");
        assert_eq!(own(&read), functions, "{ending}");
        assert_eq!(top(&read, &By::Function).count, total, "{ending}");
    }
    // A sample is 1/499 s, so that it can be added to waits.
    for ending in ["json", "pb.gz"] {
        assert_eq!(
            capture.read(ending, None).header.period_ns,
            1_000_000_000 / 499
        );
    }
    for ending in ["svg", "html"] {
        let all = format!("<title>all</title><desc>{}, 100.0 %", units::count(total));
        assert!(capture.text(ending).contains(&all), "{ending}: no {all}");
    }
}

/// The words of the line with this function.
fn words(top: &str, function: &str) -> Vec<String> {
    let line = top
        .lines()
        .find(|line| line.split_whitespace().nth(5) == Some(function));
    let line = line.unwrap_or_else(|| panic!("no {function}: {top}"));
    line.split_whitespace().map(String::from).collect()
}

#[test]
fn gos_pprof_has_samples_and_time_of_profile() {
    let _machine = Machine::beside();
    let capture = Capture::samples();
    let raw = capture.pprof(&["-raw"]);
    assert!(
        raw.contains("\nsamples/count cpu/nanoseconds[dflt]\n"),
        "{raw:.600}"
    );
    let total = capture.total();
    let counts = capture.pprof(&["-top", "-nodefraction=0", "-sample_index=samples"]);
    assert!(
        counts.contains(&format!("of {total} total")),
        "{counts:.600}"
    );
    let functions = own(&capture.read("json", None));
    for name in ["spin_a", "spin_b", "spin_c"] {
        assert_eq!(
            words(&counts, name)[0],
            functions[name].to_string(),
            "{name}"
        );
    }
    // By default time: as many periods of 1/499 s, printed with two digits.
    let times = capture.pprof(&["-top", "-nodefraction=0", "-unit=ms"]);
    let expected_ms = functions["spin_a"] as f64 * 1e3 / 499.0;
    let printed = words(&times, "spin_a")[0].trim_end_matches("ms").to_owned();
    let printed_ms: f64 = printed.parse().expect("a number");
    assert!(
        (printed_ms - expected_ms).abs() < 0.02 + expected_ms * 1e-6,
        "{times:.600}"
    );
    let same = path_in(&capture.dir, "pb.gz").display().to_string();
    let difference = capture.pprof(&["-top", "-diff_base", &same]);
    assert!(
        difference.contains("Showing nodes accounting for 0,"),
        "{difference:.600}"
    );
}

#[test]
fn gos_pprof_has_times_labels_and_comments_of_offcputime() {
    let _machine = Machine::beside();
    let capture = Capture::waits();
    let raw = capture.pprof(&["-raw"]);
    let types =
        "\nsamples/count blocked/nanoseconds runqueue/nanoseconds total/nanoseconds[dflt]\n";
    assert!(raw.contains(types), "{raw:.600}");
    // Times by reason, in full ns, against the tool's own report.
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let mut waits = 0;
    for stack in capture.report["stacks"].as_array().expect("stacks") {
        let values = stack["values"].as_array().expect("values").iter();
        let reason = stack["reason"].as_str().expect("a reason").to_owned();
        *reasons.entry(reason).or_default() += values.map(|v| v.as_u64().expect("ns")).sum::<u64>();
        waits += number(stack, "count");
    }
    let tags = capture.pprof(&["-tags", "-unit=ns"]);
    for (reason, ns) in &reasons {
        let line = tags
            .lines()
            .find(|line| line.trim_end().ends_with(&format!(": {reason}")));
        let line = line.unwrap_or_else(|| panic!("no {reason}: {tags:.900}"));
        let printed = line.split_whitespace().next().expect("a number");
        let printed: f64 = printed.trim_end_matches("ns").parse().expect("a number");
        assert!(
            (printed - *ns as f64).abs() <= 1.0,
            "{reason}: {line} but {ns}"
        );
    }
    for label in ["comm: Total", "pid: Total", "tid: Total", "reason: Total"] {
        assert!(tags.contains(label), "{label}: {tags:.900}");
    }
    let counts = capture.pprof(&["-top", "-sample_index=samples"]);
    assert!(
        counts.contains(&format!("of {waits} total")),
        "{counts:.600}"
    );
    let comments = capture.pprof(&["-comments"]);
    let of_run = &capture.report["comments"];
    for comment in of_run.as_array().expect("comments") {
        let comment = comment.as_str().expect("text");
        assert!(comments.contains(comment), "{comment}: {comments}");
    }
    assert!(comments.contains("made by usekit offcputime"), "{comments}");
    assert!(comments.contains("BPF"), "the cost: {comments}");
    assert!(
        comments.to_lowercase().contains("lost "),
        "the losses: {comments}"
    );
    let traces = capture.pprof(&["-traces"]);
    let pid = capture.pid.to_string();
    let is_pid = |line: &str| {
        line.trim()
            .strip_prefix("pid:")
            .is_some_and(|id| id.trim() == pid)
    };
    assert!(traces.lines().any(is_pid), "{traces:.900}");
}

/// A reader who has the program with its names gives it to pprof: other files of the run have names, and lines, and this one none.
#[test]
fn gos_pprof_names_what_was_stripped_where_it_ran() {
    let _machine = Machine::beside();
    let program = Program::c("burner", BURN, "-g -O1");
    let dir = tempfile::tempdir().expect("a directory");
    let whole = dir.path().join("whole");
    std::fs::copy(program.path(), &whole).expect("a copy");
    run(Command::new("strip").arg(program.path()));
    let file = path_in(&dir, "pb.gz").display().to_string();
    let workload = program.started("500");
    let (report, _) = traced("profile", &format!("-o {file}"), workload);
    let capture = Capture {
        dir,
        report,
        pid: 0,
    };
    let whole = whole.to_str().expect("plain");
    let top = capture.pprof(&["-top", whole]);
    assert_eq!(words(&top, "hot").len(), 6, "{top}");
}

/// Build IDs as readelf and perf see them.
#[test]
fn mappings_have_the_build_ids_of_their_files() {
    let _machine = Machine::beside();
    let capture = Capture::waits();
    let raw = capture.pprof(&["-raw"]);
    let mappings = raw.split("\nMappings\n").nth(1).expect("mappings");
    // `1: 0x0/0x1234/0x0 PATH BUILDID [FN][LN]…`
    let of = |module: &str| {
        let line = mappings.lines().find(|line| line.contains(module));
        let line = line.unwrap_or_else(|| panic!("no {module}: {mappings}"));
        line.split_whitespace().nth(3).map(String::from)
    };
    let program = Workload::program("waiter");
    assert_eq!(of("/waiter"), read_elf(&program));
    let libc = mappings.lines().find_map(|line| {
        line.split_whitespace()
            .nth(2)
            .filter(|path| path.ends_with("/libc.so.6"))
    });
    let libc = libc.unwrap_or_else(|| panic!("no libc: {mappings}"));
    assert!(read_elf(Path::new(libc)).is_some());
    assert_eq!(of("/libc.so.6"), read_elf(Path::new(libc)));
    let output = Command::new("perf").args(["buildid-list", "-k"]).output();
    let kernel = output.expect("perf is installed (setup/deps test)").stdout;
    let kernel = String::from_utf8_lossy(&kernel).trim().to_owned();
    assert_eq!(of("[kernel]"), Some(kernel));
}

fn read_elf(path: &Path) -> Option<String> {
    let output = Command::new("readelf").arg("-n").arg(path).output();
    let output = output.expect("binutils is installed");
    let notes = String::from_utf8_lossy(&output.stdout).into_owned();
    let id = notes.split("Build ID: ").nth(1)?;
    id.split_whitespace().next().map(String::from)
}

/// A full disk: what was there stays, and nothing is left beside it. On an idle machine a folded profile could be empty, which
/// fits on any disk.
#[test]
fn a_failed_write_leaves_the_old_file_whatever_the_format() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("plain");
    for ending in ENDINGS {
        let script = format!(
            "echo old > {dir}/out.{ending}; while :; do :; done & {} -q -F 999 -o {dir}/out.{ending} 300ms > /dev/null; \
             echo $?; kill $!; ls -A {dir}; cat {dir}/out.{ending}",
            crate::built("profile").display()
        );
        assert_eq!(
            on_full_disk(dir, &script),
            (
                format!("1\nout.{ending}\nold\n"),
                format!(
                    "profile: write {dir}/out.{ending}: No space left on device; make room there\n"
                )
            )
        );
    }
}

/// A file that was asked for is all that a script gets, unless it asks for more.
#[test]
fn with_a_file_stdout_is_quiet_unless_it_is_asked_for() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("out.folded");
    let file = file.to_str().expect("plain");
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.1";
    for tool in ["offcputime", "profile"] {
        for (more, speaks) in [(&[][..], false), (&["-f"], true), (&["-j"], true)] {
            let args = [&["-q", "-o", file], more, &["--", "sh", "-c", busy]].concat();
            let output = Tool::start(tool, &args).finish();
            assert_eq!(output.code, 0, "{tool}: {}", output.stderr);
            assert_eq!(!output.stdout.is_empty(), speaks, "{}", output.stdout);
            assert!(!std::fs::read_to_string(file).expect("a file").is_empty());
        }
    }
}
