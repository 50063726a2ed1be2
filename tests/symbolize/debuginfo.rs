//! Stripped programs whose symbols are elsewhere.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::target::{
    Dir, INLINED, Target, make_fifo, names, nm, skip, symbolizer, symbolizer_with,
};

#[test]
fn a_debug_link_beside_the_program() {
    for place in [".", ".debug"] {
        let dir = Dir::new();
        let program = dir.split("linked", "-Wl,--build-id=none");
        dir.run("objcopy --add-gnu-debuglink=debug linked");
        fs::create_dir_all(dir.file(place)).unwrap();
        fs::rename(dir.file("debug"), dir.file(place).join("debug")).unwrap();
        let found = Target::start(&program).frames(&mut symbolizer(), 1);
        assert_eq!(names(&found), INLINED, "{place}");
    }
}

#[test]
fn a_debug_link_with_another_checksum_is_not_followed() {
    let dir = Dir::new();
    let program = dir.compile("foreign", "-g -Wl,--build-id=none");
    let hot = nm(&program, "hot");
    dir.split("foreign", "-Wl,--build-id=none");
    dir.run("objcopy --add-gnu-debuglink=debug foreign");
    let mut debug = fs::read(dir.file("debug")).unwrap();
    debug.push(0);
    fs::write(dir.file("debug"), debug).unwrap();
    let found = Target::start(&program).frames(&mut symbolizer(), 0);
    assert_eq!(names(&found), [format!("foreign+{:#x}", hot + 4)]);
}

#[test]
fn a_fifo_for_a_debug_file_blocks_nobody() {
    let dir = Dir::new();
    let program = dir.compile("trap", "-g -Wl,--build-id=none");
    // DWARF and a debug link: the ELF library would follow the link by itself.
    dir.run("objcopy --only-keep-debug trap debug");
    dir.run("objcopy --add-gnu-debuglink=debug trap");
    fs::remove_file(dir.file("debug")).unwrap();
    make_fifo(&dir.file("debug"));
    let found = Target::start(&program).frames(&mut symbolizer(), 0);
    assert_eq!(names(&found), ["hot"]);
}

#[test]
fn a_build_id_directory_without_a_debug_link() {
    let dir = Dir::new();
    let program = dir.split("identified", "-Wl,--build-id=0xabcdef0123");
    let store = dir.file("store/.build-id/ab");
    fs::create_dir_all(&store).unwrap();
    fs::rename(dir.file("debug"), store.join("cdef0123.debug")).unwrap();
    let mut symbolizer = symbolizer_with(dir.file("store"));
    let found = Target::start(&program).frames(&mut symbolizer, 1);
    assert_eq!(names(&found), INLINED);
}

/// Packs a file with xz, and makes it the `.gnu_debugdata` of a stripped program; false without xz.
fn add_mini_debug(dir: &Dir, program: &str, file: &str) -> bool {
    if Command::new("xz").arg("--version").output().is_err() {
        skip("xz is not installed");
        return false;
    }
    dir.run(&format!("xz -0 {file}"));
    dir.run(&format!("strip {program}"));
    dir.run(&format!(
        "objcopy --add-section .gnu_debugdata={file}.xz {program}"
    ));
    true
}

#[test]
fn mini_debug_info() {
    let dir = Dir::new();
    let program = dir.compile("mini", "");
    fs::write(dir.file("keep"), "hot\n").unwrap();
    dir.run("objcopy -S --keep-symbols=keep mini small");
    if !add_mini_debug(&dir, "mini", "small") {
        return;
    }
    let mut symbolizer = symbolizer();
    let found = Target::start(&program).frames(&mut symbolizer, 0);
    assert_eq!(names(&found), ["hot"]);
    assert_eq!(symbolizer.losses().modules_refused, 0);
}

#[test]
fn mini_debug_info_that_unpacks_to_gigabytes_is_refused() {
    let dir = Dir::new();
    let program = dir.compile("bomb", "");
    let zeros = fs::File::create(dir.file("zeros")).unwrap();
    zeros.set_len(300 << 20).unwrap();
    if !add_mini_debug(&dir, "bomb", "zeros") {
        return;
    }
    let mut symbolizer = symbolizer();
    let found = Target::start(&program).frames(&mut symbolizer, 0);
    assert!(found[0].name.starts_with("bomb+0x"), "{found:?}");
    assert_eq!(symbolizer.losses().modules_refused, 1);
}

/// Whoever maps a library first decides in which root its debug file is looked for, and anybody can arrange a root.
#[test]
fn a_debug_file_of_somebody_else_is_not_believed() {
    let dir = Dir::new();
    let flags = "-Wl,--build-id=0xabcdef0124";
    let hot = nm(&dir.compile("forged", &format!("-g {flags}")), "hot");
    let program = dir.split("forged", flags);
    let store = dir.file("store/.build-id/ab");
    fs::create_dir_all(&store).unwrap();
    let debug = store.join("cdef0124.debug");
    fs::rename(dir.file("debug"), &debug).unwrap();
    let target = Target::start(&program);
    let named = || {
        let mut symbolizer = symbolizer_with(dir.file("store"));
        names(&target.frames(&mut symbolizer, 0)).join(" ")
    };
    assert_eq!(named(), "hot");
    let nameless = format!("forged+{:#x}", hot + 4);
    fs::set_permissions(&debug, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(named(), nameless, "everybody may have written it");
    fs::set_permissions(&debug, fs::Permissions::from_mode(0o644)).unwrap();
    if chown(&debug, Some(65_534), None).is_err() {
        return skip("chown needs root");
    }
    assert_eq!(named(), nameless);
    // The binary's own owner may say what is in it.
    chown(&program, Some(65_534), None).unwrap();
    assert_eq!(named(), "hot");
}
