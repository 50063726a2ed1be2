//! Processes that are gone before anyone looks.

use std::fs;
use std::process::Command;

use symbols::Symbolizer;

use crate::target::{Target, compile, compile_source, names, nm, skip, symbolizer};

fn live() -> Option<Symbolizer> {
    let symbolizer = symbolizer();
    match symbolizer.losses().stream {
        None => Some(symbolizer),
        Some(reason) => {
            skip(&format!("no side-band stream: {reason}"));
            None
        }
    }
}

#[test]
fn a_process_that_was_never_looked_at_while_it_lived() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "brief", &["-g"]);
    let hot = nm(&program, "hot");
    let Some(mut symbolizer) = live() else { return };
    let mut target = Target::run(Command::new(&program).arg("leave"));
    target.end();
    assert!(!fs::exists(format!("/proc/{}", target.tgid)).unwrap());
    let locations = symbolizer.locate(
        target.tgid,
        target.time(),
        &[target.address(1), target.address(0)],
    );
    let found = symbolizer.user(&locations);
    assert_eq!(names(&found), ["hot", "chain", "middle", "inner"]);
    assert_eq!(found[0].address, hot + 4, "where the walk found it");
    assert_eq!(found[0].module.as_deref(), program.to_str());
    assert_eq!(symbolizer.losses().processes_gone, 0);

    let vdso = target.address(4) + 0x10;
    let locations = symbolizer.locate(target.tgid, target.time(), &[vdso]);
    let found = symbolizer.user(&locations);
    assert_eq!(found[0].module.as_deref(), Some("[vdso]"), "{found:?}");
}

#[test]
fn an_exec_separates_two_programs_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = compile(dir.path(), "first", &["-no-pie", "-fno-PIE"]);
    let Some(mut symbolizer) = live() else { return };
    // The shell's own mappings come first under the same process ID.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {} leave", first.display())]);
    let mut target = Target::run(&mut command);
    target.end();
    let ips = [target.address(0)];
    let locations = symbolizer.locate(target.tgid, target.time(), &ips);
    assert_eq!(names(&symbolizer.user(&locations)), ["hot"]);
    let before = symbolizer.locate(target.tgid, target.time() - 1_000_000_000, &ips);
    assert!(
        symbolizer.user(&before)[0].name.starts_with("[unmapped]"),
        "not mapped a second before"
    );
}

#[test]
fn a_forked_child_shares_its_parents_code() {
    let dir = tempfile::tempdir().unwrap();
    let source = crate::target::SOURCE.replace(
        "struct timespec now;",
        "struct timespec now; if (fork()) { pause(); }",
    );
    let source = source.replace("if (argc == 1) pause();", "");
    let program = compile_source(dir.path(), "parent", "c", &source, &[]);
    let Some(mut symbolizer) = live() else { return };
    let mut target = Target::start(&program);
    let child: u32 = target.words[3].parse().unwrap();
    assert_ne!(child, target.tgid);
    target.end();
    let locations = symbolizer.locate(child, target.time(), &[target.address(0)]);
    assert_eq!(names(&symbolizer.user(&locations)), ["hot"]);
}

#[test]
fn processes_from_before_the_tracer_are_remembered_by_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "daemon", &[]);
    let mut target = Target::start(&program);
    let mut symbolizer = symbolizer();
    symbolizer.snapshot([target.tgid]);
    let time = crate::target::now();
    target.end();
    let locations = symbolizer.locate(target.tgid, time, &[target.address(0)]);
    assert_eq!(names(&symbolizer.user(&locations)), ["hot"]);
    assert_eq!(symbolizer.losses().processes_gone, 0);
}

#[test]
fn hundreds_of_short_processes_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let programs = [
        compile(dir.path(), "even", &[]),
        compile(dir.path(), "odd", &["-g"]),
    ];
    let Some(mut symbolizer) = live() else { return };
    let mut targets = Vec::new();
    for i in 0..300 {
        let mut target = Target::run(Command::new(&programs[i % 2]).arg("leave"));
        target.end();
        targets.push(target);
        if i % 50 == 0 {
            symbolizer.poll();
        }
    }
    for (i, target) in targets.iter().enumerate() {
        let locations = symbolizer.locate(target.tgid, target.time(), &[target.address(0)]);
        let found = symbolizer.user(&locations);
        assert_eq!(names(&found), ["hot"]);
        assert_eq!(found[0].module.as_deref(), programs[i % 2].to_str());
    }
    let losses = symbolizer.losses();
    assert_eq!(
        (losses.stream_records, losses.processes_gone, losses.unnamed),
        (0, 0, 0)
    );
}
