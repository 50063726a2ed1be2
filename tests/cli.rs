//! The tools' manners, without root and without BPF: help, usage errors, messages that name what is missing.

mod programs;
mod tools;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use programs::TOOLS;

const USEKIT: &str = env!("CARGO_BIN_EXE_usekit");

fn has_stacks(tool: &str) -> bool {
    ["lockstat", "offcputime", "profile"].contains(&tool)
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .output()
        .expect("the tool runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[test]
fn help_fits_a_terminal_and_needs_nothing() {
    for (tool, program) in TOOLS.iter().copied() {
        let output = run(program, &["--help"]);
        assert_eq!(output.status.code(), Some(0), "{tool}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{tool}: {line}");
        }
        let version = run(program, &["--version"]);
        assert_eq!(
            String::from_utf8_lossy(&version.stdout),
            format!("{tool} {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
}

#[test]
fn wrong_usage_exits_2() {
    for (tool, program) in TOOLS.iter().copied() {
        for args in [
            &["--no-such-flag"][..],
            &["0"],
            &["-5"],
            &["1d"],
            &["-u", "-k"],
            &["-p", "1", "--", "true"],
            &["1", "--"],
        ] {
            assert_eq!(run(program, args).status.code(), Some(2), "{tool} {args:?}");
        }
        if has_stacks(tool) {
            for args in [&["-U", "-K"][..], &["-f", "-j"], &["-o", "x.png"]] {
                assert_eq!(run(program, args).status.code(), Some(2), "{tool} {args:?}");
            }
            assert!(
                stderr(&run(program, &["-o", "x.png"])).contains(".folded .svg .html .json"),
                "{tool}"
            );
        }
    }
}

#[test]
fn a_commands_own_dashes_are_its_business() {
    for (tool, program) in TOOLS.iter().filter(|(tool, _)| *tool != "pressure") {
        let output = run(program, &["--probe", "--", "true", "--"]);
        assert_ne!(output.status.code(), Some(2), "{tool}: {}", stderr(&output));
    }
}

#[test]
fn contradicting_options_exit_2() {
    let output = run(
        env!("CARGO_BIN_EXE_offcputime"),
        &["-m", "10", "-M", "5", "1"],
    );
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

/// Accepted and ignored, they would let a report pass for what was asked for.
#[test]
fn options_unused_by_now_exit_2() {
    let program = env!("CARGO_BIN_EXE_lockstat");
    let unused: [&[&str]; 10] = [
        &["--class", "cond"],
        &["--waker"],
        &["-d"],
        &["-a"],
        &["-f"],
        &["-U"],
        &["-K"],
        &["-i", "1"],
        &["-o", "x.svg"],
        &["--max-overhead", "1"],
    ];
    for option in unused {
        let output = run(program, &[&["--now", "-p", "4194999"][..], option].concat());
        assert_eq!(output.status.code(), Some(2), "--now {option:?}");
        let said = stderr(&output);
        assert!(
            said.contains("'--now' cannot be used with")
                || said.contains("cannot be used with '--now'"),
            "--now {option:?}: {said}"
        );
    }
}

/// Tools with `--max-overhead`.
#[test]
fn a_budget_is_a_share_of_the_machine() {
    for (tool, program) in TOOLS.iter().copied() {
        for bad in ["0", "101", "much"] {
            let output = run(program, &["--max-overhead", bad, "100ms"]);
            assert_eq!(output.status.code(), Some(2), "{tool} {bad}");
            assert!(stderr(&output).contains("in percent"), "{tool} {bad}");
        }
    }
}

#[test]
fn what_does_not_exist_is_named_before_anything_is_loaded() {
    for (tool, program) in TOOLS.iter().copied() {
        let missing = run(program, &["-p", "4194999", "1"]);
        assert_eq!(missing.status.code(), Some(1), "{tool}");
        assert_eq!(
            stderr(&missing),
            format!("{tool}: no process 4194999; it may have exited (see ps -e)\n")
        );
        let thread = run(program, &["-t", "4194999", "1"]);
        assert!(
            stderr(&thread).starts_with(&format!("{tool}: no thread 4194999")),
            "{tool}"
        );
        let cgroup = run(program, &["--cgroup", "/tmp", "1"]);
        assert_eq!(cgroup.status.code(), Some(1), "{tool}");
        // Block I/O may be charged to v1, whatever the tasks are in.
        let complaints = [
            "/tmp: not a cgroup v2 directory; cgroup v2 is",
            "/tmp: block I/O is charged to cgroup v1 here",
        ];
        let complaints = &complaints[..if tool == "biolatency" { 2 } else { 1 }];
        let said = stderr(&cgroup);
        assert!(complaints.iter().any(|text| said.contains(text)), "{said}");
        let gone = run(program, &["--cgroup", "/no/such/cgroup", "1"]);
        assert!(
            stderr(&gone).ends_with("/no/such/cgroup: No such file or directory; findmnt -t cgroup2,cgroup shows where they are\n"),
            "{}",
            stderr(&gone)
        );
    }
}

#[test]
fn an_unwritable_output_is_found_before_the_run() {
    for (tool, program) in TOOLS.iter().copied().filter(|(tool, _)| has_stacks(tool)) {
        let output = run(program, &["-o", "/no/such/directory/out.folded", "1"]);
        assert_eq!(output.status.code(), Some(1), "{tool}");
        assert_eq!(
            stderr(&output),
            format!(
                "{tool}: write /no/such/directory/out.folded: No such file or directory; make its directory first\n"
            )
        );
    }
}

#[test]
fn a_misspelt_event_gets_near_matches() {
    let profile = env!("CARGO_BIN_EXE_profile");
    for (event, why) in [
        ("cpu-clok", "no such event; did you mean cpu-clock?"),
        ("uprobe:malloc", "write uprobe:PATH:SYMBOL"),
    ] {
        for args in [&["-e", event][..], &[&format!("--event={event}"), "1"]] {
            let output = run(profile, args);
            assert_eq!(output.status.code(), Some(1), "{event}");
            assert_eq!(stderr(&output), format!("profile: -e {event}: {why}\n"));
        }
    }
    let output = run(profile, &["-e", "cs", "-c", "none"]);
    assert_eq!(output.status.code(), Some(2), "not the event");
}

#[test]
fn a_frequency_is_refused_where_it_means_nothing() {
    for event in [
        "page-faults",
        "cs",
        "tracepoint:syscalls:sys_enter_read",
        "uprobe:libc:malloc",
    ] {
        let output = run(
            env!("CARGO_BIN_EXE_profile"),
            &["-F", "99", "-e", event, "1"],
        );
        assert_eq!(output.status.code(), Some(2), "{event}");
        assert!(stderr(&output).contains("use -c PERIOD"), "{event}");
    }
}

#[test]
fn completions_are_printed() {
    for (tool, program) in TOOLS.iter().copied() {
        for shell in ["bash", "zsh", "fish"] {
            let output = run(program, &["--completions", shell]);
            assert_eq!(output.status.code(), Some(0), "{tool} {shell}");
            let text = String::from_utf8(output.stdout).expect("UTF-8");
            assert!(
                text.contains(tool) && text.contains("comm"),
                "{tool} {shell}"
            );
        }
    }
}

#[test]
fn completions_that_cannot_be_written_are_an_error_on_one_line() {
    for (tool, program) in TOOLS.iter().copied() {
        let full = fs::File::options().write(true).open("/dev/full");
        let mut command = Command::new(program);
        command.args(["--completions", "bash"]);
        command.stdout(full.expect("a device"));
        let output = command.output().expect("the tool runs");
        assert_eq!(output.status.code(), Some(1), "{tool}");
        let complaint =
            format!("{tool}: write to stdout: No space left on device; make room there\n");
        assert_eq!(stderr(&output), complaint);
    }
}

/// As nobody, from a place that nobody can read.
#[test]
fn without_privileges_the_missing_capability_is_named() {
    // SAFETY: takes no pointers.
    let is_root = unsafe { libc::geteuid() } == 0;
    for (tool, program) in TOOLS.iter().copied() {
        let dir = tempfile::tempdir().expect("a directory");
        let copy: PathBuf = dir.path().join(tool);
        // By another process: while a file is open for writing here, a child that some other test forks has it open, too,
        // and until that one's exec nobody can run it.
        let copied = Command::new("cp").arg(program).arg(&copy).status();
        assert!(copied.expect("cp runs").success());
        for path in [dir.path(), &copy] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        let mut command = Command::new(&copy);
        command.arg("1");
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        let output = command.output().expect("the tool runs");
        let expected = format!(
            "{tool}: needs root, or CAP_BPF and CAP_PERFMON (missing: CAP_BPF, CAP_PERFMON); run it with sudo\n"
        );
        assert_eq!((output.status.code(), stderr(&output)), (Some(1), expected));
    }
}

#[test]
fn a_disk_that_does_not_exist_is_named() {
    let output = run(
        env!("CARGO_BIN_EXE_biolatency"),
        &["-d", "/dev/no-such", "1"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "biolatency: no disk or partition no-such; see lsblk\n"
    );
}

#[test]
fn a_trigger_that_the_kernel_would_refuse_is_refused_at_once() {
    let program = env!("CARGO_BIN_EXE_pressure");
    for trigger in [
        "",
        "memory",
        "memory some 3s/2s",
        "memory some 1s/11s",
        "disk some 1s/2s",
    ] {
        let output = run(program, &["--trigger", trigger, "1"]);
        assert_eq!(output.status.code(), Some(2), "{trigger}");
    }
    let form = stderr(&run(program, &["--trigger", "memory 1s/2s"]));
    assert!(form.contains("'memory some 150ms/2s'"), "{form}");
    assert_eq!(run(program, &["--repeat", "1"]).status.code(), Some(2));
    let both = run(program, &["--cgroups", "--cgroup", "/"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn usekit_alone_lists_the_tools() {
    for args in [&[][..], &["--help"]] {
        let output = run(USEKIT, args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let listed = |tool: &str| {
            text.lines()
                .any(|line| line.split_whitespace().next() == Some(tool))
        };
        assert!(TOOLS.iter().all(|(tool, _)| listed(tool)), "{text}");
        assert!(listed("flame"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
    let output = run(USEKIT, &["--version"]);
    let version = format!("usekit {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), version);
}

#[test]
fn usekit_names_a_tool_that_it_has_not() {
    for (name, said) in [("offcputme", "offcputme"), ("a\u{1b}[2J", "a\\x1b[2J")] {
        let output = run(USEKIT, &[name, "1"]);
        assert_eq!(output.status.code(), Some(2));
        let complaint = format!("usekit: no tool {said}; usekit alone lists them\n");
        assert_eq!(stderr(&output), complaint);
    }
}

#[test]
fn usekit_completes_tools_and_leaves_the_rest_to_them() {
    // Bash's own, and what bash-completion has for words that are a command line.
    let script = "source <(\"$0\" --completions bash)
        _command_offset() { COMPREPLY=(\"from $1\"); }
        for COMP_CWORD in 1 2; do _usekit \"$0\" off; echo \"${COMPREPLY[*]}\"; done";
    let output = run("bash", &["-c", script, USEKIT]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "offcputime\nfrom 1\n"
    );
    for shell in ["fish", "zsh"] {
        let output = run(USEKIT, &["--completions", shell]);
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("usekit"),
            "{shell}"
        );
    }
    for args in [&["--completions"][..], &["--completions", "csh"]] {
        let output = run(USEKIT, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(
            stderr(&output),
            "usekit: --completions wants one of: bash, fish, zsh\n"
        );
    }
}

/// By a link, by a copy's name, and by its first word, a tool says what its own program says.
#[test]
fn usekit_is_every_tool() {
    let dir = tempfile::tempdir().expect("a directory");
    for (tool, program) in TOOLS.iter().copied() {
        let link = dir.path().join(tool);
        symlink(USEKIT, &link).expect("a link");
        for args in [
            &["--help"][..],
            &["--version"],
            &["--completions", "fish"],
            &["--no-such-flag"],
            &["-p", "1", "--", "true"],
            &["1", "--"],
            &["-p", "4194999", "1"],
        ] {
            let own = run(program, args);
            let linked = run(link.to_str().expect("UTF-8"), args);
            let named = run(USEKIT, &[&[tool][..], args].concat());
            assert_eq!(linked, own, "{tool} {args:?}");
            assert_eq!(named, own, "{tool} {args:?}");
        }
    }
}
