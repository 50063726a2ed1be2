//! Compiles the kernel side again, for tests.

use std::fs;
use std::path::Path;

use libbpf_cargo::SkeletonBuilder;

use self::sources::sources;

#[path = "../../sources.rs"]
mod sources;

/// Every tool's name and object, made for `architecture` as the kernel's sources call it.
pub(crate) fn objects(architecture: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().expect("a directory");
    let mut objects = Vec::new();
    for (name, source) in sources(dir).expect("this package") {
        let object = out.path().join(format!("{name}.o"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(&object)
            .clang(env!("BPF_CLANG"))
            .clang_args([
                &format!("-D__TARGET_ARCH_{architecture}"),
                &format!("-I{}", dir.join("include").display()),
                "-mcpu=v3",
                "-Wall",
                "-Werror",
            ])
            .build()
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        objects.push((name, fs::read(&object).expect("an object")));
    }
    assert!(objects.len() >= 5, "{}", objects.len());
    objects
}
