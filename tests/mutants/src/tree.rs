//! A copy of the work tree, in which files are broken and mended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Makes `root` a copy of `of`, committed or not. What is the same keeps its time, so that builds go on from the last run's.
    pub(crate) fn copy(of: &Path, root: PathBuf) -> Result<Self> {
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(of)
            .output()
            .context("list files: git")?;
        ensure!(listed.status.success(), "git ls-files: {}", listed.status);
        let names = String::from_utf8(listed.stdout)?;
        let names: Vec<&str> = names.split_terminator('\0').collect();
        for name in &names {
            let (from, to) = (of.join(name), root.join(name));
            let Ok(wanted) = fs::read(&from) else {
                // Deleted, and not yet committed.
                let _ = fs::remove_file(&to);
                continue;
            };
            if fs::read(&to).ok().as_ref() == Some(&wanted) {
                continue;
            }
            fs::create_dir_all(to.parent().context("a directory")?)?;
            fs::copy(&from, &to).with_context(|| format!("copy {name}"))?;
            File::open(&to)?.set_modified(SystemTime::now())?;
        }
        let tree = Self { root };
        tree.forget_others(&names)?;
        Ok(tree)
    }

    /// A BPF program that is no more would be compiled by every build.
    fn forget_others(&self, names: &[&str]) -> Result<()> {
        for directory in ["bpf", "bpf/tests"] {
            for entry in fs::read_dir(self.path(directory))?.flatten() {
                let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
                if entry.file_type()?.is_file() && !names.contains(&name.as_str()) {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.root.join(file)
    }

    /// Until the guard is dropped, the file has this text.
    pub(crate) fn change(&self, file: &Path, text: &str) -> Result<Changed> {
        let path = self.path(file);
        let original = fs::read(&path)?;
        let modified = fs::metadata(&path)?.modified()?;
        let changed = Changed {
            path,
            original,
            modified: Some(modified),
        };
        fs::write(&changed.path, text)?;
        Ok(changed)
    }
}

pub(crate) struct Changed {
    path: PathBuf,
    original: Vec<u8>,
    /// Before; none if a build has seen the change: the next one must see that it is gone.
    modified: Option<SystemTime>,
}

impl Changed {
    pub(crate) fn is_built(&mut self) {
        self.modified = None;
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let restored = fs::write(&self.path, &self.original);
        restored.expect("a file that could be written before");
        if let Some(modified) = self.modified
            && let Ok(file) = File::options().append(true).open(&self.path)
        {
            // Without it there is one build more.
            let _ = file.set_modified(modified);
        }
    }
}
