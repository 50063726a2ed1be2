//! Packages of `make cross` for arm64: the same as for this machine, but for the program.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::packages::everything;
use crate::userland::{deb, rpm, run, staged, staged_for, unpack};
use crate::{MOST_BYTES, tools};

const OTHER: &str = "aarch64";
/// The differences: the program, and the versions of what is linked into it.
const DIFFERING: [&str; 2] = ["bin/usekit", "share/doc/usekit/LINKED"];

fn readelf(option: &str, program: &Path) -> String {
    let output = run(Command::new("readelf")
        .args([option, "--wide"])
        .arg(program));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).expect("text")
}

#[test]
#[ignore = "`make cross` builds for arm64, and runs this"]
fn the_archive_for_arm64_has_what_this_machines_has() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    unpack(&staged(), &ours);
    unpack(&staged_for(OTHER), &theirs);
    let files = everything(&theirs);
    assert_eq!(files, everything(&ours));
    for file in &files {
        let path = theirs.join(file);
        if path.is_file() && !DIFFERING.iter().any(|other| file == Path::new(other)) {
            let same =
                fs::read(&path).expect("a file") == fs::read(ours.join(file)).expect("a file");
            // The tools are links to the program.
            assert!(same || file.starts_with("bin"), "{}", file.display());
        }
    }
}

#[test]
#[ignore = "`make cross` builds for arm64, and runs this"]
fn every_program_for_arm64_is_static_and_for_arm64() {
    let root = staged_for(OTHER);
    let tools = tools(&root);
    assert!(tools.len() >= 7, "{tools:?}");
    for tool in tools.iter().map(String::as_str).chain(["usekit"]) {
        let program = root.join("bin").join(tool);
        let header = readelf("--file-header", &program);
        let is_aarch64 = |line: &str| line.contains("Machine:") && line.ends_with(" AArch64");
        assert!(header.lines().any(is_aarch64), "{tool}: {header}");
        let segments = readelf("--segments", &program);
        assert!(segments.contains("LOAD"), "{tool}: {segments}");
        assert!(!segments.contains("INTERP"), "{tool}: {segments}");
        let dynamic = readelf("--dynamic", &program);
        assert!(!dynamic.contains("NEEDED"), "{tool}: {dynamic}");
    }
    let program = fs::read(root.join("bin/usekit")).expect("a program");
    assert!(program.len() <= MOST_BYTES, "{} bytes", program.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let path = root.expect("tests/workloads").as_os_str().as_bytes();
    let found = program.windows(path.len()).any(|bytes| bytes == path);
    assert!(!found, "the builder's directories");
}

#[test]
#[ignore = "`make cross` builds for arm64, and runs this"]
fn the_packages_for_arm64_say_so_and_have_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = fs::read(staged_for(OTHER).join("bin/usekit")).expect("a program");

    let field = said(
        Command::new("dpkg-deb")
            .arg("--field")
            .arg(deb(OTHER))
            .arg("Architecture"),
    );
    assert_eq!(field, "arm64\n");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(deb(OTHER))
        .arg(dir.path()));
    let packed = fs::read(dir.path().join("usr/bin/usekit")).expect("a program");
    assert!(packed == program, "another program in the .deb");

    let field = said(
        Command::new("rpm")
            .args(["-qp", "--queryformat", "%{ARCH} %{OS}"])
            .arg(rpm(OTHER)),
    );
    assert_eq!(field, "aarch64 linux");
    let format = "[%{FILENAMES} %{FILEDIGESTS}\n]";
    let digests = said(
        Command::new("rpm")
            .args(["-qp", "--queryformat", format])
            .arg(rpm(OTHER)),
    );
    let digest = said(Command::new("sha256sum").arg(staged_for(OTHER).join("bin/usekit")));
    let digest = digest.split_whitespace().next().expect("a sum");
    let line = format!("/usr/bin/usekit {digest}");
    assert!(
        digests.lines().any(|other| other == line),
        "{line}: {digests}"
    );
}
