//! lockstat's account of locks of files, of System V's semaphores, and of tokens, against programs that time their own waits.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Stdio};

use crate::c_program::run;
use crate::found::unended;
use crate::kernel::until;
use crate::prelude::*;

const FILES: &str = include_str!("../../workloads/locks/files.c");
const OWN_FILE: &str = include_str!("../../workloads/locks/own_file.c");
const MIXED: &str = include_str!("../../workloads/locks/mixed.c");

/// The program's own token.
const RULE: &str = "take_token - jobserver contention\n";

/// One row: waits, their time by the waiter's clock, and who made it wait; with this many ends unseen in all.
fn assert_row(lock: &Value, played: &Value, unended: u64) {
    let class = text(played, "class");
    let rounds = number(played, "rounds");
    let waits = number(lock, "contentions");
    assert_all(class, waits, unended, rounds, lock);
    assert_eq!(number(lock, "open"), 0, "{lock:#}");
    assert_eq!(lock["confidence"], 100);
    // It is asleep while the holder sees it so, and waits in its calls alone: a hundredth lies between, if nobody else wants CPUs.
    let asleep_ns = if waits == rounds {
        number(played, "asleep_ns")
    } else {
        0
    };
    let truth = asleep_ns..=number(played, "waited_ns");
    assert_within(class, number(lock, "total_ns"), truth, lock);
    let waiters = list(lock, "waiters").iter();
    assert_eq!(
        waiters.map(|one| number(one, "tid")).collect::<Vec<_>>()[0],
        number(played, "waiter")
    );
    let holder = only(lock, "holders");
    assert_eq!(holder["tid"], played["holder"], "{lock:#}");
    assert_eq!(holder["comm"], "files");
    assert_eq!(holder["waits"], lock["contentions"], "{lock:#}");
    // Locks of open files and semaphores name no process: whoever released them is told of.
    let known_as = match class {
        "flock" | "posix" => "owner",
        _ => "waker",
    };
    assert_eq!(holder["known_as"], known_as, "{lock:#}");
}

#[test]
fn file_locks_semaphores_and_tokens_have_the_waits_and_holders_that_the_program_knows() {
    let _machine = Machine::beside();
    let program = Program::c("files", FILES, "");
    let path = program.dir().join("a file.lock");
    let rules = program.dir().join("rules");
    fs::write(&rules, RULE).expect("a file");
    let mut workload = program.start([path.clone()]);
    let (output, results) = during(
        "lockstat",
        format!("-U -j --class all --comm files --rules {}", rules.display()),
        || {
            workload.go();
            workload.results()
        },
    );
    let known = results.last().expect("what they are");
    let name_of = |class| match class {
        "sysv-sem" => format!("set {} (key {:#x})", known["set"], number(known, "key")),
        "eventfd" => format!("id {}", known["event"]),
        "jobserver" => format!("pipe {}", known["pipe"]),
        _ => path.display().to_string(),
    };
    workload.finish();
    let report = output.report();
    let locks = list(&report, "locks");
    let played = &results[..results.len() - 1];
    assert_eq!(played.len(), 6);
    let unended = unended(&report);
    for one in played {
        let class = &one["class"];
        let found: Vec<&Value> = locks
            .iter()
            .filter(|lock| lock["class"] == *class)
            .collect();
        let [lock] = found[..] else {
            panic!("not one {class} in {locks:#?}")
        };
        assert_row(lock, one, unended);
        assert_eq!(lock["name"], name_of(text(one, "class")));
        if ["sysv-sem", "eventfd"].contains(&text(one, "class")) {
            continue;
        }
        assert_eq!(lock["for"], "others");
        if class == "jobserver" {
            continue;
        }
        assert_eq!(
            number(lock, "inode"),
            fs::metadata(&path).expect("a file").ino()
        );
    }
}

/// A shell's loop with flock(1), whose processes come and go. Whoever has the file keeps it for 0.1 s after all loops that go on
/// are seen to wait for it: in 18 turns, in any order, there are at least 18 such waits.
const LOOPS: &str = r#"
rm -f "$FILE".done.*
have() {
    while :; do
        over=$(ls "$FILE".done.* 2>/dev/null | wc -l)
        [ "$(grep -c ":$(stat -c %i "$FILE") " /proc/locks)" -ge $((3 - over)) ] && break
        sleep 0.01
    done
    sleep 0.1
}
export -f have
for i in 1 2 3; do
    (for n in 1 2 3 4 5 6; do "$FLOCK" "$FILE" bash -c have; done; touch "$FILE.done.$i") &
done
wait
"#;

/// The loops' flock(1): others beside this test run that, too.
const FLOCK: &str = "flock-in-loops";

#[test]
fn the_first_row_is_the_file_that_three_loops_want() {
    let _machine = Machine::beside();
    let targets = format!("-U --comm {FLOCK}");
    assert_loops_first([targets.clone(), format!("{targets} -j")]);
}

/// Others that wait for something may have waited for longer.
#[test]
#[ignore = "statistical: make truth"]
fn the_first_row_of_the_machine_is_the_file_that_three_loops_want() {
    let _machine = Machine::alone();
    assert_loops_first([String::new(), "-j".to_owned()]);
}

/// The same in words and in JSON.
fn assert_loops_first(options: [String; 2]) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("lock");
    fs::write(&file, "").expect("a file");
    let mut command = Command::new("bash");
    let flock = dir.path().join(FLOCK);
    let found = run(Command::new("sh").args(["-c", "command -v flock"]));
    symlink(found.trim(), &flock).expect("a link");
    command.args(["-c", LOOPS]);
    command.env("FILE", &file).env("FLOCK", &flock);
    for options in options {
        let tool = Tool::attached("lockstat", &options);
        let status = command.status().expect("bash");
        assert!(status.success());
        let output = tool.end();
        let path = file.to_str().expect("UTF-8");
        if !options.contains("-j") {
            let mut lines = output.stdout.lines();
            let row = lines.find(|line| line.contains(" LOCK")).and(lines.next());
            let row = row.unwrap_or_else(|| panic!("{}", output.stdout));
            assert!(row.contains(&format!("flock {path}")), "{row}");
            continue;
        }
        let report = output.report();
        let first = &list(&report, "locks")[0];
        assert_eq!(text(first, "name"), path, "{first:#}");
        // At most two of three wait at any time.
        let length = number(&report, "end_ns") - number(&report, "start_ns");
        let bounds = 15 * 100_000_000..=2 * length;
        assert_within("waited", number(first, "total_ns"), bounds, first);
        let holders = list(first, "holders").iter();
        assert!(
            holders.into_iter().all(|one| one["comm"] == FLOCK),
            "{first:#}"
        );
    }
}

#[test]
fn the_holder_of_a_file_that_was_waited_for_before_is_there() {
    let _machine = Machine::beside();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("lock");
    let flock = |command: &[&str]| {
        let mut flock = Command::new("flock");
        let flock = flock.arg("-o").arg(&file).args(command);
        flock.stdin(Stdio::piped()).spawn().expect("flock")
    };
    let inode = || fs::metadata(&file).map_or(0, |file| file.ino());
    // A line of its own for each that has it, and for each that waits.
    let are_there = |count| {
        let locks = fs::read_to_string("/proc/locks").expect("locks");
        let of_file = format!(":{} ", inode());
        locks.lines().filter(|line| line.contains(&of_file)).count() == count
    };
    // Until we let it go.
    let mut holder = flock(&["cat"]);
    until("it has the file", || are_there(1));
    let mut waiter = flock(&["true"]);
    until("it waits", || are_there(2));
    let args = format!("-U -j -p {},{} 1", holder.id(), waiter.id());
    let report = Tool::run("lockstat", args).report();
    drop(holder.stdin.take());
    let statuses = [&mut holder, &mut waiter].map(|child| child.wait().expect("flock"));
    assert!(statuses.iter().all(std::process::ExitStatus::success));
    let locks = list(&report, "locks").iter();
    let mut of_file = locks.filter(|lock| lock["class"] == "flock");
    let lock = of_file.next().unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!((number(lock, "contentions"), number(lock, "open")), (1, 1));
    let had_it = only(lock, "holders");
    assert_eq!(number(had_it, "pid"), u64::from(holder.id()), "{lock:#}");
    assert_eq!(had_it["known_as"], "owner");
}

/// One waits for a mutex in shared memory, the other for a POSIX lock, and a third process behind them for a flock.
#[test]
fn a_circle_through_a_files_lock_and_a_mutex_is_a_deadlock() {
    let _machine = Machine::beside();
    let program = Program::c("mixed", MIXED, "-pthread");
    let path = program.dir().join("a file.lock");
    let mut workload = program.start([path.clone()]);
    workload.go();
    let known = &workload.results()[0];
    let [parent, child, third] = ["parent", "child", "third"].map(|who| number(known, who));
    let options = format!("--now -j -p {parent},{child},{third}");
    let report = Tool::run("lockstat", options).ok().report();
    let deadlock = only(&report, "deadlocks");
    assert_eq!(deadlock["kind"], "circle");
    assert_eq!(
        (&deadlock["certain"], &deadlock["timed"]),
        (&true.into(), &false.into())
    );
    let mut members = ids(deadlock, "threads");
    members.sort_unstable();
    assert_eq!(
        (members, ids(deadlock, "behind")),
        (vec![parent, child], vec![third])
    );
    let waits = list(&report, "waits");
    assert_eq!(waits.len(), 3, "{report:#}");
    for (waiter, class, holder, known_as) in [
        (child, "POSIX lock", parent, "thread"),
        (third, "flock", child, "perhaps"),
    ] {
        let wait = waits.iter().find(|wait| number(wait, "tid") == waiter);
        let wait = wait.unwrap_or_else(|| panic!("{report:#}"));
        let lock = (text(wait, "class"), text(wait, "lock"));
        assert_eq!(lock, (class, path.to_str().expect("ASCII")));
        let had_by = (
            number(&wait["holder"], "pid"),
            text(&wait["holder"], "kind"),
        );
        assert_eq!(had_by, (holder, known_as), "{wait:#}");
    }
}

/// Which of its threads has locked a file as a whole, the kernel does not say; a child may have it, too.
#[test]
fn a_circle_through_a_file_of_the_processs_own_is_perhaps_a_deadlock() {
    let _machine = Machine::beside();
    let program = Program::c("own", OWN_FILE, "-pthread");
    let path = program.dir().join("own.lock");
    let mut workload = program.start([path.clone()]);
    workload.go();
    let known = &workload.results()[0];
    let options = format!("--now -j -p {}", workload.pid());
    let report = Tool::run("lockstat", options).ok().report();
    let deadlock = only(&report, "deadlocks");
    assert_eq!(
        (&deadlock["kind"], &deadlock["certain"]),
        (&"process".into(), &false.into())
    );
    let mut members = vec![
        u64::from(workload.pid()),
        number(known, "mutex"),
        number(known, "file"),
    ];
    members.sort_unstable();
    assert_eq!(ids(deadlock, "threads"), members, "{report:#}");

    // With a thread that waits for something else, that one may have the file.
    let other = path.with_extension("other");
    let mut workload = program.start([other.as_os_str(), "polls".as_ref()]);
    workload.go();
    let _ = workload.results();
    let options = format!("--now -j -p {}", workload.pid());
    let report = Tool::run("lockstat", options).ok().report();
    assert!(list(&report, "deadlocks").is_empty(), "{report:#}");
}
