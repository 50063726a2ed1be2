//! The kernel side's objects: whether a change of the sources is one of the programs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;
use object::{Object, ObjectSection, SectionKind};

use crate::clang;
use crate::sources::sources;
use crate::tree::Tree;

/// What the kernel is given of an object: sections and their bytes. Positions in the sources are not among them.
type Contents = Vec<(String, Vec<u8>)>;

pub(crate) struct Objects {
    clang: PathBuf,
    /// Of tools, unchanged.
    originals: HashMap<String, Contents>,
}

impl Objects {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            clang: clang::find_clang()?,
            originals: HashMap::new(),
        })
    }

    /// Compiles what is not yet known of these tools; the tree must be unchanged.
    pub(crate) fn learn(&mut self, tree: &Tree, tools: &[String]) -> Result<()> {
        for tool in tools {
            if !self.originals.contains_key(tool) {
                let contents = self.compile(tree, tool)?;
                let contents = contents.with_context(|| format!("{tool} does not compile"))?;
                self.originals.insert(tool.clone(), contents);
            }
        }
        Ok(())
    }

    /// Which of the tools have become others; none if one does not compile.
    pub(crate) fn changed(&self, tree: &Tree, tools: &[String]) -> Result<Option<Vec<String>>> {
        let mut changed = Vec::new();
        for tool in tools {
            let Some(contents) = self.compile(tree, tool)? else {
                return Ok(None);
            };
            if contents != self.originals[tool] {
                changed.push(tool.clone());
            }
        }
        Ok(Some(changed))
    }

    fn compile(&self, tree: &Tree, tool: &str) -> Result<Option<Contents>> {
        let dir = tempfile::tempdir()?;
        let object = dir.path().join("object.o");
        let architecture = match std::env::consts::ARCH {
            "aarch64" => "arm64",
            _ => "x86",
        };
        let sources = sources(&tree.path("bpf"))?;
        let source = sources.into_iter().find(|(name, _)| name == tool);
        let (_, source) = source.with_context(|| format!("{tool} has no source"))?;
        let built = SkeletonBuilder::new()
            .source(source)
            .obj(&object)
            .clang(&self.clang)
            .clang_args([
                format!("-D__TARGET_ARCH_{architecture}"),
                format!("-I{}", tree.path("bpf/include").display()),
                "-mcpu=v3".into(),
                "-Wall".into(),
                "-Werror".into(),
            ])
            .build();
        if built.is_err() {
            return Ok(None);
        }
        let bytes = fs::read(&object)?;
        let file = object::File::parse(&*bytes)?;
        let mut contents = Vec::new();
        for section in file.sections() {
            let name = section.name()?.to_owned();
            if is_for_the_kernel(&name, section.kind()) {
                contents.push((name, section.data()?.to_vec()));
            }
        }
        Ok(Some(contents))
    }
}

fn is_for_the_kernel(name: &str, kind: SectionKind) -> bool {
    let is_told = name.contains(".BTF") || name.contains(".debug") || name.contains("_addrsig");
    !is_told && !matches!(kind, SectionKind::Metadata | SectionKind::OtherString)
}

/// The tools whose programs include a file of `bpf`, itself or through others.
pub(crate) fn tools_of(root: &Path, file: &Path) -> Result<Vec<String>> {
    let mut including = Vec::new();
    for (tool, source) in sources(&root.join("bpf"))? {
        if includes(root, source.strip_prefix(root)?, file, &mut Vec::new()) {
            including.push(tool);
        }
    }
    Ok(including)
}

/// True if `source` is `wanted`, or includes it by any way; paths are from the root.
pub(crate) fn includes(root: &Path, source: &Path, wanted: &Path, seen: &mut Vec<PathBuf>) -> bool {
    if source == wanted {
        return true;
    }
    if seen.iter().any(|it| it == source) {
        return false;
    }
    seen.push(source.to_owned());
    let Ok(text) = fs::read_to_string(root.join(source)) else {
        return false;
    };
    let named = text.lines().filter_map(|line| {
        let name = line.strip_prefix("#include \"")?.strip_suffix('"')?;
        let beside = source.with_file_name(name);
        let is_own = root.join(&beside).is_file();
        Some(if is_own {
            beside
        } else {
            Path::new("bpf/include").join(name)
        })
    });
    let named: Vec<PathBuf> = named.collect();
    named.iter().any(|it| includes(root, it, wanted, seen))
}
