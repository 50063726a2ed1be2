//! Functions of programs and libraries, for BPF programs that run where they are called.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use host::libraries;
use host::privileges::{self, Capabilities};
use libbpf_rs::Link;

/// Kernels from 6.16 on take CAP_PERFMON for too little.
const UPROBES: &str =
    "Permission denied; uprobes take CAP_SYS_ADMIN, or CAP_PERFMON before Linux 6.16";

/// A function of a file.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// A file's, or a library's or program's bare name: `libc`, `libm.so.6`, `bash`.
    pub path: &'a str,
    /// Its name in the file's symbol table.
    pub symbol: &'a str,
    /// Its thread has to stay the same until something else is called: goroutines change theirs.
    pub keeps_thread: bool,
}

/// Has `put` put a program there: it is given the file and the function's offset in it.
///
/// # Errors
///
/// There is no such file or function, or several functions have the name; it is one of Go, and has to keep its thread; or the kernel
/// refuses it.
pub fn attach(
    function: Function<'_>,
    put: impl FnOnce(&Path, usize) -> libbpf_rs::Result<Link>,
) -> Result<Link> {
    let Function { path, symbol, .. } = function;
    let file = find_file(path).with_context(|| format!("uprobe: no file {path}"))?;
    if !is_elf(&file) {
        bail!(
            "uprobe: {}: no program or library; see file(1)",
            file.display()
        );
    }
    if function.keeps_thread && is_go(&file) {
        bail!(
            "uprobe: {}: a Go program, whose goroutines change threads: their calls have no end that is told",
            file.display()
        );
    }
    let offset = offset_of(&file, symbol)?;
    let link = put(&file, offset);
    let file = file.display();
    match link {
        Err(err)
            if err.kind() == libbpf_rs::ErrorKind::PermissionDenied
                && !privileges::effective().contains(Capabilities::SYS_ADMIN) =>
        {
            bail!("uprobe: attach to {symbol} in {file}: {UPROBES}")
        }
        link => link.with_context(|| format!("uprobe: attach to {symbol} in {file}")),
    }
}

/// The process that a program on a function is for: other processes then never trap. -1: all.
///
/// # Errors
///
/// The only one is no PID.
pub fn only_process(pids: &[u32]) -> Result<i32> {
    match pids {
        [pid] => i32::try_from(*pid).context("PID"),
        _ => Ok(-1),
    }
}

/// Offset of a function in a file. `nm` writes versions behind names.
fn offset_of(file: &Path, symbol: &str) -> Result<usize> {
    let name = symbol.split('@').next().unwrap_or(symbol);
    let opened = File::open(file).with_context(|| format!("uprobe: open {}", file.display()))?;
    let found = elf::function_offsets(&opened, name);
    let file = file.display();
    let Some(offsets) = found else {
        bail!("uprobe: {file} is damaged, or too large to search for {name}");
    };
    match offsets[..] {
        [offset] => usize::try_from(offset).context("file offset"),
        [] => bail!("uprobe: no function {name} in {file}; nm and nm -D list them"),
        _ => {
            let names = elf::function_names(&opened, name).unwrap_or_default();
            let remedy = choice(&names.into_iter().collect::<Vec<_>>());
            bail!("uprobe: {file} has several functions {name}; take {remedy}")
        }
    }
}

/// Functions whose names can be told apart.
fn choice(names: &[String]) -> String {
    match names {
        [] | [_] => "one that it calls".into(),
        [first, second] => format!("{first} or {second}"),
        [first, second, others @ ..] => {
            format!("{first}, {second} or another of {}", 2 + others.len())
        }
    }
}

/// A path, or a library's or program's bare name: `libc`, `libm.so.6`, `bash`.
fn find_file(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).exists().then(|| name.into());
    }
    let mut candidates = libraries::own();
    for dir in libraries::directories() {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        candidates.extend(files);
    }
    let is_it = |path: &PathBuf| {
        let file = path
            .file_name()
            .and_then(|file| file.to_str())
            .unwrap_or_default();
        file == name
            // Alpine's C library is libc.musl-x86_64.so.1.
            || file
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with(".musl-"))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    candidates.extend(std::env::split_paths(&path).map(|dir| dir.join(name)));
    candidates
        .into_iter()
        .find(|path| is_it(path) && is_elf(path))
}

/// `libc.so` in /usr/lib is a linker script.
fn is_elf(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|file| elf::is_elf(&file))
}

fn is_go(path: &Path) -> bool {
    let headers = File::open(path)
        .ok()
        .and_then(|file| elf::Headers::read(&file));
    headers.is_some_and(|headers| headers.go.present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_their_bare_name() {
        assert!(
            find_file("libc")
                .unwrap()
                .to_str()
                .unwrap()
                .contains("libc.so")
        );
        assert!(find_file("no-such-library").is_none());
    }
}
