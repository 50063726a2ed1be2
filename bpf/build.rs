//! Makes `OUT_DIR/NAME.skel.rs` of every tool's `NAME.bpf.c`, with the packed object in it.
//!
//! An object is compiled, unless `objects` has one that was made of these very sources: so the source archive and packed crates
//! need no clang. `make dist` takes it from `OUT_DIR/objects`.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clang::find_clang;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use libbpf_cargo::SkeletonBuilder;

mod clang;
mod sources;

/// Beside the directories.
const FLAGS: [&str; 3] = [
    // LLVM 20 defaults to v3, whose instructions Linux 5.10 has too; pinned so that it stays so.
    "-mcpu=v3", "-Wall", "-Werror",
];

fn main() -> Result<()> {
    let dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let (include, given) = (dir.join("include"), dir.join("objects"));
    // The tests compile in any case.
    let clang = find_clang().unwrap_or_else(|_| "clang".into());
    println!("cargo:rustc-env=BPF_CLANG={}", clang.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed={}", include.display());
    // A path that does not exist counts as changed.
    if given.exists() {
        println!("cargo:rerun-if-changed={}", given.display());
    }

    let made = out.join("objects");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    fs::create_dir(&made)?;
    for (name, source) in sources::sources(&dir)? {
        let own = source.parent().context("below the package")?;
        println!("cargo:rerun-if-changed={}", own.display());
        let object = out.join(format!("{name}.o"));
        let of_these = format!(
            "{name}.{:08x}.o",
            checksum(&[own, &include, &include.join("machine")])?
        );
        if given.join(&of_these).exists() {
            fs::copy(given.join(&of_these), &object)?;
        } else {
            compile(&dir, &source, &object)
                .with_context(|| format!("compile {}", source.display()))?;
        }
        fs::copy(&object, made.join(of_these))?;
        let skeleton = out.join(format!("{name}.skel.rs"));
        SkeletonBuilder::new()
            .obj(&object)
            // A rustup proxy without the component would fail the build; the output is never read.
            .rustfmt("/nonexistent")
            .reference_obj(true)
            .generate(&skeleton)?;
        pack(&skeleton, &object).with_context(|| format!("pack the object of {name}"))?;
    }
    Ok(())
}

/// A checksum of what an object is made of: the files of some directories, the flags and the architecture.
fn checksum(directories: &[&Path]) -> Result<u32> {
    let mut sum = Crc::new();
    for directory in directories {
        let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
        let mut files = entries.collect::<Result<Vec<PathBuf>>>()?;
        files.retain(|path| path.is_file());
        files.sort();
        for file in files {
            sum.update(file.file_name().context("a file")?.as_encoded_bytes());
            sum.update(&fs::read(&file)?);
        }
    }
    sum.update(FLAGS.concat().as_bytes());
    sum.update(env::var("CARGO_CFG_TARGET_ARCH")?.as_bytes());
    Ok(sum.sum())
}

fn compile(dir: &Path, source: &Path, object: &Path) -> Result<()> {
    let directories = [
        format!("-I{}", dir.join("include").display()),
        // Absolute paths in BTF line info would make builds differ by directory.
        format!("-ffile-prefix-map={}=bpf", dir.display()),
    ];
    SkeletonBuilder::new()
        .source(source)
        .obj(object)
        .clang(find_clang()?)
        .clang_args(directories.iter().map(String::as_str).chain(FLAGS))
        .build()
}

/// Embeds the object as a fifth of its bytes: a program has all objects, and loads one.
fn pack(skeleton: &Path, object: &Path) -> Result<()> {
    let text = fs::read_to_string(skeleton)?;
    let (before, rest) = text
        .split_once("#[unsafe(link_section = \".bpf.objs\")]\nstatic DATA: ")
        .context("no object in the skeleton")?;
    let (_, after) = rest.split_once('\n').context("no end")?;
    let packed = object.with_extension("z");
    let mut encoder = ZlibEncoder::new(File::create(&packed)?, Compression::best());
    encoder.write_all(&fs::read(object)?)?;
    encoder.finish()?;
    let lazily = "static DATA: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(";
    let text = format!("{before}{lazily}|| crate::unpack(include_bytes!({packed:?})));\n{after}");
    Ok(fs::write(skeleton, text)?)
}
