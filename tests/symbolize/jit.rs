//! Code made at run time.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use profile::frame::FrameKind;

use crate::target::{Dir, Target, frames, make_fifo, names, skip, symbolizer};

/// Makes executable memory and prints where.
pub(crate) const JIT: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    void *code = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(code, 8192, PROT_READ | PROT_EXEC);
    printf("%lx\n", (unsigned long)code);
    fflush(stdout);
    pause();
}
"#;

struct Map(PathBuf);

impl Map {
    fn of(tgid: u32) -> Self {
        Self(Path::new("/tmp").join(format!("perf-{tgid}.map")))
    }

    fn write(tgid: u32, text: &str) -> Self {
        let map = Self::of(tgid);
        fs::write(&map.0, text).unwrap();
        map
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What code without a name is called.
fn nameless(address: u64) -> [String; 1] {
    [format!("[anon]+{address:#x}")]
}

#[test]
fn perf_maps_grow_and_outlive_their_process() {
    let dir = Dir::new();
    let mut target = Target::start(&dir.compile_source("jit", "c", JIT, ""));
    let code = target.address(0);
    let text = format!("{code:x} 100 first function\n{:x} 10 torn", code + 0x100);
    let map = Map::write(target.tgid, &text);
    let mut symbolizer = symbolizer();
    let found = frames(&mut symbolizer, target.tgid, code + 0xff);
    assert_eq!(names(&found), ["first function"]);
    assert_eq!(found[0].kind, FrameKind::Jit);
    assert_eq!(found[0].module, None);
    let locations = target.locate(&mut symbolizer, &[code + 0x100]);
    let found = symbolizer.user(&locations);
    assert_eq!(names(&found), nameless(code + 0x100));

    let later = target.locate(&mut symbolizer, &[code + 0x200]);
    let text = format!("{text} no more\n{:#x} 0x10 second\n", code + 0x200);
    fs::write(&map.0, text).unwrap();
    target.end();
    fs::remove_file(&map.0).unwrap();
    sleep(Duration::from_millis(50));
    assert_eq!(names(&symbolizer.user(&later)), ["second"]);
}

/// Java writes its map when it is asked to, and by then all stacks may have been seen.
#[test]
fn a_perf_map_that_comes_after_the_last_stack_is_read() {
    let dir = Dir::new();
    let mut target = Target::start(&dir.compile_source("late", "c", JIT, ""));
    let code = target.address(0);
    let mut symbolizer = symbolizer();
    let [seen, gone] = [0, 0x40].map(|at| target.locate(&mut symbolizer, &[code + at]));
    let text = format!("{code:x} 10 late\n{:x} 10 later\n", code + 0x40);
    let map = Map::write(target.tgid, &text);
    // It is looked for ten times a second.
    sleep(Duration::from_millis(100));
    assert_eq!(names(&symbolizer.user(&seen)), ["late"]);

    assert_eq!(names(&symbolizer.user(&gone)), ["later"]);
    fs::remove_file(&map.0).unwrap();

    // A process that is gone wrote none; another may have its ID by then.
    let late = Target::start(&dir.file("late"));
    let code = late.address(0);
    let unmapped = late.locate(&mut symbolizer, &[code]);
    target.end();
    let tgid = late.tgid;
    drop(late);
    let _map = Map::write(tgid, &format!("{code:x} 10 forged\n"));
    sleep(Duration::from_millis(100));
    assert_eq!(names(&symbolizer.user(&unmapped)), nameless(code));
}

#[test]
fn a_perf_map_that_is_a_fifo_a_link_or_of_somebody_else_is_not_believed() {
    let dir = Dir::new();
    let target = Target::start(&dir.compile_source("trap", "c", JIT, ""));
    let code = target.address(0);
    let map = Map::of(target.tgid);
    let assert_nameless = || {
        let found = target.frames(&mut symbolizer(), 0);
        assert_eq!(names(&found), nameless(code));
    };
    make_fifo(&map.0);
    assert_nameless();
    fs::remove_file(&map.0).unwrap();
    let text = format!("{code:x} 10 forged\n");
    fs::write(dir.file("map"), &text).unwrap();
    symlink(dir.file("map"), &map.0).unwrap();
    assert_nameless();
    fs::remove_file(&map.0).unwrap();
    fs::write(&map.0, &text).unwrap();
    if chown(&map.0, Some(65_534), None).is_err() {
        return skip("chown needs root");
    }
    assert_nameless();
}

#[test]
fn a_perf_map_that_everybody_may_write_or_that_an_earlier_process_left_is_not_believed() {
    let dir = Dir::new();
    let target = Target::start(&dir.compile_source("reused", "c", JIT, ""));
    let code = target.address(0);
    let map = Map::write(target.tgid, &format!("{code:x} 10 kept\n"));
    let named = |expected: &str, disbelieved| {
        let mut symbolizer = symbolizer();
        let found = frames(&mut symbolizer, target.tgid, code);
        assert_eq!(names(&found), [expected]);
        let losses = symbolizer.losses();
        assert_eq!(losses.perf_maps_disbelieved, disbelieved, "{losses:?}");
    };
    named("kept", 0);
    fs::set_permissions(&map.0, fs::Permissions::from_mode(0o666)).unwrap();
    named(&nameless(code)[0], 1);
    fs::set_permissions(&map.0, fs::Permissions::from_mode(0o644)).unwrap();
    named("kept", 0);
    // As old as a file of the process that had this ID before.
    let hour = Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(&map.0).unwrap();
    file.set_modified(SystemTime::now() - hour).unwrap();
    named(&nameless(code)[0], 1);
}
