//! The packages where nothing else is: installed, at work, removed; and the same bytes whoever packs them.

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::userland::{self, Userland, deb, run, sources, staged};
use crate::{tools, waits_of};

/// Everything below a directory, by its path there.
pub(crate) fn everything(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let data = fs::symlink_metadata(&path).expect("its entry");
        if data.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory").flatten();
            left.extend(entries.map(|entry| entry.path()));
        }
        let inside = path.strip_prefix(root).expect("below the root");
        found.insert(inside.to_owned());
    }
    found
}

/// All of the tools start, and one traces.
fn is_at_work(userland: &Userland) {
    for tool in tools(&staged()) {
        let output = run(&mut userland.command(&tool, &["--version"]));
        let expected = format!("{tool} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        let section = if tool == "flame" { 1 } else { 8 };
        for file in [
            format!("/usr/share/man/man{section}/{tool}.{section}.gz"),
            format!("/usr/share/doc/usekit/examples/{tool}_example.txt"),
            format!("/usr/share/bash-completion/completions/{tool}"),
            format!("/usr/share/fish/vendor_completions.d/{tool}.fish"),
        ] {
            assert!(userland.path(&file).is_file(), "{file}");
        }
    }
    run(&mut userland.command("usekit", &[]));
    let output = run(&mut userland.command("runqlat", &["-j", "1", "1"]));
    let stdout = String::from_utf8(output.stdout).expect("text");
    let report = stdout.lines().find(|line| line.contains("\"count\":"));
    let report: Value = serde_json::from_str(report.expect("a report")).expect("JSON");
    assert!(waits_of(&report) > 0, "{report}");
}

/// By apt, and away again: what is different then is the package manager's own.
fn apt_installs_and_removes(suite: &str) {
    let userland = Userland::debian(suite, &[]);
    userland.give(&deb(ARCH), "/usekit.deb");
    let before = everything(&userland.path("/"));
    let apt = |args: &[&str]| run(&mut userland.command("apt-get", &[&["-y"], args].concat()));

    apt(&["install", "/usekit.deb"]);
    let verified = run(&mut userland.command("dpkg", &["--verify", "usekit"]));
    assert_eq!(String::from_utf8_lossy(&verified.stdout), "");
    for file in [
        "/usr/share/doc/usekit/copyright",
        "/usr/share/doc/usekit/changelog.Debian.gz",
        "/usr/share/zsh/vendor-completions/_profile",
    ] {
        assert!(userland.path(file).is_file(), "{file}");
    }
    is_at_work(&userland);

    apt(&["purge", "usekit"]);
    let after = everything(&userland.path("/"));
    let is_apts = |path: &&PathBuf| {
        let places = ["var/cache", "var/lib/apt", "var/lib/dpkg", "var/log"];
        places.iter().any(|place| path.starts_with(place))
    };
    let differs: Vec<_> = before.symmetric_difference(&after).collect();
    let differs: Vec<_> = differs.into_iter().filter(|path| !is_apts(path)).collect();
    assert!(differs.is_empty(), "{suite}: {differs:?}");
}

#[test]
fn debian_12_installs_and_removes_the_package() {
    apt_installs_and_removes("bookworm");
}

#[test]
fn debian_13_installs_and_removes_the_package() {
    apt_installs_and_removes("trixie");
}

/// Into a root that has nothing: what remains are directories that any distribution has.
#[test]
fn rpm_installs_and_removes_the_package() {
    let userland = Userland::new();
    let before = everything(&userland.path("/"));
    let rpm = |args: &[&str]| {
        let mut command = Command::new("rpm");
        command.arg("--root").arg(userland.path("/"));
        // A path in that root.
        command.args(["--dbpath", "/rpm"]).args(args);
        run(&mut command)
    };

    let package = userland::rpm(ARCH);
    rpm(&["--install", package.to_str().expect("UTF-8")]);
    let verified = rpm(&["--verify", "usekit"]);
    assert_eq!(String::from_utf8_lossy(&verified.stdout), "");
    let completion = "/usr/share/zsh/site-functions/_profile";
    assert!(userland.path(completion).is_file(), "{completion}");
    is_at_work(&userland);

    rpm(&["--erase", "usekit"]);
    let mut left = everything(&userland.path("/"));
    left.retain(|path| !before.contains(path) && !path.starts_with("rpm"));
    let common = [
        "usr",
        "usr/bin",
        "usr/share",
        "usr/share/doc",
        "usr/share/man",
        "usr/share/man/man1",
        "usr/share/man/man7",
        "usr/share/man/man8",
    ];
    assert_eq!(left, common.map(PathBuf::from).into());
}

/// The same trees, copied by somebody with another umask, at another time.
#[test]
fn packing_again_gives_the_same_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut packed = Vec::new();
    for (umask, date) in [("022", "2026-01-02"), ("077", "2001-02-03")] {
        let place = dir.path().join(umask);
        let script = format!(
            "umask {umask} && mkdir \"$1\" && cp -R \"$0\" \"$2\" \"$1\" && find \"$1\" -exec touch -hd {date} {{}} + && \
             exec \"$3\" \"$1/${{0##*/}}\" \"$1/${{2##*/}}\" {} \"$1/out\"",
            env!("CARGO_PKG_VERSION")
        );
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(staged());
        command.arg(&place).arg(sources());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../setup/packages"));
        run(command.env("SOURCE_DATE_EPOCH", "1790000000"));
        let files = everything(&place.join("out"));
        let files = files
            .into_iter()
            .filter(|file| file.components().count() == 1);
        let contents = files.map(|file| {
            let bytes = fs::read(place.join("out").join(&file)).expect("a file");
            (file, bytes)
        });
        packed.push(contents.collect::<Vec<_>>());
    }
    assert_eq!(
        packed[0].len(),
        8,
        "two archives, two packages, and their checksums"
    );
    for ((file, first), (_, second)) in packed[0].iter().zip(&packed[1]) {
        assert!(first == second, "{}", file.display());
    }
}
