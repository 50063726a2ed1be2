//! Processes that are gone before anyone looks.

use std::fs;
use std::process::Command;

use symbols::Symbolizer;

use crate::target::{Dir, SOURCE, Target, names, nm, skip, symbolizer};

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
    let dir = Dir::new();
    let program = dir.compile("brief", "-g");
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
    let dir = Dir::new();
    let first = dir.compile("first", "-no-pie -fno-PIE");
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
    let before = symbolizer.user(&before);
    assert!(before[0].name.starts_with("[unmapped]"), "a second before");
}

#[test]
fn a_forked_child_shares_its_parents_code() {
    let dir = Dir::new();
    let source = SOURCE.replace(
        "struct timespec now;",
        "struct timespec now; if (fork()) { pause(); }",
    );
    let source = source.replace("if (argc == 1) pause();", "");
    let program = dir.compile_source("parent", "c", &source, "");
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
    let dir = Dir::new();
    let program = dir.compile("daemon", "");
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
    let dir = Dir::new();
    let programs = [dir.compile("even", ""), dir.compile("odd", "-g")];
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
        let locations = target.located(&mut symbolizer, 0);
        let found = symbolizer.user(&locations);
        assert_eq!(names(&found), ["hot"]);
        assert_eq!(found[0].module.as_deref(), programs[i % 2].to_str());
    }
    let losses = symbolizer.losses();
    let lost = [losses.stream_records, losses.processes_gone, losses.unnamed];
    assert_eq!(lost, [0; 3]);
}
