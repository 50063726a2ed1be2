//! Compiles every tool's `NAME.bpf.c` into `OUT_DIR/NAME.skel.rs`, and packs the object that it embeds.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clang::find_clang;
use flate2::Compression;
use flate2::write::ZlibEncoder;
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
        let skeleton = out.join(format!("{name}.skel.rs"));
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
            .build_and_generate(&skeleton)
            .with_context(|| format!("compile {}", source.display()))?;
        pack(&skeleton).with_context(|| format!("pack the object of {}", source.display()))?;
    }
    Ok(())
}

/// Embeds the object as a fifth of its bytes: a program has all objects, and loads one.
fn pack(skeleton: &Path) -> Result<()> {
    let text = fs::read_to_string(skeleton)?;
    let (before, rest) = text
        .split_once("#[unsafe(link_section = \".bpf.objs\")]\nstatic DATA: ")
        .context("no object in the skeleton")?;
    let (embedded, after) = rest.split_once('\n').context("no end")?;
    let object = embedded.split('"').nth(1).context("no path")?;
    let packed = Path::new(object).with_extension("z");
    let mut encoder = ZlibEncoder::new(File::create(&packed)?, Compression::best());
    encoder.write_all(&fs::read(object)?)?;
    encoder.finish()?;
    let lazily = "static DATA: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(";
    let text = format!("{before}{lazily}|| crate::unpack(include_bytes!({packed:?})));\n{after}");
    Ok(fs::write(skeleton, text)?)
}
