//! Files that are cut short at the worst moment, and those that take long.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use xz2::read::XzEncoder;

use super::*;

/// Makes a file with so many functions, the first of which is at the highest address, 8 bytes each: they take long to sort.
fn write_symbols(path: &Path, count: u64) {
    let names = b"\0.symtab\0.strtab\0f\0";
    let (symbols_at, symbols_size) = (64, 24 * count);
    let names_at = symbols_at + symbols_size;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let mut out = Vec::new();
    out.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // An executable for x86-64 without segments, with three sections, the names of which are in the third.
    [2_u16, 62]
        .iter()
        .for_each(|half| out.extend(half.to_le_bytes()));
    out.extend(1_u32.to_le_bytes());
    [0, 0, sections_at]
        .iter()
        .for_each(|word: &u64| out.extend(word.to_le_bytes()));
    out.extend(0_u32.to_le_bytes());
    [64_u16, 56, 0, 64, 3, 2]
        .iter()
        .for_each(|half| out.extend(half.to_le_bytes()));
    for n in 0..count {
        out.extend(17_u32.to_le_bytes());
        // A global function in no particular section that is there.
        out.extend([0x12, 0, 1, 0]);
        out.extend(((count - n) * 8).to_le_bytes());
        out.extend(8_u64.to_le_bytes());
    }
    out.extend(names);
    out.resize(usize::try_from(sections_at).unwrap(), 0);
    out.extend([0; 64]);
    for (name, kind, at, size, link, entry) in [
        (1_u32, 2_u32, symbols_at, symbols_size, 2_u32, 24_u64),
        (9, 3, names_at, names.len() as u64, 0, 0),
    ] {
        out.extend(name.to_le_bytes());
        out.extend(kind.to_le_bytes());
        [0, 0, at, size]
            .iter()
            .for_each(|word: &u64| out.extend(word.to_le_bytes()));
        out.extend(link.to_le_bytes());
        out.extend(0_u32.to_le_bytes());
        [1, entry]
            .iter()
            .for_each(|word| out.extend(word.to_le_bytes()));
    }
    File::create(path).unwrap().write_all(&out).unwrap();
}

fn name(answer: &[Option<Functions>]) -> Option<&str> {
    Some(&answer[0].as_ref()?.named[0].name)
}

/// Whether a process has a file mapped; none when it is gone.
fn maps(pid: libc::pid_t, path: &Path) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    (!maps.is_empty()).then(|| maps.contains(path.to_str().unwrap()))
}

/// Whoever looks whether a file is unchanged before he maps it looks too early.
#[test]
fn a_file_cut_short_while_it_is_read_costs_its_own_names() {
    let dir = tempfile::tempdir().unwrap();
    let (cut, whole) = (dir.path().join("cut"), dir.path().join("whole"));
    write_symbols(&cut, 3_000_000);
    write_symbols(&whole, 1000);
    let (file, other) = (File::open(&cut).unwrap(), File::open(&whole).unwrap());
    let mut reader = Reader::new(true);
    assert_eq!(name(&reader.resolve(1, &other, false, &[84])), Some("f"));
    let pid = reader.process.as_ref().unwrap().helper.pid();
    let cutter = std::thread::spawn(move || {
        while maps(pid, &cut) == Some(false) {}
        // Reading takes seconds; nothing has been answered yet.
        File::options()
            .write(true)
            .open(&cut)
            .unwrap()
            .set_len(8192)
            .unwrap();
    });
    assert_eq!(name(&reader.resolve(2, &file, false, &[84])), None);
    cutter.join().unwrap();
    assert!(reader.process.is_none(), "it did not survive that");
    assert_eq!(name(&reader.resolve(3, &other, false, &[92])), Some("f"));
    assert_eq!(reader.refused(), 1);
}

/// Writes a file of 39 KB with nothing but `.gnu_debugdata` that unpacks to more than is allowed.
fn write_bomb(path: &Path) {
    let zeros = io::repeat(0).take((256 << 20) + 1);
    let mut packed = Vec::new();
    XzEncoder::new(zeros, 0).read_to_end(&mut packed).unwrap();
    let names = b"\0.gnu_debugdata\0";
    let (names_at, data_at) = (64 + 3 * 64, 320);
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    let mut put = |words: &[u64]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    // No segments and three sections, the names of which are in the last.
    put(&[0, 0, 64, 64 << 32, 64 << 16 | 3 << 32 | 2 << 48]);
    put(&[0; 8]);
    put(&[1 | 1 << 32, 0, 0, data_at, packed.len() as u64, 0, 1, 0]);
    put(&[3 << 32, 0, 0, names_at, names.len() as u64, 0, 1, 0]);
    out.extend(names);
    out.resize(usize::try_from(data_at).unwrap(), 0);
    out.extend(packed);
    assert!(out.len() < 64 << 10);
    fs::write(path, out).unwrap();
}

/// The time of a file that is refused with politeness is time all the same.
#[test]
fn a_small_file_that_takes_long_is_paid_for_by_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let [bomb, whole] = ["bomb", "whole"].map(|name| dir.path().join(name));
    write_bomb(&bomb);
    write_symbols(&whole, 1000);
    // Whoever owns them, anybody can have written that.
    for path in [&bomb, &whole] {
        fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    }
    let (bomb, whole) = (File::open(&bomb).unwrap(), File::open(&whole).unwrap());
    let mut reader = Reader::new(true);
    assert_eq!(name(&reader.resolve(1, &whole, false, &[84])), Some("f"));
    let lost = |reader: &Reader| reader.spent[&None].lost;
    let before = lost(&reader);
    assert_eq!(name(&reader.resolve(2, &bomb, false, &[84])), None);
    let took = lost(&reader) - before;
    assert!(took > Duration::from_millis(50), "{took:?}");
    assert_eq!(name(&reader.resolve(1, &whole, false, &[92])), Some("f"));
    reader.spent.entry(None).or_default().lost = MAX_LOST - Duration::from_millis(1);
    assert_eq!(name(&reader.resolve(3, &bomb, false, &[84])), None);
    assert_eq!(name(&reader.resolve(4, &whole, false, &[84])), None);
    assert_eq!(reader.refused(), 3);
    assert!(reader.process.is_some(), "nothing died of it");
    // Root's files are read nevertheless.
    let path = dir.path().join("roots");
    write_symbols(&path, 1000);
    let roots = File::open(&path).unwrap();
    if roots.metadata().unwrap().uid() == 0 {
        assert_eq!(name(&reader.resolve(5, &roots, false, &[84])), Some("f"));
    }
}

/// A stopped process stands for one whose page is not delivered: it neither runs nor wakes.
#[test]
fn a_file_system_that_delivers_nothing_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<File> = (0..4)
        .map(|n| {
            let path = dir.path().join(n.to_string());
            write_symbols(&path, 1000);
            File::open(path).unwrap()
        })
        .collect();
    let mut reader = Reader::new(true);
    for id in [0, 1] {
        let file = &files[id as usize];
        assert_eq!(name(&reader.resolve(id, file, true, &[84])), Some("f"));
        let pid = reader.process.as_ref().unwrap().helper.pid();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
        let began = Instant::now();
        assert_eq!(name(&reader.resolve(id, file, true, &[92])), None);
        assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    }
    assert_eq!(name(&reader.resolve(2, &files[2], true, &[84])), None);
    assert!(reader.process.is_none(), "nobody is asked any more");
    assert_eq!((reader.refused(), reader.deaths.len()), (3, 0));
}
