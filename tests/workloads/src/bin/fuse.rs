//! A file system that shows the files of a directory, read only, and stops answering when told to.
//!
//! `fuse DIR MOUNTPOINT` speaks the protocol; the line that starts the work silences it: requests are taken and not
//! answered any more.

#![allow(clippy::print_stderr, reason = "its output is read by tests")]

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, thread};

use usekit_workloads::protocol;

/// From linux/fuse.h.
mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BATCH_FORGET: u32 = 42;
}

/// `struct fuse_in_header`
const HEADER: usize = 40;
/// The kernel wants room for the largest request.
const REQUEST: usize = 1 << 17;

struct Served {
    dir: PathBuf,
    /// By node, from 2 on; 1 is the directory.
    nodes: Vec<String>,
    numbers: HashMap<String, u64>,
}

/// A request's payload, and what it is about.
struct Request<'a> {
    opcode: u32,
    unique: u64,
    node: u64,
    payload: &'a [u8],
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Served {
    fn path(&self, node: u64) -> io::Result<PathBuf> {
        if node == 1 {
            return Ok(self.dir.clone());
        }
        let index = usize::try_from(node - 2).expect("few files");
        let name = self.nodes.get(index);
        Ok(self.dir.join(name.ok_or(io::ErrorKind::NotFound)?))
    }

    fn look_up(&mut self, name: &[u8]) -> io::Result<u64> {
        let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name)).into_owned();
        fs::metadata(self.dir.join(&name))?;
        if let Some(node) = self.numbers.get(&name) {
            return Ok(*node);
        }
        self.nodes.push(name.clone());
        let node = self.nodes.len() as u64 + 1;
        self.numbers.insert(name, node);
        Ok(node)
    }

    fn answer(&mut self, request: &Request<'_>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match request.opcode {
            // Version 7.31, and the sizes that it has; nothing optional.
            opcode::INIT => {
                [7_u32, 31, 1 << 16, 0]
                    .iter()
                    .for_each(|word| out.extend(word.to_ne_bytes()));
                out.extend([0; 4]);
                out.extend((1_u32 << 16).to_ne_bytes());
                out.resize(64, 0);
            }
            opcode::LOOKUP => {
                let node = self.look_up(request.payload)?;
                // Names and attributes are good for no time at all: the kernel asks whenever it can.
                [node, 0, 0, 0, 0]
                    .iter()
                    .for_each(|word| out.extend(word.to_ne_bytes()));
                out.extend(attributes(node, &fs::metadata(self.path(node)?)?));
            }
            opcode::GETATTR => {
                out.resize(16, 0);
                out.extend(attributes(
                    request.node,
                    &fs::metadata(self.path(request.node)?)?,
                ));
            }
            opcode::OPEN => out.resize(16, 0),
            opcode::READ => {
                let (offset, size) = (word64(request.payload, 8), word32(request.payload, 16));
                out.resize(size as usize, 0);
                let read = File::open(self.path(request.node)?)?.read_at(&mut out, offset)?;
                out.truncate(read);
            }
            opcode::STATFS => out.resize(80, 0),
            opcode::FLUSH | opcode::RELEASE => {}
            _ => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        }
        Ok(out)
    }
}

/// `struct fuse_attr`
fn attributes(node: u64, metadata: &Metadata) -> Vec<u8> {
    let mut out = Vec::new();
    let seconds = metadata.mtime().cast_unsigned();
    [
        node,
        metadata.size(),
        metadata.blocks(),
        seconds,
        seconds,
        seconds,
    ]
    .iter()
    .for_each(|word| out.extend(word.to_ne_bytes()));
    let owner = [metadata.uid(), metadata.gid()];
    [0, 0, 0, metadata.mode(), 1, owner[0], owner[1], 0, 4096, 0]
        .iter()
        .for_each(|word: &u32| out.extend(word.to_ne_bytes()));
    out
}

fn serve(mut device: &File, mut served: Served, silent: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; REQUEST];
    loop {
        let length = device.read(&mut buffer)?;
        let request = Request {
            opcode: word32(&buffer, 4),
            unique: word64(&buffer, 8),
            node: word64(&buffer, 16),
            payload: &buffer[HEADER..length],
        };
        let unanswered = [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT];
        if silent.load(Ordering::Acquire) || unanswered.contains(&request.opcode) {
            continue;
        }
        let (error, payload) = match served.answer(&request) {
            Ok(payload) => (0, payload),
            Err(error) => (-error.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
        };
        let mut answer = Vec::new();
        let bytes = u32::try_from(16 + payload.len()).expect("small");
        answer.extend(bytes.to_ne_bytes());
        answer.extend(error.to_ne_bytes());
        answer.extend(request.unique.to_ne_bytes());
        answer.extend(payload);
        device.write_all(&answer)?;
    }
}

fn mount(device: &File, place: &Path) -> io::Result<()> {
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let (data, place) = (
        CString::new(data)?,
        CString::new(place.as_os_str().as_encoded_bytes())?,
    );
    // SAFETY: four C strings.
    let result = unsafe {
        libc::mount(
            c"usekit-test".as_ptr(),
            place.as_ptr(),
            c"fuse".as_ptr(),
            0,
            data.as_ptr().cast(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [dir, place] = &arguments[..] else {
        eprintln!("usage: fuse DIR MOUNTPOINT");
        std::process::exit(2);
    };
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    mount(&device, place)?;
    let silent = Arc::new(AtomicBool::new(false));
    let served = Served {
        dir: dir.clone(),
        nodes: Vec::new(),
        numbers: HashMap::new(),
    };
    let seen = Arc::clone(&silent);
    // Ends with the mount, which the test takes away, or with this process.
    thread::spawn(move || serve(&device, served, &seen));
    protocol::ready_and_wait();
    silent.store(true, Ordering::Release);
    protocol::done_and_exit()
}
