//! The archive of sources where there is no clang: programs are built and at work; its objects are what clang makes; its crates can
//! be packed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::userland::{Userland, run, sources, unpack};
use crate::waits_of;

/// Packages that README.md names.
const PACKAGES: [&str; 5] = ["gcc", "libc6-dev", "libelf-dev", "make", "pkg-config"];

/// Directory of whoever built the tests, whoever runs them.
fn cargo_home() -> PathBuf {
    option_env!("CARGO_HOME").map_or_else(|| Path::new(env!("HOME")).join(".cargo"), PathBuf::from)
}

/// The archive in a directory, as somebody unpacks it.
fn unpacked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    unpack(&sources(), &dir.path().join("usekit"));
    dir
}

/// cargo in such a directory. What it has built, here and in other runs, is kept.
fn cargo(tree: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("dist-sources");
    command.args(args).args(["--locked", "--offline"]);
    command.env("CARGO_TARGET_DIR", target);
    command.env("CARGO_HOME", cargo_home()).current_dir(tree);
    command
}

fn objects(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("objects").flatten();
    let named = entries.map(|entry| {
        let object = fs::read(entry.path()).expect("an object");
        (entry.file_name().to_string_lossy().into_owned(), object)
    });
    named.collect()
}

#[test]
fn the_objects_are_what_clang_makes() {
    let dir = unpacked();
    let tree = dir.path().join("usekit");
    let given = dir.path().join("objects");
    fs::rename(tree.join("bpf/objects"), &given).expect("objects");
    let args = ["check", "-p", "usekit-bpf", "--message-format", "json"];
    let output = run(&mut cargo(&tree, &args));
    let text = String::from_utf8(output.stdout).expect("text");
    let messages = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut made = messages.filter_map(|message: Value| {
        let package = message["package_id"].as_str()?;
        let out = message["out_dir"].as_str()?;
        package
            .contains("usekit-bpf@")
            .then(|| Path::new(out).join("objects"))
    });
    let made = objects(&made.next_back().expect("a build script"));
    let given = objects(&given);
    assert!(given.len() >= 7, "{:?}", given.keys());
    assert!(
        made.keys().eq(given.keys()),
        "{:?}, not {:?}",
        given.keys(),
        made.keys()
    );
    for (name, object) in given {
        assert!(object == made[&name], "{name}");
    }
}

/// All can be packed; the one that has the objects is also built, of its package.
#[test]
fn the_crates_are_packed_and_need_no_clang() {
    let dir = unpacked();
    let tree = dir.path().join("usekit");
    run(&mut cargo(&tree, &["package", "--no-verify"]));
    let mut one = cargo(&tree, &["package", "-p", "usekit-bpf"]);
    run(one.env("CLANG", "/nonexistent"));
}

/// Objects of other sources are of no use.
#[test]
fn changed_sources_ask_for_clang() {
    let dir = unpacked();
    let tree = dir.path().join("usekit");
    let source = tree.join("bpf/runqlat/runqlat.bpf.c");
    let text = fs::read_to_string(&source).expect("text");
    fs::write(&source, text + "\n").expect("our own file");
    let mut command = cargo(&tree, &["check", "-p", "usekit-bpf"]);
    let output = command
        .env("CLANG", "/nonexistent")
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("runqlat.bpf.c") && said.contains("/nonexistent"),
        "{said}"
    );
}

/// The command of README.md, but without the optimiser, which has nothing to do with it.
#[test]
fn cargo_installs_where_there_is_no_clang() {
    let mut userland = Userland::debian("bookworm", &PACKAGES);
    unpack(&sources(), &userland.path("sources"));
    let toolchain = Path::new(env!("CARGO")).ancestors().nth(2);
    userland.lend(toolchain.expect("bin/cargo").to_owned(), "/toolchain");
    userland.lend(cargo_home(), "/cargo");
    let programs = fs::read_dir(userland.path("/usr/bin")).expect("programs");
    let mut names = programs.flatten().map(|entry| entry.file_name());
    assert!(!names.any(|name| name.to_string_lossy().contains("clang")));

    let install = "cd /sources && cargo install --offline --locked --root /usr/local --path tools";
    let args = [
        "PATH=/toolchain/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "CARGO_HOME=/cargo",
        "CARGO_TARGET_DIR=/built",
        "CARGO_PROFILE_RELEASE_OPT_LEVEL=0",
        "CARGO_PROFILE_RELEASE_DEBUG=0",
        "sh",
        "-c",
        install,
    ];
    run(&mut userland.command("env", &args));
    run(&mut userland.command("/usr/local/bin/usekit", &[]));
    let output = run(&mut userland.command("/usr/local/bin/runqlat", &["-j", "1", "1"]));
    let stdout = String::from_utf8(output.stdout).expect("text");
    let report = stdout.lines().find(|line| line.contains("\"count\":"));
    let report: Value = serde_json::from_str(report.expect("a report")).expect("JSON");
    assert!(waits_of(&report) > 0, "{report}");
}
