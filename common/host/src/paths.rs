//! Paths of files as the kernel has them: name by name.

use std::fmt;

/// A path, or as much of it as is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// Before the leaf, without the last slash; `None`: the file is nowhere in a tree.
    pub directory: Option<String>,
    /// The last name.
    pub leaf: String,
}

impl Path {
    /// Puts names together, leaf first, NUL-terminated in words; empty ones are no part of it. `is_whole`: they reach up to the root.
    /// `None`: there is no name.
    pub fn of(names: &[[u64; 8]], is_whole: bool) -> Option<Self> {
        let names = names.iter().map(|words| text(words));
        let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return None;
        }
        let leaf = names.remove(0);
        if !is_whole && names.is_empty() {
            return Some(Self {
                directory: None,
                leaf,
            });
        }
        names.push(if is_whole { "" } else { "…" }.to_owned());
        names.reverse();
        Some(Self {
            directory: Some(names.join("/")),
            leaf,
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.directory {
            Some(directory) => write!(f, "{directory}/{}", self.leaf),
            None => f.write_str(&self.leaf),
        }
    }
}

/// A name, up to its NUL. One that fills its room may have been too long, and is taken for cut; no part of a character is left then.
fn text(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let is_cut = bytes.len() + 1 == size_of_val(words);
    let whole = match str::from_utf8(&bytes) {
        Err(err) if is_cut && err.error_len().is_none() => err.valid_up_to(),
        _ => bytes.len(),
    };
    let text = String::from_utf8_lossy(&bytes[..whole]);
    text.chars().chain(is_cut.then_some('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(is_whole: bool, names: &[&str]) -> Option<String> {
        let words = |name: &&str| {
            let mut bytes = [0; 64];
            let cut = name.len().min(63);
            bytes[..cut].copy_from_slice(&name.as_bytes()[..cut]);
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            }
            words
        };
        let names: Vec<[u64; 8]> = names.iter().map(words).collect();
        Path::of(&names, is_whole).map(|path| path.to_string())
    }

    #[test]
    fn a_path_is_put_together_from_its_names() {
        let is = |names: &[&str], is_whole, expected: &str| {
            assert_eq!(path(is_whole, names).as_deref(), Some(expected));
        };
        // A mount leaves an empty name.
        is(&["a.lock", "lock", "", "var"], true, "/var/lock/a.lock");
        is(&["", "a"], true, "/a");
        is(&["c", "b", "a"], false, "…/a/b/c");
        is(&["memfd:x"], false, "memfd:x");
        let long = "n".repeat(100);
        is(&[&long], true, &format!("/{}…", "n".repeat(63)));
        // No half of a character.
        let long = "é".repeat(100);
        is(&[&long], true, &format!("/{}…", "é".repeat(31)));
        assert_eq!(path(true, &[]), None);
        assert_eq!(path(true, &["", ""]), None);
    }
}
