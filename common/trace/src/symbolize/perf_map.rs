//! Names of JIT code from `/tmp/perf-PID.map`, which run times write for profilers.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::beneath::{self, Links};
use super::jit_table::JitTable;

const MAX_BYTES: u64 = 256 << 20;
/// A run time may make its map after its first code; looking again costs some system calls.
const RETRY: Duration = Duration::from_secs(1);

/// The perf maps of all processes seen.
#[derive(Debug, Default)]
pub(super) struct PerfMaps {
    processes: HashMap<u32, Process>,
    refused: u64,
}

#[derive(Debug)]
enum Process {
    Open(Map),
    Missing(Instant),
    Refused,
}

#[derive(Debug)]
struct Map {
    file: File,
    /// Bytes taken into the table: whole lines only.
    read: u64,
    /// Size when last read, which a torn line makes larger than `read`.
    size: u64,
    table: JitTable,
}

enum Opened {
    Map(File),
    Missing,
    Refused,
}

impl PerfMaps {
    /// Opens the map of a process while it lives. Cheap when that was done or tried before.
    pub(super) fn open(&mut self, tgid: u32) {
        match self.processes.get(&tgid) {
            Some(Process::Open(_) | Process::Refused) => return,
            Some(Process::Missing(tried)) if tried.elapsed() < RETRY => return,
            Some(Process::Missing(_)) | None => {}
        }
        let process = match open(tgid) {
            Opened::Map(file) => Process::Open(Map::new(file)),
            Opened::Missing => Process::Missing(Instant::now()),
            Opened::Refused => {
                self.refused += 1;
                Process::Refused
            }
        };
        self.processes.insert(tgid, process);
    }

    /// The function that the map of process `tgid` gives for an address in it.
    pub(super) fn name(&mut self, tgid: u32, address: u64) -> Option<Arc<str>> {
        let Some(Process::Open(map)) = self.processes.get_mut(&tgid) else {
            return None;
        };
        // What was read before an error still holds.
        let _ = map.refresh();
        map.table.name(address)
    }

    /// Maps that were there and not read: no regular file, too large, or another user's.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

impl Map {
    fn new(file: File) -> Self {
        Self {
            file,
            read: 0,
            size: 0,
            table: JitTable::default(),
        }
    }

    fn refresh(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len().min(MAX_BYTES);
        if size == self.size {
            return Ok(());
        }
        if size < self.size {
            self.table = JitTable::default();
            self.read = 0;
        }
        self.size = size;
        let mut text = Vec::new();
        self.file.seek(SeekFrom::Start(self.read))?;
        let left = size.saturating_sub(self.read);
        (&self.file).take(left).read_to_end(&mut text)?;
        // The last line may be half written.
        let end = text.iter().rposition(|byte| *byte == b'\n');
        let whole = &text[..end.map_or(0, |end| end + 1)];
        self.table.add(whole);
        self.read += whole.len() as u64;
        Ok(())
    }
}

fn open(tgid: u32) -> Opened {
    let process = format!("/proc/{tgid}");
    let Some((inner, user)) = identity(&process) else {
        return Opened::Missing;
    };
    let Ok(root) = beneath::root(Path::new(&format!("{process}/root"))) else {
        return Opened::Missing;
    };
    let path = format!("/tmp/perf-{inner}.map");
    let file = match beneath::open(&root, Path::new(&path), Links::Refuse) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Opened::Missing,
        Err(_) => return Opened::Refused,
    };
    match file.metadata() {
        Ok(found) if (found.uid() == user || found.uid() == 0) && found.len() <= MAX_BYTES => {
            Opened::Map(file)
        }
        _ => Opened::Refused,
    }
}

/// The PID as the process knows it, and the user it runs as.
fn identity(process: &str) -> Option<(u32, u32)> {
    let status = fs::read(format!("{process}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let inner = field("NSpid:")?.split_whitespace().next_back()?;
    // Real, effective, saved, file system: new files belong to the last.
    let user = field("Uid:")?.split_whitespace().nth(3)?;
    Some((inner.parse().ok()?, user.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn with_text(text: &[u8]) -> (PerfMaps, File) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = file.reopen().unwrap();
        writer.write_all(text).unwrap();
        let mut maps = PerfMaps::default();
        let map = Map::new(file.reopen().unwrap());
        maps.processes.insert(1, Process::Open(map));
        (maps, writer)
    }

    #[test]
    fn a_torn_line_is_taken_once_it_is_whole() {
        let (mut maps, mut writer) = with_text(b"1000 10 one\n2000 10 tw");
        assert_eq!(maps.name(1, 0x1004).as_deref(), Some("one"));
        assert_eq!(maps.name(1, 0x2004), None);
        writer.write_all(b"o\n3000 1").unwrap();
        assert_eq!(maps.name(1, 0x2004).as_deref(), Some("two"));
        assert_eq!(maps.name(1, 0x3000), None);
        writer.set_len(0).unwrap();
        assert_eq!(maps.name(1, 0x2004), None);
        assert_eq!(maps.name(2, 0x2004), None);
    }

    /// One test, because all of it is about the one path that this process's map has.
    #[test]
    fn only_a_regular_file_at_our_own_path_is_opened() {
        let own = std::process::id();
        let (inner, _) = identity("/proc/self").unwrap();
        let path = format!("/tmp/perf-{inner}.map");
        let opened = || {
            let mut maps = PerfMaps::default();
            maps.open(own);
            maps.open(own);
            let name = maps.name(own, 0x1008);
            (name.as_deref().map(str::to_owned), maps.refused())
        };
        let _ = fs::remove_file(&path);
        assert_eq!(opened(), (None, 0));
        fs::write(&path, "1000 10 jitted\n").unwrap();
        assert_eq!(opened(), (Some("jitted".into()), 0));
        fs::rename(&path, format!("{path}.real")).unwrap();
        std::os::unix::fs::symlink(format!("{path}.real"), &path).unwrap();
        assert_eq!(opened(), (None, 1));
        fs::remove_file(&path).unwrap();
        fs::remove_file(format!("{path}.real")).unwrap();
        let fifo = std::ffi::CString::new(path.as_str()).unwrap();
        // SAFETY: `fifo` is a C string.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(opened(), (None, 1));
        fs::remove_file(&path).unwrap();
        let large = File::create(&path).unwrap();
        large.set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(opened(), (None, 1));
        fs::remove_file(&path).unwrap();
        // Only root can give a file away.
        fs::write(&path, "1000 10 foreign\n").unwrap();
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            assert_eq!(opened(), (None, 1));
        }
        fs::remove_file(&path).unwrap();
    }
}
