//! Files below `/proc`: of one process, and of the machine.

use std::fs::{self, File};
use std::io::{self, Read};

/// More than a `/proc/PID/status` has: 65,536 groups of 11 bytes each, and 2 KiB.
const MAX_STATUS: u64 = 1 << 20;

/// Fields of `/proc/PID/stat` by their numbers in proc(5).
const PARENT: usize = 4;
const START: usize = 22;
const STACK_START: usize = 28;

/// ID of the process that made this one, or that took it over; `None`: it is gone.
pub fn parent(tgid: u32) -> Option<u32> {
    u32::try_from(stat(tgid, PARENT)?).ok()
}

/// Processes that the first thread of one has started, those among them that have ended and are not waited for yet; none where the
/// kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub fn children(tgid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{tgid}/task/{tgid}/children"));
    let list = list.unwrap_or_default();
    let children = list.split_whitespace();
    children.filter_map(|tgid| tgid.parse().ok()).collect()
}

/// Beginning of a process, in ticks of 10 ms since boot; `None`: it is gone.
pub fn start_ticks(tgid: u32) -> Option<u64> {
    stat(tgid, START)
}

/// Beginning of a process's stack, which is random with every exec and so the name of an address space; `None`: it is gone, or
/// has no memory of its own.
pub fn stack_start(tgid: u32) -> Option<u64> {
    stat(tgid, STACK_START).filter(|start| *start != 0)
}

fn stat(tgid: u32, number: usize) -> Option<u64> {
    field(&fs::read(format!("/proc/{tgid}/stat")).ok()?, number)
}

fn field(stat: &[u8], number: usize) -> Option<u64> {
    let fields = std::str::from_utf8(behind_name(stat)?).ok()?;
    // The first one here is the state, which has number 3.
    let mut fields = fields.split_ascii_whitespace();
    fields.nth(number - 3)?.parse().ok()
}

/// Looks whether the task of this `stat`, or of its beginning, runs or could.
pub fn is_runnable(stat: &[u8]) -> bool {
    behind_name(stat).is_some_and(|fields| fields.starts_with(b" R"))
}

/// The name may hold anything, parentheses too; nothing behind it does.
fn behind_name(stat: &[u8]) -> Option<&[u8]> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(&stat[end + 1..])
}

/// `/proc/PID/status`.
///
/// # Errors
///
/// The process is gone, or may not be looked at.
pub fn status(tgid: u32) -> io::Result<String> {
    read_status(&format!("/proc/{tgid}/status"))
}

/// The same of a thread.
///
/// # Errors
///
/// The thread is gone, or may not be looked at.
pub fn thread_status(tgid: u32, tid: u32) -> io::Result<String> {
    read_status(&format!("/proc/{tgid}/task/{tid}/status"))
}

/// The same of this process; empty without `/proc`.
pub fn own_status() -> String {
    read_status("/proc/self/status").unwrap_or_default()
}

fn read_status(path: &str) -> io::Result<String> {
    let mut status = Vec::new();
    File::open(path)?
        .take(MAX_STATUS)
        .read_to_end(&mut status)?;
    // A name may be no text.
    Ok(String::from_utf8_lossy(&status).into_owned())
}

/// Descriptors of a process that are looked at for epolls, which event loops make early.
const MOST_DESCRIPTORS: usize = 4_096;
/// More than an epoll that watches as many has to say.
const MAX_WATCHED: u64 = 1 << 19;

/// Looks whether an epoll of a process watches a socket; not where it is gone, or may not be looked at.
pub fn watches_sockets(tgid: u32) -> bool {
    let links = |name: &str| fs::read_link(format!("/proc/{tgid}/fd/{name}")).ok();
    let is = |name: &str, kind: &str| {
        links(name).is_some_and(|to| {
            to.as_os_str()
                .as_encoded_bytes()
                .starts_with(kind.as_bytes())
        })
    };
    let watches = |name: &str| {
        let mut watched = String::new();
        let file = File::open(format!("/proc/{tgid}/fdinfo/{name}"));
        let read = file.and_then(|file| file.take(MAX_WATCHED).read_to_string(&mut watched));
        let mut lines = watched.lines().filter_map(|line| line.strip_prefix("tfd:"));
        let is_socket = |line: &str| {
            let name = line.split_ascii_whitespace().next();
            name.is_some_and(|name| is(name, "socket:"))
        };
        read.is_ok() && lines.any(is_socket)
    };
    let descriptors = fs::read_dir(format!("/proc/{tgid}/fd"))
        .into_iter()
        .flatten();
    let mut names = descriptors
        .take(MOST_DESCRIPTORS)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.any(|name| is(&name, "anon_inode:[eventpoll]") && watches(&name))
}

/// Bytes of memory, by name: `MemTotal:`, `MemAvailable:` and so on in `/proc/meminfo`.
pub fn memory() -> impl Fn(&str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    move |name| bytes(&meminfo, name)
}

/// Value of a line of KiB, in bytes.
pub fn bytes(text: &str, name: &str) -> Option<u64> {
    number(text, name)?.checked_mul(1024)
}

/// Bytes that are resident in this process's mappings of a file; 0 without `/proc`.
pub fn own_resident(path: &str) -> u64 {
    resident(
        &fs::read_to_string("/proc/self/smaps").unwrap_or_default(),
        path,
    )
}

/// Each mapping has a line of `ADDRESSES RIGHTS OFFSET DEVICE INODE PATH`, and below it lines of its figures.
fn resident(smaps: &str, path: &str) -> u64 {
    let mut is_wanted = false;
    let mut sum = 0;
    for line in smaps.lines() {
        if line.starts_with(|first: char| matches!(first, '0'..='9' | 'a'..='f')) {
            is_wanted = line.split_ascii_whitespace().nth(5) == Some(path);
        } else if is_wanted {
            sum += bytes(line, "Rss:").unwrap_or(0);
        }
    }
    sum
}

/// `NAME NUMBER` at the start of a line.
pub fn number(text: &str, name: &str) -> Option<u64> {
    words(text, name)?.next()?.parse().ok()
}

/// Text that follows `NAME` and white space at the start of a line.
pub fn words<'a>(text: &'a str, name: &str) -> Option<impl Iterator<Item = &'a str>> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let rest = lines.find(|rest| rest.starts_with(char::is_whitespace))?;
    Some(rest.split_whitespace())
}

/// Mount point of the first file system that `is_wanted` by kind and options, in this process's namespace.
pub fn mounted(is_wanted: impl Fn(&str, &str) -> bool) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        is_wanted(kind, options).then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_confuse_stat() {
        let stat = b"7 (a) S 1 (b) R 1 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 4711 21 22 23 24 25 4242 26";
        assert_eq!(field(stat, PARENT), Some(1));
        assert_eq!(field(stat, START), Some(4711));
        assert_eq!(field(stat, STACK_START), Some(4242));
        assert_eq!(field(b"7 (a) Z 0", START), None);
        assert_eq!(field(b"7 (a", PARENT), None);
        assert_eq!(field(b"", PARENT), None);
    }

    #[test]
    fn state_follows_the_name() {
        assert!(is_runnable(b"12 (sh) R 1 1"));
        assert!(is_runnable(b"12 (a) S (b) R 1"));
        assert!(!is_runnable(b"12 (R) S 1 1"));
        assert!(!is_runnable(b"12 (sh)") && !is_runnable(b""));
    }

    #[test]
    fn mappings_of_a_file_are_added_up() {
        let smaps = "\
7f00-7f01 rw-s 00001000 00:0f 12    anon_inode:bpf-map
Size:               4100 kB
Rss:                  12 kB
Pss:                   6 kB
7f02-7f03 rw-p 00000000 00:00 0
Rss:                  99 kB
a000-a001 r--s 00000000 00:0f 12    anon_inode:bpf-map
Rss:                   8 kB
a002-a003 r--s 00000000 00:0f 12    anon_inode:[perf_event]
Rss:                   7 kB
";
        assert_eq!(resident(smaps, "anon_inode:bpf-map"), 20 << 10);
        assert_eq!(resident(smaps, "anon_inode:bpf"), 0);
    }

    #[test]
    fn stat_of_this_process() {
        let own = std::process::id();
        assert_eq!(parent(own), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(u32::MAX), None);
        assert_eq!(stack_start(2), None, "a kernel thread");
        let start = stack_start(own).expect("of this process");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let (low, high) = stack.split(' ').next().unwrap().split_once('-').unwrap();
        let [low, high] = [low, high].map(|end| u64::from_str_radix(end, 16).unwrap());
        assert!((low..high).contains(&start), "{start:x} in {stack}");
    }

    #[test]
    fn lines_are_found_by_their_whole_name() {
        let text = "oom_kill_disable 1\noom_kill 3\nMemTotal:       12 kB\nUid:\t1\t2\n";
        assert_eq!(number(text, "oom_kill"), Some(3));
        assert_eq!(number(text, "MemTotal:"), Some(12));
        assert_eq!(bytes(text, "MemTotal:"), Some(12 << 10));
        assert_eq!(number(text, "Mem"), None);
        assert_eq!(words(text, "Uid:").unwrap().last(), Some("2"));
        assert!(number(&own_status(), "Tgid:") == Some(std::process::id().into()));
    }

    #[test]
    fn an_epoll_says_whether_it_watches_a_socket() {
        use std::os::fd::AsFd;
        use std::os::unix::net::UnixStream;

        use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
        use rustix::event::{EventfdFlags, eventfd};

        let own = std::process::id();
        let epoll = create(CreateFlags::CLOEXEC).expect("an epoll");
        let (data, flags) = (EventData::new_u64(0), EventFlags::IN);
        let counter = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        add(&epoll, counter.as_fd(), data, flags).expect("it is watched");
        assert!(!watches_sockets(own));
        let (socket, _other) = UnixStream::pair().expect("sockets");
        assert!(!watches_sockets(own), "nobody watches it");
        add(&epoll, socket.as_fd(), data, flags).expect("it is watched");
        assert!(watches_sockets(own));
        assert!(!watches_sockets(0));
    }
}
