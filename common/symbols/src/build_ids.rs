//! Build IDs by the paths that frames show, for those who look for debug files later and elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use crate::modules::Modules;

/// Note type and owner of a build ID.
const NT_GNU_BUILD_ID: u32 = 3;
const OWNER: &[u8] = b"GNU\0";
/// Bytes of an ID; SHA-1 has 20.
const LONGEST: usize = 64;

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
        .chain([("[kernel]", in_notes(&kernel))])
        .filter_map(|(path, id)| Some((path.to_owned(), hexadecimal(id?))));
    all.collect()
}

fn hexadecimal(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The build ID among notes in this machine's byte order.
fn in_notes(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (header, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        let (owner, rest) = part(rest, word(0))?;
        let (text, rest) = part(rest, word(4))?;
        if word(8) == NT_GNU_BUILD_ID && owner == OWNER {
            return (1..=LONGEST).contains(&text.len()).then_some(text);
        }
        notes = rest;
    }
}

/// So many bytes, and what follows them at the next multiple of four.
fn part(bytes: &[u8], length: u32) -> Option<(&[u8], &[u8])> {
    let length = length as usize;
    let (part, _) = bytes.split_at_checked(length)?;
    let padded = length.next_multiple_of(4).min(bytes.len());
    Some((part, &bytes[padded..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, text: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [owner.len() as u32, text.len() as u32, kind] {
            note.extend(word.to_ne_bytes());
        }
        for bytes in [owner, text] {
            note.extend(bytes);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_id_is_found_behind_other_notes_and_damage_is_no_id() {
        let notes = [
            note(b"Linux\0", 3, b"xy"),
            note(b"GNU\0", 1, b"abi"),
            note(b"GNU\0", 3, &[0xc0, 0xff, 0xee]),
        ]
        .concat();
        assert_eq!(in_notes(&notes), Some(&[0xc0, 0xff, 0xee][..]));
        assert_eq!(in_notes(&notes[..notes.len() - 2]), None);
        assert_eq!(in_notes(&[0xff; 40]), None);
        assert_eq!(in_notes(&[]), None);
        assert_eq!(in_notes(&note(b"GNU\0", 3, &[1; 65])), None);
    }
}
