//! Semaphores of System V: sets in this process's IPC namespace.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The sets of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    namespace: u64,
    keys: HashMap<u64, u32>,
}

impl Sets {
    /// Those that there are at this instant; none where the kernel has no such thing.
    pub fn read() -> Self {
        let namespace = fs::metadata("/proc/self/ns/ipc");
        let listed = fs::read_to_string("/proc/sysvipc/sem");
        Self {
            namespace: namespace.map_or(0, |file| file.ino()),
            keys: listed.map_or_else(|_| HashMap::new(), |text| parse(&text)),
        }
    }

    /// The key that set `id` of `namespace`, by its inode, was made with, 0 if with none; `None`: it is gone, or elsewhere.
    pub fn key(&self, namespace: u64, id: u64) -> Option<u32> {
        let is_ours = self.namespace == namespace;
        self.keys.get(&id).copied().filter(|_| is_ours)
    }
}

/// Keys by ID; the file has keys as signed numbers.
fn parse(text: &str) -> HashMap<u64, u32> {
    let mut keys = HashMap::new();
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace();
        let key = words.next().and_then(|word| word.parse::<i32>().ok());
        let id = words.next().and_then(|word| word.parse().ok());
        if let (Some(key), Some(id)) = (key, id) {
            keys.insert(id, key.cast_unsigned());
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_by_the_sets_that_have_them() {
        let text = "       key      semid perms      nsems   uid\n\
                    -559038737          3   600          2     0\n         0          4   600          1     0\n\
                    what is this\n";
        let sets = Sets {
            namespace: 7,
            keys: parse(text),
        };
        assert_eq!(sets.key(7, 3), Some(0xdead_beef));
        assert_eq!(sets.key(7, 4), Some(0));
        assert_eq!(sets.key(7, 5), None);
        assert_eq!(sets.key(8, 3), None);
    }
}
