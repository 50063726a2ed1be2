//! Build IDs by the paths that frames show, for those who look for debug files later and elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use elf::build_id_in_notes;

use crate::modules::Modules;

/// Hexadecimal IDs by path. A path at which two different files were seen has none: frames do not tell them apart.
pub(super) fn by_path(
    modules: &Modules,
    ids: &HashMap<u32, Option<Vec<u8>>>,
) -> BTreeMap<String, String> {
    let mut found: BTreeMap<&str, Option<&[u8]>> = BTreeMap::new();
    for (module, id) in ids {
        let id = id.as_deref();
        found
            .entry(&modules.get(*module).path)
            .and_modify(|known| *known = known.filter(|known| Some(*known) == id))
            .or_insert(id);
    }
    let kernel = fs::read("/sys/kernel/notes").unwrap_or_default();
    let all = found
        .into_iter()
        .chain([("[kernel]", build_id_in_notes(&kernel))])
        .filter_map(|(path, id)| Some((path.to_owned(), hexadecimal(id?))));
    all.collect()
}

fn hexadecimal(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
