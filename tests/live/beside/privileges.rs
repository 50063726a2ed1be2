//! What a tool may still do while it runs, and that what it starts may do what the caller may.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::kernel::Machine;
use crate::tool::{COMMANDED, TRACERS, Tool, once};

/// By their numbers in linux/capability.h.
const DAC_OVERRIDE: u64 = 1 << 1;
const KILL: u64 = 1 << 5;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;
/// What reading names and processes, one's own maps and new events takes: DAC_READ_SEARCH, SYS_CHROOT, SYS_PTRACE, SYSLOG,
/// PERFMON, BPF, CHECKPOINT_RESTORE.
const ALWAYS: u64 = 1 << 2 | 1 << 18 | SYS_PTRACE | 1 << 34 | 1 << 38 | 1 << 39 | 1 << 40;

fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("no {name} in {status}"));
    u64::from_str_radix(value.trim(), 16).expect("a number")
}

const SYS_NICE: u64 = 1 << 23;
const BPF: u64 = 1 << 39;

/// Capabilities of each thread, the first one's first, but for the guard, which has its own; all must have given up hope for more. Children that
/// change tables have one.
fn capabilities(tool: &Tool) -> Vec<u64> {
    let pid = tool.pid();
    let mut threads: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it runs")
        .map(|thread| {
            let name = thread.expect("an entry").file_name();
            name.to_str()
                .and_then(|tid| tid.parse().ok())
                .expect("a thread")
        })
        .collect();
    threads.sort_unstable_by_key(|tid| *tid != pid);
    let statuses = threads.iter().filter_map(|tid| {
        let mut status = named_status(pid, *tid)?;
        let name = status.lines().next().expect("a name").to_owned();
        // It waits for a child that shares its memory, with the child's capabilities.
        if name == "Name:\tvfork" {
            await_status(pid, *tid, |status| field(status, "CapEff:") & !BPF == 0);
            return None;
        }
        // It has its name before it has given anything up.
        if name == "Name:\tunwind-tables" {
            status = await_status(pid, *tid, has_nothing)?;
        }
        assert_eq!(field(&status, "NoNewPrivs:"), 1, "{status}");
        assert_eq!(field(&status, "CapPrm:"), field(&status, "CapEff:"));
        assert_eq!(field(&status, "CapInh:"), 0);
        let is_guard = name == "Name:\tguard";
        let has = field(&status, "CapEff:");
        assert!(!is_guard || has == SYS_NICE, "{has:x}");
        (!is_guard).then_some(has)
    });
    let capabilities = statuses.collect();
    for status in children(pid) {
        let changes_tables = status.starts_with("Name:\tunwind-chunk\n");
        assert!(
            !changes_tables || field(&status, "CapEff:") == BPF,
            "{status}"
        );
    }
    capabilities
}

/// Of a thread that has the name that it was made for; a new one has its maker's. `None`: it has ended.
fn named_status(pid: u32, tid: u32) -> Option<String> {
    let status = |tid: u32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok();
    let name = |status: &str| status.lines().next().map(str::to_owned);
    let makers = name(&status(pid)?);
    let give_up = Instant::now() + Duration::from_secs(300);
    loop {
        let status = status(tid)?;
        if tid == pid || name(&status) != makers {
            return Some(status);
        }
        assert!(Instant::now() < give_up, "{status}");
        thread::yield_now();
    }
}

/// Nothing to lose, and nothing to come.
fn has_nothing(status: &str) -> bool {
    field(status, "CapEff:") == 0 && field(status, "NoNewPrivs:") == 1
}

/// The status of a thread, which may just have begun, when this holds for it. `None`: it has ended.
fn await_status(pid: u32, tid: u32, holds: impl Fn(&str) -> bool) -> Option<String> {
    let give_up = Instant::now() + Duration::from_secs(300);
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        if holds(&status) {
            return Some(status);
        }
        assert!(Instant::now() < give_up, "{status}");
        thread::yield_now();
    }
}

/// Their statuses.
fn children(pid: u32) -> Vec<String> {
    let parent = format!("\nPPid:\t{pid}\n");
    let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
    let statuses =
        processes.filter_map(|process| fs::read_to_string(process.path().join("status")).ok());
    statuses.filter(|status| status.contains(&parent)).collect()
}

/// Until the thread that starts the command, and is as mighty as the command will be, has ended with that.
fn await_command(tool: &Tool) {
    let give_up = Instant::now() + Duration::from_secs(300);
    let threads = format!("/proc/{}/task", tool.pid());
    // The main one, the guard and the one that hears signals stay.
    while fs::read_dir(&threads).expect("it runs").count() > 3 {
        assert!(Instant::now() < give_up, "the command does not start");
    }
}

#[test]
fn an_attached_tool_has_only_what_it_needs() {
    let _machine = Machine::beside();
    let own = field(
        &fs::read_to_string("/proc/self/status").expect("own"),
        "CapEff:",
    );
    assert_ne!(own & SYS_ADMIN, 0, "there is something to give up");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir
        .path()
        .join("out.json")
        .to_str()
        .expect("plain")
        .to_owned();
    let own_pid = std::process::id().to_string();
    for (tool, args, also) in [
        ("profile", &[][..], 0),
        ("offcputime", &[], 0),
        ("runqlat", &[], 0),
        ("biolatency", &[], 0),
        ("syscount", &[], 0),
        ("why", &[], 0),
        ("why", &["-o", &file], DAC_OVERRIDE | 1 << 3),
        ("pressure", &["-s", "100ms"], 0),
        ("lockstat", &["-p", &own_pid], 0),
        (
            "lockstat",
            &["-p", &own_pid, "-o", &file],
            DAC_OVERRIDE | 1 << 3,
        ),
        ("profile", &["-o", &file], DAC_OVERRIDE | 1 << 3),
        ("offcputime", &["-o", &file], DAC_OVERRIDE | 1 << 3),
        ("runqlat", &["--", "sleep", "60"], KILL),
    ] {
        let running = Tool::start(tool, args);
        running.wait_attached();
        if args.contains(&"--") {
            await_command(&running);
        }
        let threads = capabilities(&running);
        assert_eq!(threads[0], ALWAYS | also, "{tool} {args:?}: {threads:x?}");
        assert!(
            threads[1..].iter().all(|has| *has == 0),
            "{tool}: {threads:x?}"
        );
        // Passed on to a command.
        running.signal(libc::SIGTERM);
        let output = running.finish();
        assert!([0, 143].contains(&output.code), "{tool} {}", output.stderr);
        assert!(!output.stderr.contains("privileges"), "{}", output.stderr);
    }
}

#[test]
fn a_command_has_the_callers_privileges() {
    let _machine = Machine::beside();
    let print = "grep -E 'Cap|NoNewPrivs' /proc/self/status";
    let plain = Command::new("sh").args(["-c", print]).output().expect("sh");
    for tool in COMMANDED.iter().copied() {
        let running = Tool::start(tool, ["-q", "-j", "--", "sh", "-c", print]);
        let output = running.finish();
        assert_eq!(output.code, 0, "{}", output.stderr);
        let said: Vec<&str> = output
            .stdout
            .lines()
            .filter(|line| !line.starts_with('{'))
            .collect();
        let plain = String::from_utf8_lossy(&plain.stdout);
        assert_eq!(said, plain.lines().collect::<Vec<_>>(), "{tool}");
    }
}

/// `-o` into a directory of somebody else's, over a file of theirs.
#[test]
fn a_file_is_written_wherever_root_can() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let nobody = Some(65_534);
    std::os::unix::fs::chown(dir.path(), nobody, None).expect("root");
    let file = dir.path().join("out.json");
    fs::write(&file, "old").expect("a file");
    std::os::unix::fs::chown(&file, nobody, None).expect("root");
    let path = file.to_str().expect("plain");
    let output = Tool::start("profile", ["-q", "-o", path, "200ms"]).finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = fs::read_to_string(&file).expect("a file");
    assert!(text.contains("\"tool\":\"profile\""), "{text}");
    let names = fs::read_dir(dir.path()).expect("a directory");
    assert_eq!(names.count(), 1, "nothing but the file");
}

/// A trap in /tmp: root's write through it would be `fs.protected_symlinks`' to refuse, as a shell's `>` shows.
#[test]
fn somebody_elses_link_in_a_sticky_directory_is_not_followed() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let _machine = Machine::beside();
    let protected = "/proc/sys/fs/protected_symlinks";
    let before = fs::read_to_string(protected).expect("sysctl");
    fs::write(protected, "1").expect("root");
    let dir = tempfile::tempdir().expect("a directory");
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).expect("a directory");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("our own");
    let (kept, trap) = (dir.path().join("kept.json"), shared.join("out.json"));
    fs::write(&kept, "kept").expect("a file");
    symlink(&kept, &trap).expect("a link");
    lchown(&trap, Some(65_534), None).expect("root");
    let path = trap.to_str().expect("plain");
    let output = Tool::start("profile", ["-q", "-o", path, "200ms"]).finish();
    fs::write(protected, before).expect("root");
    let complaint = format!("write {path}: Permission denied; choose another place\n");
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.ends_with(&complaint), "{}", output.stderr);
    assert_eq!(fs::read_to_string(&kept).expect("a file"), "kept");
}

/// A budget is not kept to where nobody says what BPF programs cost.
#[test]
fn a_budget_that_cannot_be_measured_is_refused() {
    let _machine = Machine::beside();
    let without = |tool: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]);
        command.arg(crate::built(tool)).args(["--max-overhead=50"]);
        command.args(once(tool, "200ms"));
        if tool == "lockstat" {
            // Futexes take tracefs, which nobody may mount without CAP_SYS_ADMIN.
            command.arg("-K");
        }
        Tool::spawn(tool, command).finish()
    };
    let switch = "/proc/sys/kernel/bpf_stats_enabled";
    let before = fs::read_to_string(switch).expect("sysctl");
    fs::write(switch, "0").expect("root");
    let refused = TRACERS.iter().copied().map(without).collect::<Vec<_>>();
    fs::write(switch, "1").expect("root");
    let measured = TRACERS.iter().copied().map(without).collect::<Vec<_>>();
    fs::write(switch, before).expect("root");
    for (tool, output) in TRACERS.iter().zip(refused) {
        assert_eq!(output.code, 1, "{tool}: {}", output.stderr);
        let why = "not permitted to measure BPF programs; run it as root, or sysctl kernel.bpf_stats_enabled=1";
        assert_eq!(output.stderr, format!("{tool}: --max-overhead: {why}\n"));
        assert_eq!(output.stdout, "");
    }
    for (tool, output) in TRACERS.iter().zip(measured) {
        assert_eq!(output.code, 0, "{tool}: {}", output.stderr);
        assert!(!output.stderr.contains("not measured"), "{}", output.stderr);
    }
}
