//! The kernel side compiles for arm64 too. It is not run: there is no such machine here, and no Rust for one.

use std::fs;
use std::path::Path;

use libbpf_cargo::SkeletonBuilder;

/// `EM_BPF` of the ELF header, little-endian.
const MACHINE: [u8; 2] = 247u16.to_le_bytes();

#[test]
fn the_kernel_side_compiles_for_arm64() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().expect("a directory");
    let mut compiled = 0;
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
                "-D__TARGET_ARCH_arm64",
                &format!("-I{}", dir.join("include").display()),
                "-mcpu=v3",
                "-Wall",
                "-Werror",
            ])
            .build()
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let bytes = fs::read(&object).expect("an object");
        assert_eq!(bytes[18..20], MACHINE, "{name}");
        compiled += 1;
    }
    assert!(compiled >= 5, "{compiled}");
}
