//! The vDSO as a module: code that the kernel maps into every process and that no file holds.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use super::module::{Module, ModuleId};
use super::steady;

/// The vDSO's place among modules; tables of files never grow to it.
pub(super) const VDSO: ModuleId = ModuleId::MAX;

const MAX_BYTES: u64 = 1 << 20;

/// Our own vDSO, which is the same code as in every other process of our word size.
///
/// Its segments lie where their addresses say, so that offsets from its start are its symbols' addresses.
pub(super) fn module() -> Module {
    Module {
        path: "[vdso]".into(),
        file: image().ok(),
        build_id: Vec::new(),
        root: None,
    }
}

fn image() -> io::Result<File> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no vDSO");
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
    let (start, end) = range.ok_or_else(missing)?;
    let start = u64::from_str_radix(start, 16).map_err(io::Error::other)?;
    let end = u64::from_str_radix(end, 16).map_err(io::Error::other)?;
    let size = end.saturating_sub(start).min(MAX_BYTES);
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, start)?;
    let mut file = steady::in_memory()?;
    file.write_all(&bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::elf::ElfNames;

    #[test]
    fn names_a_function_of_the_vdso() {
        let module = module();
        let file = module.file.as_ref().unwrap();
        let mut names = ElfNames::new(true);
        let size = file.metadata().unwrap().len();
        let found = (0..size)
            .step_by(16)
            .flat_map(|offset| names.names(VDSO, &module, offset))
            .any(|frame| frame.name.contains("clock_gettime"));
        assert!(found);
    }
}
