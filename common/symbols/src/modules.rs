//! The files that code came from, opened while they can still be reached.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use crate::files::{open_in_nofollow, open_mapped, open_root};
use crate::identity::{RootKey, Stamp, is_shared_memory, matches, undeleted};
use crate::mappings::{Backing, FileKey, Mapping};
use crate::opener::Opened;

/// More files than any machine maps as code.
const MAX_MODULES: usize = 65_536;
/// Distinct container roots held.
const MAX_ROOTS: usize = 256;
/// Processes that are tried before a file counts as out of reach.
const MAX_TRIES: u8 = 8;
/// One file.
#[derive(Debug)]
pub(super) struct Module {
    /// For display: without ` (deleted)`.
    pub(super) path: Arc<str>,
    raw_path: Arc<[u8]>,
    file: Option<File>,
    stamp: Option<Stamp>,
    /// The open file is a copy, which nobody changes.
    copied: bool,
    /// Root of the process that mapped it, to look for debug files in.
    pub(super) root: Option<Rc<OwnedFd>>,
    /// False once the file proved to be something else, such as JIT code in a memfd.
    elf: bool,
    tries: u8,
    used: u64,
}

impl Module {
    /// The open file, if it is unchanged: names out of a file that was overwritten in place would be wrong, and a
    /// truncated one would end us with SIGBUS.
    pub(super) fn unchanged(&self) -> Option<&File> {
        let file = self.file.as_ref()?;
        if self.copied {
            return Some(file);
        }
        let now = Stamp::from(&file.metadata().ok()?);
        (self.stamp == Some(now)).then_some(file)
    }

    /// Who owns the file.
    pub(super) fn owner(&self) -> Option<u32> {
        self.stamp.as_ref().map(Stamp::owner)
    }

    /// Its directory and name inside the root it was mapped from.
    pub(super) fn raw_path(&self) -> &[u8] {
        undeleted(&self.raw_path)
    }
}

/// All files seen, by the identity that the kernel's mappings give.
#[derive(Debug)]
pub(super) struct Modules {
    by_key: HashMap<FileKey, u32>,
    list: Vec<Module>,
    roots: HashMap<RootKey, Rc<OwnedFd>>,
    open: usize,
    max_open: usize,
    clock: u64,
    /// Modules that have no file in any process tried.
    pub(super) unopened: u64,
}

impl Modules {
    /// Keeps at most `max_open` files open.
    pub(super) fn new(max_open: usize) -> Self {
        let mut modules = Self {
            by_key: HashMap::new(),
            list: Vec::new(),
            roots: HashMap::new(),
            open: 0,
            max_open,
            clock: 0,
            unopened: 0,
        };
        // Our own root is where most files of exited processes are found.
        open_root("/").ok().and_then(|root| modules.share(root));
        modules
    }

    /// Adds a file that no process maps by path (the vDSO's image).
    pub(super) fn add(&mut self, name: &str, file: File) -> u32 {
        let stamp = file.metadata().ok().map(|m| Stamp::from(&m));
        self.push(Module {
            path: name.into(),
            raw_path: name.as_bytes().into(),
            file: Some(file),
            stamp,
            copied: false,
            root: None,
            elf: true,
            tries: MAX_TRIES,
            used: u64::MAX,
        })
    }

    pub(super) fn get(&self, id: u32) -> &Module {
        &self.list[id as usize]
    }

    /// The module of a file mapping; `None` when the file holds no ELF code.
    pub(super) fn locate(&mut self, tgid: u32, mapping: &Mapping) -> Option<u32> {
        let Backing::File(key) = mapping.backing else {
            return None;
        };
        let id = match self.by_key.get(&key) {
            Some(&id) => id,
            None => self.insert(key, mapping)?,
        };
        self.clock += 1;
        let module = &mut self.list[id as usize];
        module.used = module.used.max(self.clock);
        if module.stamp.is_none() && module.tries < MAX_TRIES {
            self.open(id, tgid, key, mapping);
        }
        self.list[id as usize].elf.then_some(id)
    }

    /// Opens a module again that was closed to stay within the limit.
    pub(super) fn reopen(&mut self, id: u32) {
        let module = &self.list[id as usize];
        let (None, Some(stamp), Some(root)) = (&module.file, module.stamp, &module.root) else {
            return;
        };
        let found = open_in_nofollow(root.as_fd(), module.raw_path()).ok();
        if let Some(opened) = found.filter(|opened| Stamp::from(&opened.facts) == stamp) {
            self.keep_open(id, opened.file);
        }
    }

    fn insert(&mut self, key: FileKey, mapping: &Mapping) -> Option<u32> {
        if self.list.len() >= MAX_MODULES {
            return None;
        }
        let id = self.push(Module {
            path: String::from_utf8_lossy(undeleted(&mapping.path)).into(),
            raw_path: Arc::clone(&mapping.path),
            file: None,
            stamp: None,
            copied: false,
            root: None,
            elf: !is_shared_memory(&mapping.path),
            tries: 0,
            used: 0,
        });
        self.by_key.insert(key, id);
        self.unopened += 1;
        Some(id)
    }

    fn push(&mut self, module: Module) -> u32 {
        self.list.push(module);
        u32::try_from(self.list.len() - 1).expect("bounded by MAX_MODULES")
    }

    fn open(&mut self, id: u32, tgid: u32, key: FileKey, mapping: &Mapping) {
        let root = open_root(&format!("/proc/{tgid}/root"))
            .ok()
            .and_then(|r| self.share(r));
        let mapped = open_mapped(tgid, mapping.start, mapping.end);
        if let Err(error) = &mapped
            && error.raw_os_error() == Some(libc::EMFILE)
        {
            // It says nothing about the file: the next time may be better.
            return;
        }
        let (found, root) = match mapped
            .ok()
            .filter(|mapped| matches(&mapped.facts, key, true))
        {
            Some(found) => (Some(found), root),
            None => self.search(key, &mapping.path, root),
        };
        let module = &mut self.list[id as usize];
        module.tries += 1;
        if root.is_some() {
            module.root = root;
        }
        let Some(opened) = found else {
            return;
        };
        module.stamp = Some(Stamp::from(&opened.facts));
        module.copied = opened.facts.copied;
        module.elf = elf::is_elf(&opened.file);
        self.unopened -= 1;
        if module.elf {
            self.keep_open(id, opened.file);
        }
    }

    /// Looks for a file by its path, where its process sees it, else in every root seen so far: the process may be gone
    /// while its container lives. There only the very file will do.
    fn search(
        &self,
        key: FileKey,
        path: &[u8],
        root: Option<Rc<OwnedFd>>,
    ) -> (Option<Opened>, Option<Rc<OwnedFd>>) {
        let look = |root: &Rc<OwnedFd>, own_view| {
            let opened = open_in_nofollow(root.as_fd(), path).ok()?;
            matches(&opened.facts, key, own_view).then_some(opened)
        };
        if let Some(found) = root.as_ref().and_then(|root| look(root, true)) {
            return (Some(found), root);
        }
        let elsewhere = self
            .roots
            .values()
            .find_map(|other| Some((look(other, false)?, other)));
        match elsewhere {
            Some((found, other)) => (Some(found), root.or_else(|| Some(Rc::clone(other)))),
            None => (None, root),
        }
    }

    fn keep_open(&mut self, id: u32, file: File) {
        if self.open >= self.max_open {
            let open = self
                .list
                .iter_mut()
                .filter(|m| m.file.is_some() && m.used != u64::MAX && !m.copied);
            // Copies stay: nobody could make them again. When all are, this one goes without.
            let Some(oldest) = open.min_by_key(|m| m.used) else {
                return;
            };
            oldest.file = None;
            self.open -= 1;
        }
        self.list[id as usize].file = Some(file);
        self.open += 1;
    }

    /// One descriptor per distinct root directory.
    fn share(&mut self, root: OwnedFd) -> Option<Rc<OwnedFd>> {
        let key = RootKey::of(&root)?;
        if let Some(known) = self.roots.get(&key) {
            return Some(Rc::clone(known));
        }
        if self.roots.len() >= MAX_ROOTS {
            return None;
        }
        let root = Rc::new(root);
        self.roots.insert(key, Rc::clone(&root));
        Some(root)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    fn mapping(path: &Path) -> Mapping {
        let metadata = fs::metadata(path).unwrap();
        Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: 0,
            backing: Backing::File(FileKey {
                major: libc::major(metadata.dev()),
                minor: libc::minor(metadata.dev()),
                inode: metadata.ino(),
            }),
            path: path.as_os_str().as_encoded_bytes().into(),
            from_ns: 0,
            until_ns: u64::MAX,
        }
    }

    #[test]
    fn files_beyond_the_limit_are_closed_and_opened_again_unless_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut modules = Modules::new(2);
        let ids: Vec<u32> = (0..4)
            .map(|i| {
                let path = dir.path().join(i.to_string());
                fs::write(&path, b"\x7fELF").unwrap();
                modules.locate(std::process::id(), &mapping(&path)).unwrap()
            })
            .collect();
        let open = |modules: &Modules| {
            ids.iter()
                .filter(|id| modules.get(**id).unchanged().is_some())
                .count()
        };
        assert_eq!((open(&modules), modules.unopened), (2, 0));
        assert!(
            modules.get(ids[0]).unchanged().is_none(),
            "the least recently used"
        );
        modules.reopen(ids[0]);
        assert!(modules.get(ids[0]).unchanged().is_some());
        assert_eq!(open(&modules), 2);

        fs::write(dir.path().join("new"), b"\x7fELF").unwrap();
        fs::rename(dir.path().join("new"), dir.path().join("1")).unwrap();
        modules.reopen(ids[1]);
        assert!(
            modules.get(ids[1]).unchanged().is_none(),
            "another file of that name"
        );
    }

    #[test]
    fn a_file_of_another_inode_is_not_the_mapped_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, b"\x7fELF").unwrap();
        let mut wrong = mapping(&path);
        if let Backing::File(key) = &mut wrong.backing {
            key.inode += 1;
        }
        let overlay = FileKey {
            major: 0,
            minor: 0,
            inode: 0,
        };
        let root = open_root("/").unwrap();
        let opened = open_in_nofollow(root.as_fd(), path.as_os_str().as_encoded_bytes());
        if matches(&opened.unwrap().facts, overlay, true) {
            return eprintln!("skipped: overlayfs has inode numbers of its own");
        }
        let mut modules = Modules::new(2);
        let id = modules.locate(std::process::id(), &wrong).unwrap();
        assert!(modules.get(id).unchanged().is_none());
        assert_eq!(modules.unopened, 1);
    }
}
