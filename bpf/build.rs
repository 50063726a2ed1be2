//! Compiles every `*.bpf.c` beside this file into `OUT_DIR/NAME.skel.rs`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use libbpf_cargo::SkeletonBuilder;

/// Newest first; Debian installs `clang-NN` without a plain `clang` beside it.
const CLANG_VERSIONS: std::ops::RangeInclusive<u32> = 14..=24;

fn main() -> Result<()> {
    let dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let clang = find_clang()?;
    println!("cargo:rerun-if-env-changed=CLANG");
    // For the tests.
    println!("cargo:rustc-env=BPF_CLANG={}", clang.display());
    println!("cargo:rerun-if-changed={}", dir.join("include").display());

    for entry in dir.read_dir()? {
        let source = entry?.path();
        let Some(name) = tool_name(&source) else {
            continue;
        };
        println!("cargo:rerun-if-changed={}", source.display());
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

fn tool_name(source: &Path) -> Option<&str> {
    source.file_name()?.to_str()?.strip_suffix(".bpf.c")
}

/// `$CLANG`, else `clang`, else the newest `clang-NN`.
fn find_clang() -> Result<PathBuf> {
    if let Some(clang) = env::var_os("CLANG") {
        return Ok(clang.into());
    }
    let versioned = CLANG_VERSIONS
        .rev()
        .map(|version| format!("clang-{version}"));
    for name in std::iter::once("clang".to_owned()).chain(versioned) {
        if Command::new(&name)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
        {
            return Ok(name.into());
        }
    }
    bail!("no clang found: install it (Debian: apt-get install clang) or set CLANG to its path")
}
