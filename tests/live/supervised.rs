//! Tools whose system calls are refused: each call of the first thread that could fail is asked about, through seccomp(2).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use crate::tool::{Output, Tool};

/// `SECCOMP_IOCTL_NOTIF_RECV`, `SECCOMP_IOCTL_NOTIF_SEND`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// Calls that make something, or change who may do what.
const CALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_bpf, "bpf"),
    (libc::SYS_perf_event_open, "perf_event_open"),
    (libc::SYS_openat, "open"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_clone3, "clone3"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, "vfork"),
    (libc::SYS_epoll_create1, "epoll_create"),
    (libc::SYS_epoll_ctl, "epoll_ctl"),
    (libc::SYS_eventfd2, "eventfd"),
    (libc::SYS_memfd_create, "memfd_create"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_pipe2, "pipe"),
    (libc::SYS_socketpair, "socketpair"),
    (libc::SYS_signalfd4, "signalfd"),
    (libc::SYS_timerfd_create, "timerfd"),
    (libc::SYS_pidfd_open, "pidfd_open"),
    (libc::SYS_fsopen, "fsopen"),
    (libc::SYS_fsmount, "fsmount"),
    (libc::SYS_prctl, "prctl"),
    (libc::SYS_capset, "capset"),
    (libc::SYS_sched_setattr, "sched_setattr"),
    (libc::SYS_prlimit64, "prlimit"),
    (libc::SYS_linkat, "link"),
    (libc::SYS_renameat, "rename"),
];

/// Commands of bpf(2), by their numbers.
const COMMANDS: [(u64, &str); 16] = [
    (0, "map_create"),
    (1, "lookup"),
    (2, "update"),
    (3, "delete"),
    (4, "next_key"),
    (5, "prog_load"),
    (15, "get_info"),
    (17, "raw_tracepoint_open"),
    (18, "btf_load"),
    (22, "freeze"),
    (24, "lookup_batch"),
    (25, "lookup_and_delete_batch"),
    (28, "link_create"),
    (32, "enable_stats"),
    (33, "iter_create"),
    (36, "token_create"),
];

/// A refusal: which calls, by their names in [`Run::calls`], and the error that they get.
pub(crate) type Refusal<'a> = (&'a str, i32);

/// A run under supervision.
pub(crate) struct Run {
    /// Calls that could be refused, by name, in the order of their first appearance.
    pub(crate) calls: Vec<String>,
    /// The tool's.
    pub(crate) output: Output,
}

/// Runs a tool to its end, with some of its calls refused.
pub(crate) fn run(tool: &str, args: &[&str], refusal: Option<Refusal<'_>>) -> Run {
    let (told, tells) = UnixStream::pair().expect("sockets");
    let mut command = Command::new(crate::built(tool));
    command.args(args);
    // SAFETY: system calls on values that were made before the fork.
    unsafe { command.pre_exec(move || hand_over(&tells)) };
    let refusal = refusal.map(|(name, error)| (name.to_owned(), error));
    let supervisor = thread::spawn(move || Supervisor::new(told, refusal).serve());
    let output = Tool::spawn(tool, command).finish();
    let calls = supervisor.join().expect("the supervisor does not panic");
    Run { calls, output }
}

/// Installs the filter, in the child, and tells where its other end is.
fn hand_over(tells: &UnixStream) -> io::Result<()> {
    let load_number = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let mut filter = [load_number; CALLS.len() + 3];
    for (at, (number, _)) in CALLS.iter().enumerate() {
        let mut jump = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *number as u32);
        // Over the other calls and the statement that allows.
        jump.jt = (CALLS.len() - at) as u8;
        filter[at + 1] = jump;
    }
    let answer = |answer| statement(libc::BPF_RET | libc::BPF_K, answer);
    filter[CALLS.len() + 1] = answer(libc::SECCOMP_RET_ALLOW);
    filter[CALLS.len() + 2] = answer(libc::SECCOMP_RET_USER_NOTIF);
    let filter = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: a filter as long as it says; plain numbers; bytes that are there.
    unsafe {
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        );
        let message = [libc::getpid(), listener as i32];
        let sent = libc::write(tells.as_raw_fd(), message.as_ptr().cast(), 8);
        // The exec closes it: not before the supervisor has its own.
        let mut taken = [0_u8];
        let heard = libc::read(tells.as_raw_fd(), taken.as_mut_ptr().cast(), 1);
        if listener < 0 || sent != 8 || heard != 1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

struct Supervisor {
    pid: u32,
    listener: OwnedFd,
    refusal: Option<(String, i32)>,
    calls: Vec<String>,
    counts: HashMap<String, u32>,
}

impl Supervisor {
    fn new(mut told: UnixStream, refusal: Option<(String, i32)>) -> Self {
        let mut message = [0; 8];
        told.read_exact(&mut message).expect("a filter");
        let number = |at: usize| i32::from_ne_bytes(message[at..at + 4].try_into().expect("four"));
        let (pid, theirs) = (number(0), number(4));
        // SAFETY: plain numbers; the descriptor is new and ours.
        let listener = unsafe {
            let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            let process = OwnedFd::from_raw_fd(process as i32);
            let listener = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), theirs, 0);
            assert!(listener >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(listener as i32)
        };
        told.write_all(b"!").expect("it waits");
        Self {
            pid: pid as u32,
            listener,
            refusal,
            calls: Vec::new(),
            counts: HashMap::new(),
        }
    }

    /// Answers until nobody is left who could ask.
    fn serve(mut self) -> Vec<String> {
        while self.is_asked() {
            // SAFETY: zeros are a notification, as the kernel demands.
            let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: room for one.
            if unsafe { libc::ioctl(self.listener.as_raw_fd(), RECEIVE, &raw mut asked) } != 0 {
                continue;
            }
            let error = self.judge(&asked);
            let mut answer = libc::seccomp_notif_resp {
                id: asked.id,
                val: 0,
                error: -error,
                flags: match error {
                    0 => libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
                    _ => 0,
                },
            };
            // SAFETY: an answer; who asked may have been killed since.
            unsafe { libc::ioctl(self.listener.as_raw_fd(), SEND, &raw mut answer) };
        }
        self.calls
    }

    fn is_asked(&self) -> bool {
        let mut polled = libc::pollfd {
            fd: self.listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut polled, 1, -1) };
        polled.revents & libc::POLLIN != 0
    }

    /// The error that a call gets, 0 for none.
    fn judge(&mut self, asked: &libc::seccomp_notif) -> i32 {
        if asked.pid != self.pid {
            return 0;
        }
        let Some((all, each)) = name(asked.pid, &asked.data) else {
            return 0;
        };
        let mut words = all.split(' ');
        let kind = words.next().unwrap_or_default().to_owned();
        let mut names = vec![all.clone()];
        if kind == "bpf" {
            names.insert(0, format!("bpf {}", words.next().unwrap_or_default()));
            names.insert(0, kind);
        }
        if each {
            let count = self.counts.entry(all.clone()).or_default();
            *count += 1;
            names.push(format!("{all} #{count}"));
        }
        for name in &names {
            if !self.calls.contains(name) {
                self.calls.push(name.clone());
            }
        }
        match &self.refusal {
            Some((name, error)) if names.contains(name) => *error,
            _ => 0,
        }
    }
}

/// A call's name, and whether each call of that name is another; `None`: of no interest.
fn name(pid: u32, call: &libc::seccomp_data) -> Option<(String, bool)> {
    let (_, kind) = CALLS
        .iter()
        .find(|(number, _)| *number == libc::c_long::from(call.nr))?;
    let args = call.args;
    let named = |at: u64| text(pid, at, 16).filter(|name| !name.is_empty());
    Some(match *kind {
        "bpf" => {
            let command = COMMANDS.iter().find(|(number, _)| *number == args[0]);
            let command = command.map_or_else(|| args[0].to_string(), |(_, name)| (*name).into());
            let name = match args[0] {
                0 => named(args[1] + 28),
                5 => named(args[1] + 48),
                _ => None,
            };
            match name {
                Some(name) => (format!("bpf {command} {name}"), false),
                None => (format!("bpf {command}"), matches!(args[0], 17 | 28 | 33)),
            }
        }
        "open" => {
            let path = text(pid, args[1], 4096)?;
            let library = path.contains(".so") || path == "/etc/ld.so.cache";
            let parts = path.split('/').map(|part| match part.parse::<u32>() {
                Ok(_) => "N",
                Err(_) => part,
            });
            let path = parts.collect::<Vec<_>>().join("/");
            (!library).then(|| (format!("open {path}"), false))?
        }
        "ioctl" if matches!(args[1], 0x5401 | 0x5413) => return None,
        "ioctl" => (format!("ioctl {:x}", args[1]), false),
        // Anonymous memory has no name, and its lack no remedy.
        "mmap" if args[4] as i32 >= 0 && args[3] & 1 != 0 => ("mmap".into(), true),
        "mmap" => return None,
        "prctl" | "prlimit" => (
            format!("{kind} {}", args[usize::from(*kind == "prlimit")]),
            false,
        ),
        _ => (
            (*kind).into(),
            matches!(
                *kind,
                "perf_event_open" | "clone" | "clone3" | "pipe" | "epoll_create"
            ),
        ),
    })
}

/// Text at an address of a process; what follows the first 0 is not of it.
fn text(pid: u32, address: u64, most: usize) -> Option<String> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; most];
    let read = memory.read_at(&mut bytes, address).ok()?;
    let bytes = bytes[..read].split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}
