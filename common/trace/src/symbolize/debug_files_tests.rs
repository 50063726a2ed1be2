//! Stripped programs whose symbols are elsewhere.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::beneath;
use super::elf::ElfNames;
use super::module::Module;
use super::test_programs::{TOOLS, compile, extent, have, module, run};

#[track_caller]
fn assert_named(module: &Module, root: &Path, address: u64, expected: &str) {
    let mut elf = ElfNames::with_debug_root(true, root);
    let frames = elf.names(0, module, address);
    assert_eq!(&*frames[0].name, expected);
}

#[test]
fn debug_link_needs_the_right_checksum_and_stays_in_the_root() {
    if !have(&TOOLS) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("opt");
    fs::create_dir_all(&home).unwrap();
    let program = compile(&home, "-O2 -g -Wl,--build-id=none");
    let hidden = extent(&program, "visible").0;
    run(&home, "objcopy --only-keep-debug program program.debug");
    run(&home, "strip program");
    run(&home, "objcopy --add-gnu-debuglink=program.debug program");
    let named = |expected| {
        let mut module = module(&program, beneath::root(root.path()).ok());
        module.path = "/opt/program".into();
        let empty = tempfile::tempdir().unwrap();
        assert_named(&module, empty.path(), hidden, expected);
    };
    let unknown = format!("program+{hidden:#x}");
    named("visible");
    let debug = home.join("program.debug");
    for place in ["opt/.debug", "usr/lib/debug/opt"] {
        let place = root.path().join(place);
        fs::create_dir_all(&place).unwrap();
        fs::rename(&debug, place.join("program.debug")).unwrap();
        named("visible");
        fs::rename(place.join("program.debug"), &debug).unwrap();
    }
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("program.debug");
    fs::copy(&debug, &target).unwrap();
    fs::remove_file(&debug).unwrap();
    std::os::unix::fs::symlink(&target, &debug).unwrap();
    named(&unknown);
    fs::remove_file(&debug).unwrap();
    let mut wrong = fs::read(&target).unwrap();
    wrong.push(0);
    fs::write(&debug, wrong).unwrap();
    named(&unknown);
    fs::remove_file(&debug).unwrap();
    let fifo = std::ffi::CString::new(debug.as_os_str().as_bytes()).unwrap();
    // SAFETY: `fifo` is a C string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    named(&unknown);
}

#[test]
fn build_id_directory_needs_the_same_id() {
    if !have(&TOOLS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "-O2 -g -Wl,--build-id=sha1");
    let visible = extent(&program, "visible").0;
    let id = module(&program, None).build_id;
    assert_eq!(id.len(), 20);
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("usr/lib/debug/.build-id").join(&hex[..2]);
    fs::create_dir_all(&place).unwrap();
    let debug = place.join(format!("{}.debug", &hex[2..]));
    run(
        directory.path(),
        "objcopy --only-keep-debug program program.debug",
    );
    run(directory.path(), "strip program");
    fs::copy(directory.path().join("program.debug"), &debug).unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let open = |path: &Path| -> Option<File> { beneath::root(path).ok() };
    let own = module(&program, None);
    assert_named(&own, root.path(), visible, "visible");
    let theirs = module(&program, open(root.path()));
    assert_named(&theirs, nothing.path(), visible, "visible");
    let mut other = fs::read(&debug).unwrap();
    let at = other.windows(20).position(|window| window == id).unwrap();
    other[at] ^= 1;
    fs::write(&debug, other).unwrap();
    let unknown = format!("program+{visible:#x}");
    assert_named(&own, root.path(), visible, &unknown);
}

#[test]
fn mini_debug_information_is_read() {
    if !have(&TOOLS) || !have(&["xz"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "-O2");
    let (hidden, _) = extent(&program, "hidden");
    let at = directory.path();
    run(at, "objcopy -S --keep-symbol=hidden program mini");
    run(at, "xz -k mini");
    run(at, "strip program");
    run(at, "objcopy --add-section .gnu_debugdata=mini.xz program");
    let module = module(&program, None);
    assert_named(&module, at, hidden, "hidden");
}
