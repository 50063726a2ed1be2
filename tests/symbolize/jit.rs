//! Code made at run time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use profile::frame::FrameKind;

use crate::target::{Target, compile_source, frames, names, now, symbolizer};

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
    fn write(tgid: u32, text: &str) -> Self {
        let path = Path::new("/tmp").join(format!("perf-{tgid}.map"));
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn perf_maps_grow_and_outlive_their_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target::start(&compile_source(dir.path(), "jit", "c", JIT, &[]));
    let code = target.address(0);
    let text = format!("{code:x} 100 first function\n{:x} 10 torn", code + 0x100);
    let map = Map::write(target.tgid, &text);
    let mut symbolizer = symbolizer();
    let found = frames(&mut symbolizer, target.tgid, code + 0xff);
    assert_eq!(names(&found), ["first function"]);
    assert_eq!(found[0].kind, FrameKind::Jit);
    assert_eq!(found[0].module, None);
    let locations = symbolizer.locate(target.tgid, now(), &[code + 0x100]);
    assert_eq!(
        names(&symbolizer.user(&locations)),
        [format!("[anon]+{:#x}", code + 0x100)]
    );

    let later = symbolizer.locate(target.tgid, now(), &[code + 0x200]);
    fs::write(
        &map.0,
        format!("{text} no more\n{:#x} 0x10 second\n", code + 0x200),
    )
    .unwrap();
    target.end();
    fs::remove_file(&map.0).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(names(&symbolizer.user(&later)), ["second"]);
}

/// Java writes its map when it is asked to, and by then all stacks may have been seen.
#[test]
fn a_perf_map_that_comes_after_the_last_stack_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target::start(&compile_source(dir.path(), "late", "c", JIT, &[]));
    let code = target.address(0);
    let mut symbolizer = symbolizer();
    let [seen, gone] = [0, 0x40].map(|at| symbolizer.locate(target.tgid, now(), &[code + at]));
    let text = format!("{code:x} 10 late\n{:x} 10 later\n", code + 0x40);
    let map = Map::write(target.tgid, &text);
    // It is looked for ten times a second.
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(names(&symbolizer.user(&seen)), ["late"]);

    assert_eq!(names(&symbolizer.user(&gone)), ["later"]);
    fs::remove_file(&map.0).unwrap();

    // A process that is gone wrote none; another may have its ID by then.
    let late = Target::start(&dir.path().join("late"));
    let code = late.address(0);
    let unmapped = symbolizer.locate(late.tgid, now(), &[code]);
    target.end();
    let tgid = late.tgid;
    drop(late);
    let _map = Map::write(tgid, &format!("{code:x} 10 forged\n"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(
        names(&symbolizer.user(&unmapped)),
        [format!("[anon]+{code:#x}")]
    );
}

#[test]
fn a_perf_map_that_is_a_fifo_or_a_link_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile_source(dir.path(), "trap", "c", JIT, &[]);
    let target = Target::start(&program);
    let code = target.address(0);
    let map = Map(Path::new("/tmp").join(format!("perf-{}.map", target.tgid)));
    let path = std::ffi::CString::new(map.0.to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let expected = [format!("[anon]+{code:#x}")];
    assert_eq!(
        names(&frames(&mut symbolizer(), target.tgid, code)),
        expected
    );
    fs::remove_file(&map.0).unwrap();
    let real = dir.path().join("map");
    fs::write(&real, format!("{code:x} 10 linked\n")).unwrap();
    std::os::unix::fs::symlink(&real, &map.0).unwrap();
    assert_eq!(
        names(&frames(&mut symbolizer(), target.tgid, code)),
        expected
    );
}

#[test]
fn a_perf_map_of_somebody_else_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::start(&compile_source(dir.path(), "victim", "c", JIT, &[]));
    let code = target.address(0);
    let map = Map::write(target.tgid, &format!("{code:x} 10 forged\n"));
    if std::os::unix::fs::chown(&map.0, Some(65_534), None).is_err() {
        return crate::target::skip("chown needs root");
    }
    assert_eq!(
        names(&frames(&mut symbolizer(), target.tgid, code)),
        [format!("[anon]+{code:#x}")]
    );
}

#[test]
fn a_perf_map_that_everybody_may_write_or_that_an_earlier_process_left_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::start(&compile_source(dir.path(), "reused", "c", JIT, &[]));
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
    named(&format!("[anon]+{code:#x}"), 1);
    fs::set_permissions(&map.0, fs::Permissions::from_mode(0o644)).unwrap();
    named("kept", 0);
    // As old as a file of the process that had this ID before.
    let hour = std::time::Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(&map.0).unwrap();
    file.set_modified(std::time::SystemTime::now() - hour)
        .unwrap();
    named(&format!("[anon]+{code:#x}"), 1);
}
