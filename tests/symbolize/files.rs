//! Files that are gone, replaced or elsewhere by the time a name is asked for.

use std::fs;
use std::process::Command;

use crate::target::{Dir, INLINED, Target, names, nm, skip, symbolizer, symbolizer_with};

#[test]
fn a_deleted_program_that_still_runs() {
    let dir = Dir::new();
    let program = dir.compile("deleted", "");
    let target = Target::start(&program);
    fs::remove_file(&program).unwrap();
    let found = target.frames(&mut symbolizer(), 0);
    assert_eq!(names(&found), ["hot"]);
    assert_eq!(found[0].module.as_deref(), program.to_str());
}

#[test]
fn another_program_at_the_same_path() {
    let dir = Dir::new();
    let program = dir.compile("rebuilt", "");
    let target = Target::start(&program);
    fs::remove_file(&program).unwrap();
    dir.compile("rebuilt", "-Dhot=cold -g");
    let found = target.frames(&mut symbolizer(), 0);
    assert_eq!(names(&found), ["hot"]);
}

#[test]
fn located_while_alive_and_named_after_exit_and_delete() {
    let dir = Dir::new();
    let program = dir.compile("gone", "-g");
    let mut target = Target::start(&program);
    let mut symbolizer = symbolizer();
    let locations = target.locate(&mut symbolizer, &[target.address(1), target.address(0)]);
    target.end();
    fs::remove_file(&program).unwrap();
    symbolizer.poll();
    let found = symbolizer.user(&locations);
    assert_eq!(names(&found), ["hot", "chain", "middle", "inner"]);
}

#[test]
fn a_file_overwritten_in_place_is_not_read() {
    let dir = Dir::new();
    let program = dir.compile("overwritten", "");
    let hot = nm(&program, "hot");
    let mut target = Target::start(&program);
    let mut symbolizer = symbolizer();
    let locations = target.locate(&mut symbolizer, &[target.address(0)]);
    let first = symbolizer.user(&locations);
    assert_eq!(names(&first), ["hot"]);
    let later = target.locate(&mut symbolizer, &[target.address(0) + 1]);
    target.end();
    fs::File::create(&program).unwrap();
    let found = symbolizer.user(&later);
    assert_eq!(names(&found), [format!("overwritten+{:#x}", hot + 5)]);
    assert_eq!(symbolizer.losses().modules_changed, 1);
}

/// Runs a script as process 1 of its own mount and PID namespaces.
fn contained(script: &str) -> Option<Target> {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        script,
    ]);
    let mut target = Target::run(&mut command);
    if target.words.is_empty() {
        skip("unshare --mount --pid is not permitted");
        return None;
    }
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", target.tgid));
    target.tgid = children.unwrap().trim().parse().unwrap();
    Some(target)
}

#[test]
fn a_program_that_only_a_container_has() {
    let dir = Dir::new();
    dir.compile("inside", "-g");
    let path = dir.path().display();
    let script = format!("mount -t tmpfs none /mnt && cp {path}/inside /mnt && exec /mnt/inside");
    let Some(target) = contained(&script) else {
        return;
    };
    assert_eq!(target.words[3], "1", "its own process ID");
    let found = target.frames(&mut symbolizer(), 1);
    assert_eq!(names(&found), INLINED);
    assert_eq!(found[0].module.as_deref(), Some("/mnt/inside"));
    assert!(!fs::exists("/mnt/inside").unwrap());
}

#[test]
fn a_process_gone_before_its_container() {
    let dir = Dir::new();
    dir.compile("inside", "-g");
    let mut symbolizer = symbolizer();
    // The shell reads its process ID outside from /proc, which shows that of its mount's namespace.
    let script = format!(
        "mount -t tmpfs none /mnt && cp {0}/inside /mnt/brief && cp {0}/inside /mnt/inside && \
         (read pid rest < /proc/self/stat && echo $pid > /mnt/pid && exec /mnt/brief leave > /mnt/said); exec /mnt/inside",
        dir.path().display()
    );
    let Some(target) = contained(&script) else {
        return;
    };
    if let Some(reason) = symbolizer.losses().stream {
        return skip(&reason);
    }
    let read =
        |name: &str| fs::read_to_string(format!("/proc/{}/root/mnt/{name}", target.tgid)).unwrap();
    let (said, brief) = (read("said"), read("pid").trim().parse().unwrap());
    assert!(!fs::exists(format!("/proc/{brief}")).unwrap());
    let words: Vec<&str> = said.split_whitespace().collect();
    let chain = u64::from_str_radix(words[1], 16).unwrap();
    let neighbour = target.frames(&mut symbolizer, 0);
    assert_eq!(names(&neighbour), ["hot"]);
    let locations = symbolizer.locate(brief, words[2].parse().unwrap(), &[chain]);
    let found = symbolizer.user(&locations);
    assert_eq!(names(&found), INLINED);
    assert_eq!(found[0].module.as_deref(), Some("/mnt/brief"));
}

#[test]
fn a_debug_file_that_only_a_container_has() {
    let dir = Dir::new();
    let program = dir.split("split", "-Wl,--build-id=0x1234567890");
    let (path, store) = (dir.path().display(), "/mnt/.build-id/12");
    let script = format!(
        "mount -t tmpfs none /mnt && mkdir -p {store} && mv {path}/debug {store}/34567890.debug && exec {path}/split"
    );
    let Some(target) = contained(&script) else {
        return;
    };
    let mut symbolizer = symbolizer_with("/mnt".into());
    let found = target.frames(&mut symbolizer, 1);
    assert_eq!(names(&found), INLINED);
    assert_eq!(found[0].module.as_deref(), program.to_str());
}

#[test]
fn a_program_on_an_overlay() {
    let dir = Dir::new();
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(dir.file(name)).unwrap();
    }
    dir.compile("lower/layered", "");
    let path = dir.path().display();
    let script = format!(
        "mount -t overlay overlay -o lowerdir={path}/lower,upperdir={path}/upper,workdir={path}/work {path}/merged \
         && exec {path}/merged/layered"
    );
    let Some(mut target) = contained(&script) else {
        return;
    };
    let mut symbolizer = symbolizer();
    let locations = target.locate(&mut symbolizer, &[target.address(0)]);
    target.end();
    assert_eq!(names(&symbolizer.user(&locations)), ["hot"]);
}

#[test]
fn a_perf_map_under_the_innermost_process_id() {
    let dir = Dir::new();
    dir.compile_source("jit", "c", crate::jit::JIT, "");
    let script = format!(
        "cp {}/jit /mnt/ 2>/dev/null; mount -t tmpfs none /tmp && exec /mnt/jit",
        dir.path().display()
    );
    let script = format!("mount -t tmpfs none /mnt && {script}");
    let Some(mut target) = contained(&script) else {
        return;
    };
    let code = target.address(0);
    let map = format!("/proc/{}/root/tmp/perf-1.map", target.tgid);
    fs::write(map, format!("{code:x} 10 contained\n")).unwrap();
    let mut symbolizer = symbolizer();
    let locations = target.locate(&mut symbolizer, &[code]);
    target.end();
    assert_eq!(names(&symbolizer.user(&locations)), ["contained"]);
}

#[test]
fn broken_files_break_nothing_else() {
    let dir = Dir::new();
    let good = Target::start(&dir.compile("good", "-g"));
    let original = fs::read(dir.compile("broken", "-g")).unwrap();
    let mut seed = 7u64;
    for round in 0..60 {
        // Only behind the program headers and the loaded pages: it must still run.
        let mut bytes = original.clone();
        for _ in 0..200 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = 0x3200 + usize::try_from(seed >> 33).unwrap() % (bytes.len() - 0x3200);
            bytes[at] = (seed >> 25) as u8;
        }
        if round % 3 == 0 {
            bytes.truncate(0x3200 + round * 16);
        }
        let target = Target::start(&dir.program(&format!("broken{round}"), &bytes));
        let mut symbolizer = symbolizer();
        let broken = target.locate(&mut symbolizer, &[target.address(1)]);
        let whole = good.locate(&mut symbolizer, &[good.address(1)]);
        let found = symbolizer.user(&[broken, whole].concat());
        assert_eq!(names(&found)[..3], INLINED, "the good file's");
        assert!(found.len() > 3 && !found[3].name.is_empty());
    }
}
