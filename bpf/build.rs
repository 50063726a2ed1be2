//! Compiles every tool's `NAME.bpf.c` into `OUT_DIR/NAME.skel.rs`.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clang::find_clang;
use libbpf_cargo::SkeletonBuilder;

mod clang;
mod sources;

fn main() -> Result<()> {
    let dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let clang = find_clang()?;
    println!("cargo:rerun-if-env-changed=CLANG");
    // For the tests.
    println!("cargo:rustc-env=BPF_CLANG={}", clang.display());
    println!("cargo:rerun-if-changed={}", dir.join("include").display());

    for (name, source) in sources::sources(&dir)? {
        let own = source.parent().context("below the package")?;
        println!("cargo:rerun-if-changed={}", own.display());
        SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args([
                format!("-I{}", dir.join("include").display()),
                // Absolute paths in BTF line info would make builds differ by directory.
                format!("-ffile-prefix-map={}=bpf", dir.display()),
                // LLVM 20 defaults to v3, whose instructions Linux 5.10 has too; pinned so that it stays so.
                "-mcpu=v3".into(),
                "-Wall".into(),
                "-Werror".into(),
            ])
            // A rustup proxy without the component would fail the build; the output is never read.
            .rustfmt("/nonexistent")
            .reference_obj(true)
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .with_context(|| format!("compile {}", source.display()))?;
    }
    Ok(())
}
