//! Stripped programs whose symbols are elsewhere.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use symbols::{Options, Symbolizer};

use crate::target::{Target, compile, frames, names, nm, skip, symbolizer, tool};

/// Splits `dir/name` into a stripped program and `dir/debug`.
fn split(dir: &Path, name: &str) {
    assert!(tool(dir, "objcopy", &["--only-keep-debug", name, "debug"]));
    assert!(tool(dir, "strip", &[name]));
}

#[test]
fn a_debug_link_beside_the_program() {
    for place in [".", ".debug"] {
        let dir = tempfile::tempdir().unwrap();
        let program = compile(dir.path(), "linked", &["-g", "-Wl,--build-id=none"]);
        split(dir.path(), "linked");
        assert!(tool(
            dir.path(),
            "objcopy",
            &["--add-gnu-debuglink=debug", "linked"]
        ));
        let moved = dir.path().join(place).join("debug");
        fs::create_dir_all(moved.parent().unwrap()).unwrap();
        fs::rename(dir.path().join("debug"), moved).unwrap();
        let target = Target::start(&program);
        let found = frames(&mut symbolizer(), target.tgid, target.address(1));
        assert_eq!(names(&found), ["chain", "middle", "inner"], "{place}");
    }
}

#[test]
fn a_debug_link_with_another_checksum_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "foreign", &["-g", "-Wl,--build-id=none"]);
    let hot = nm(&program, "hot");
    split(dir.path(), "foreign");
    assert!(tool(
        dir.path(),
        "objcopy",
        &["--add-gnu-debuglink=debug", "foreign"]
    ));
    let mut debug = fs::read(dir.path().join("debug")).unwrap();
    debug.push(0);
    fs::write(dir.path().join("debug"), debug).unwrap();
    let target = Target::start(&program);
    let found = frames(&mut symbolizer(), target.tgid, target.address(0));
    assert_eq!(names(&found), [format!("foreign+{:#x}", hot + 4)]);
}

#[test]
fn a_fifo_for_a_debug_file_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "trap", &["-g", "-Wl,--build-id=none"]);
    // DWARF and a debug link: the ELF library would follow the link by itself.
    assert!(tool(
        dir.path(),
        "objcopy",
        &["--only-keep-debug", "trap", "debug"]
    ));
    assert!(tool(
        dir.path(),
        "objcopy",
        &["--add-gnu-debuglink=debug", "trap"]
    ));
    fs::remove_file(dir.path().join("debug")).unwrap();
    let path = CString::new(dir.path().join("debug").to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let target = Target::start(&program);
    assert_eq!(
        names(&frames(&mut symbolizer(), target.tgid, target.address(0))),
        ["hot"]
    );
}

#[test]
fn a_build_id_directory_without_a_debug_link() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(
        dir.path(),
        "identified",
        &["-g", "-Wl,--build-id=0xabcdef0123"],
    );
    split(dir.path(), "identified");
    let store = dir.path().join("store/.build-id/ab");
    fs::create_dir_all(&store).unwrap();
    fs::rename(dir.path().join("debug"), store.join("cdef0123.debug")).unwrap();
    let target = Target::start(&program);
    let options = Options {
        debug_dirs: vec![dir.path().join("store")],
        ..Options::default()
    };
    let mut symbolizer = Symbolizer::new(options).unwrap();
    let found = frames(&mut symbolizer, target.tgid, target.address(1));
    assert_eq!(names(&found), ["chain", "middle", "inner"]);
}

#[test]
fn mini_debug_info() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "mini", &[]);
    fs::write(dir.path().join("keep"), "hot\n").unwrap();
    let steps: [(&str, &[&str]); 4] = [
        ("objcopy", &["-S", "--keep-symbols=keep", "mini", "small"]),
        ("xz", &["small"]),
        ("strip", &["mini"]),
        (
            "objcopy",
            &["--add-section", ".gnu_debugdata=small.xz", "mini"],
        ),
    ];
    if Command::new("xz").arg("--version").output().is_err() {
        return skip("xz is not installed");
    }
    for (command, args) in steps {
        assert!(tool(dir.path(), command, args), "{command} {args:?}");
    }
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    assert_eq!(
        names(&frames(&mut symbolizer, target.tgid, target.address(0))),
        ["hot"]
    );
    assert_eq!(symbolizer.losses().modules_refused, 0);
}

#[test]
fn mini_debug_info_that_unpacks_to_gigabytes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "bomb", &[]);
    if Command::new("xz").arg("--version").output().is_err() {
        return skip("xz is not installed");
    }
    assert!(tool(
        dir.path(),
        "sh",
        &["-c", "head -c 300M /dev/zero | xz -0 > zeros.xz"]
    ));
    assert!(tool(dir.path(), "strip", &["bomb"]));
    assert!(tool(
        dir.path(),
        "objcopy",
        &["--add-section", ".gnu_debugdata=zeros.xz", "bomb"]
    ));
    let target = Target::start(&program);
    let mut symbolizer = symbolizer();
    assert!(
        frames(&mut symbolizer, target.tgid, target.address(0))[0]
            .name
            .starts_with("bomb+0x")
    );
    assert_eq!(symbolizer.losses().modules_refused, 1);
}

/// Whoever maps a library first decides in which root its debug file is looked for, and anybody can arrange a root.
#[test]
fn a_debug_file_of_somebody_else_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "forged", &["-g", "-Wl,--build-id=0xabcdef0124"]);
    let hot = nm(&program, "hot");
    split(dir.path(), "forged");
    let store = dir.path().join("store/.build-id/ab");
    fs::create_dir_all(&store).unwrap();
    let debug = store.join("cdef0124.debug");
    fs::rename(dir.path().join("debug"), &debug).unwrap();
    let target = Target::start(&program);
    let options = || Options {
        debug_dirs: vec![dir.path().join("store")],
        ..Options::default()
    };
    let named = || {
        let mut symbolizer = Symbolizer::new(options()).unwrap();
        names(&frames(&mut symbolizer, target.tgid, target.address(0))).join(" ")
    };
    assert_eq!(named(), "hot");
    let nameless = format!("forged+{:#x}", hot + 4);
    fs::set_permissions(&debug, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(named(), nameless, "everybody may have written it");
    fs::set_permissions(&debug, fs::Permissions::from_mode(0o644)).unwrap();
    if std::os::unix::fs::chown(&debug, Some(65_534), None).is_err() {
        return skip("chown needs root");
    }
    assert_eq!(named(), nameless);
    // The binary's own owner may say what is in it.
    std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
    assert_eq!(named(), "hot");
}
