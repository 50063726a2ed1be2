//! Compiles the kernel side again, for tests.

use std::fs;
use std::path::Path;

use libbpf_cargo::SkeletonBuilder;

/// Every tool's name and object, made for `architecture` as the kernel's sources call it.
pub(crate) fn objects(architecture: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().expect("a directory");
    let mut objects = Vec::new();
    for entry in fs::read_dir(dir).expect("this package").flatten() {
        let source = entry.path();
        let file = source.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = file.strip_suffix(".bpf.c") else {
            continue;
        };
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
        objects.push((name.to_owned(), fs::read(&object).expect("an object")));
    }
    assert!(objects.len() >= 5, "{}", objects.len());
    objects
}
