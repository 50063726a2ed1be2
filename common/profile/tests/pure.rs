//! The crate builds anywhere: nothing that it depends on is bound to Linux, to C libraries or to BPF.

use std::process::Command;

/// What crates of that kind are called, or begin with.
const IMPURE: [&str; 12] = [
    "libbpf",
    "libc",
    "nix",
    "rustix",
    "linux-raw-sys",
    "procfs",
    "perf-event",
    "blazesym",
    "cc",
    "bindgen",
    "pkg-config",
    "usekit-",
];

#[test]
fn no_dependency_knows_linux_or_c() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "-p",
            "usekit-profile",
            "-e",
            "normal,build",
        ])
        .args(["--prefix", "none", "--format", "{p}", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    let names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(
        names.contains(&"serde_json") && names.contains(&"flate2"),
        "{names:?}"
    );
    for name in names.into_iter().filter(|name| *name != "usekit-profile") {
        let impure = IMPURE
            .iter()
            .find(|impure| name == **impure || name.starts_with(*impure) && impure.len() > 4);
        assert_eq!(impure, None, "{name} is not pure");
    }
}
