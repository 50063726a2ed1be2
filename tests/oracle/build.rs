//! Compiles `bpf/oracle.bpf.c` into `OUT_DIR/oracle.skel.rs`, against the headers of the tools' programs.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clang::find_clang;
use libbpf_cargo::SkeletonBuilder;

#[path = "../../bpf/clang.rs"]
mod clang;

fn main() -> Result<()> {
    let dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let include = dir.join("../../bpf/include");
    let own = dir.join("bpf");
    let source = own.join("oracle.bpf.c");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={}", own.display());
    println!("cargo:rerun-if-changed={}", include.display());
    SkeletonBuilder::new()
        .source(&source)
        .clang(find_clang()?)
        .clang_args([
            format!("-I{}", include.display()),
            "-mcpu=v3".into(),
            "-Wall".into(),
            "-Werror".into(),
        ])
        // A rustup proxy without the component would fail the build; the output is never read.
        .rustfmt("/nonexistent")
        .reference_obj(true)
        .build_and_generate(out.join("oracle.skel.rs"))
        .with_context(|| format!("compile {}", source.display()))
}
